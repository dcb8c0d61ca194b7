"""docs/what-it-cannot-promise.md shows what really happens, and names what exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_once import Verdict
from pytest_once.reference.failure_modes import MODES
from tests.reference.limits import LIMITS, Limit, run, told
from tests.reference.mutants import MUTANTS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "what-it-cannot-promise.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.name)
def test_the_limit_is_there_and_the_page_shows_it(limit: Limit) -> None:
    """S4.14, S2.11, S1.8, S1.9: a limit that is only claimed may be none, or be another one."""
    found = run(limit)
    assert found.verdict is limit.verdict
    if limit.verdict is Verdict.ESCALATED:
        assert found.passed, "escalated, and never a second effect, to the end"
    assert f"```text\n{told(limit, found)}\n```" in PAGE, told(limit, found)


def test_the_page_shows_nothing_else_and_names_what_exists() -> None:
    """A mutant or a mode that is gone proves nothing."""
    shown = re.findall(r"```text\n([a-z-]+):", PAGE)
    assert shown == [limit.name for limit in LIMITS]
    mutants = {mutant.name for mutant in MUTANTS}
    named = list(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", PAGE))
    assert len(named) >= 8
    assert set(named) <= mutants
    modes = {mode[0] for mode in MODES}
    assert set(re.findall(r'row "([^"]+)"', PAGE)) <= modes
