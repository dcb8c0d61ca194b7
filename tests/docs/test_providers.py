"""docs/providers.md says of every named contract what the contract says, and where it is tested."""

from __future__ import annotations

from pathlib import Path

from once_fakes import contract_named
from once_fakes.contracts import contract_names
from once_fakes.dialect import dialect_of
from once_fakes.table import markdown, rows

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "providers.md").read_text(encoding="utf-8")


def test_the_table_is_that_of_the_contracts() -> None:
    """A table written by hand would be wrong after the first change (`once_fakes list --markdown`)."""
    assert markdown() in PAGE


def test_every_preset_says_where_it_is_documented_and_what_it_leaves_out() -> None:
    """A fake whose promises come from nowhere is no evidence."""
    for name in contract_names():
        contract = contract_named(name)
        if contract.dialect:
            dialect = dialect_of(contract)
            assert dialect.source.startswith("https://"), name
            assert dialect.not_modelled, name
            assert f"- `{name}`" in PAGE, f"{name} is missing in the list of what is not played"
            assert dialect.not_modelled in PAGE.replace("\n  ", " "), name
    assert len(list(rows())) == len(contract_names())
