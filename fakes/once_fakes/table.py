"""All named contracts as one table: what each provider promises, and where it says so."""

from __future__ import annotations

from collections.abc import Iterator

from once_fakes.contract import UNSPECIFIED, Contract
from once_fakes.contracts import contract_named, contract_names
from once_fakes.dialect import dialect_of
from once_fakes.promises import span

HEAD = (
    "contract",
    "recognises",
    "within one",
    "kept",
    "other payload / meanwhile / without key",
    "failures",
    "answers / look-up",
    "source",
    "tests",
)
_OPEN = "open"
"""How the table shows what is not documented, and so explored both ways."""


def rows() -> Iterator[tuple[str, ...]]:
    """One row per named contract, in their order."""
    for name in contract_names():
        contract = contract_named(name)
        yield (
            f"`{name}`",
            _recognises(contract),
            ", ".join(contract.scope) or "–",
            _kept(contract),
            f"{_mismatch(contract)} / {_meanwhile(contract)} / {_without(contract)}",
            _failures(contract),
            _lookup(contract),
            _sources(contract),
            _tests(contract),
        )


def markdown() -> str:
    """The table as Markdown."""
    lines = [HEAD, ("---",) * len(HEAD), *rows()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


_MAIL = "https://www.rfc-editor.org/rfc/rfc5321 https://www.rfc-editor.org/rfc/rfc1047"


def _sources(contract: Contract) -> str:
    """Numbered links to the documents."""
    named = (_MAIL if contract.name == "smtp" else dialect_of(contract).source).split()
    if not named or not all(one.startswith("https://") for one in named):
        return " ".join(named) or "–"
    return " ".join(f"[{number}]({address})" for number, address in enumerate(named, 1))


def _tests(contract: Contract) -> str:
    """Where its wire format is tested; the promises are tested by the conformance suite, for all contracts."""
    module = "smtp" if contract.name == "smtp" else contract.dialect.partition(":")[0].rpartition(".")[2]
    return f"test_{module}" if module else "test_repetition"


def _recognises(contract: Contract) -> str:
    match contract.dedup:
        case "none":
            return "nothing"
        case "client_key":
            return f"field `{contract.key_field}`" if contract.key_field else f"`{contract.key_header}`"
        case "natural_key":
            return f"`{contract.natural_key_field}`"
        case "conditional":
            return f"version in `{contract.version_field}`"
        case "session_sequence":
            return f"`{contract.session_field}`, `{contract.sequence_field}`"
    return "same content"


def _kept(contract: Contract) -> str:
    kept = contract.retention_s if contract.window_s is None else contract.window_s
    if contract.dedup in ("none", "conditional", "session_sequence"):
        return "–"
    if kept is None:
        return "for ever"
    if kept == UNSPECIFIED:
        return _OPEN
    if isinstance(kept, tuple):
        least, most = kept
        return f"{span(least)} at least" if most is None else f"{span(least)} to {span(most)}"
    assert not isinstance(kept, str)
    return span(kept)


def _mismatch(contract: Contract) -> str:
    if contract.dedup != "client_key":
        return "–"
    if contract.on_mismatch == "error":
        return str(contract.mismatch_status)
    return _OPEN if contract.on_mismatch == UNSPECIFIED else contract.on_mismatch


def _meanwhile(contract: Contract) -> str:
    if contract.on_concurrent is None:
        return "–"
    if contract.on_concurrent == "reject":
        return str(contract.concurrent_status)
    return _OPEN if contract.on_concurrent == UNSPECIFIED else contract.on_concurrent


def _without(contract: Contract) -> str:
    if contract.dedup in ("none", "content_window"):
        return "–"
    return "acts" if contract.on_missing_key == "execute" else str(contract.missing_key_status)


def _failures(contract: Contract) -> str:
    if contract.dedup != "client_key" or contract.stored_outcomes == "success":
        return "not stored" if contract.dedup == "client_key" else "–"
    stored = {"all": "all stored", "success_and_4xx": "refusals stored"}[contract.stored_outcomes]
    again = {"replay": "replayed", "re_execute": "tried anew", UNSPECIFIED: _OPEN}[contract.on_retry_after_failure]
    return f"{stored}, {again}"


def _lookup(contract: Contract) -> str:
    if contract.lookup == "none":
        found = "none"
    else:
        lag = f", {span(contract.visibility_lag_s)} late" if contract.visibility_lag_s else ""
        found = {"by_client_ref": "by reference", "by_key": "by key", "list_only": "list"}[contract.lookup] + lag
    if contract.acceptance == "async202":
        found = f"accepts, done within {span(contract.completes_after_s)} / {found}"
    return f"{found}; webhooks" if contract.webhooks != "none" else found
