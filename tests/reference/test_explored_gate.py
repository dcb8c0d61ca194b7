"""The gate, explored to closure: what it promises under each contract, on each store."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from once_fakes import NONE
from pytest_once import Once, Report, Verdict, explore
from pytest_once.reference.databases import AsyncSQLite, PostgreSQL, SQLite
from pytest_once.reporting import terminal
from tests.reference.conftest import OnALoop, Store
from tests.reference.workers import DOUBTED, FOR_EVER, KEYS, LOOK_UP, NEITHER, Case, refund_on

DECIDE_NOTHING = ("gate_intents.attempts", "*.attempt", "*.reason", "gate_*.*_at")
"""The fencing token (any number will do), and what is written for people only."""


def worker(store: str, case: Case, url: str = "") -> Callable[[Once], Any]:
    """A worker that makes its tables, reconciles, and then refunds once through the gate."""

    def body(once: Once) -> None:
        database: Store
        if store == "psycopg":
            database = PostgreSQL(once.track(url))
        elif store == "aiosqlite":
            database = OnALoop(AsyncSQLite(once.path / "gate.db"))
        else:
            database = SQLite(once.path / "gate.db")
        with closing(database):
            database.migrate()
            refund_on(database, once, case)

    return body


def explored(store: str, case: Case, faults: tuple[str, ...], url: str = "") -> Report:
    return explore(
        worker(store, case, url),
        profile="deep",
        soft_faults=1,
        faults=faults,
        key="order_1",
        blocked=("unknown",) if case.escalates else (),
        ignore=DECIDE_NOTHING,
        restart_after=("31s",),
    )


def judged(report: Report, case: Case) -> None:
    assert report.passed, terminal.render(report)
    assert report.verdict is case.verdict


@pytest.mark.slow
@pytest.mark.parametrize("case", [KEYS, NEITHER, LOOK_UP], ids=lambda case: case.name)
@pytest.mark.parametrize(
    ("store", "faults"),
    [
        ("sqlite3", ("commit-unknown",)),
        ("aiosqlite", ("lost-response",)),
        ("psycopg", ("lost-response",)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_gate_keeps_its_promise_on_each_store(
    store: str, faults: tuple[str, ...], case: Case, request: pytest.FixtureRequest
) -> None:
    """S4.2, S4.5, S3.9: exactly once with keys or a prompt look-up; with neither escalated, never a second effect."""
    url = request.getfixturevalue("templates")[0] if store == "psycopg" else ""
    judged(explored(store, case, faults, url), case)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "faults"),
    [
        (KEYS, ("late",)),
        (NEITHER, ("refused", "late", "store-busy")),
        (DOUBTED, ("late", "stale-read")),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_other_faults_do_not_break_it(case: Case, faults: tuple[str, ...]) -> None:
    """S4.4, S4.8, S3.5: a request that arrives late, an old answer to a look-up, a busy gate."""
    judged(explored("sqlite3", case, faults), case)


@pytest.mark.slow
def test_a_lookup_that_is_believed_too_early_is_convicted() -> None:
    """S4.14, S3.5: what no look-up can exclude is a request that is still on its way; the engine says so."""
    report = explored("sqlite3", LOOK_UP, ("late",))
    assert report.verdict is Verdict.DUPLICATE
    assert "still on its way" in report.impossible


@pytest.mark.slow
def test_a_promise_that_the_provider_does_not_keep_is_convicted() -> None:
    """S4.14, S1.8: the gate is as good as what it is told; a resend needs a provider that knows its keys."""
    report = explored("sqlite3", Case("false promise", NONE, FOR_EVER, Verdict.DUPLICATE), ("lost-response",))
    assert report.verdict is Verdict.DUPLICATE
