"""A06: the approval is spent and the tool has run, then the turn fails at the next model call; the person tries again.

Either the retry is refused and the answer is lost, or it is taken for a new approval. Report:
microsoft/agent-framework#7458.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from pytest_once import Once, Verdict, explore
from tests.incidents.models import cell, convicted, database, exactly_once


class TurnFailed(Exception):
    """The client is told that the run failed."""


class Refused(Exception):
    """This approval has been used."""


def refuses(once: Once, db: sqlite3.Connection, spent: bool) -> None:
    if spent:
        raise Refused
    pay(once, db, "approval_1")


def takes_it_for_new(once: Once, db: sqlite3.Connection, spent: bool) -> None:
    number = int(db.execute("SELECT count(*) FROM approvals").fetchone()[0]) + 1
    pay(once, db, f"approval_{min(number, 3)}")


def returns_the_first_result(once: Once, db: sqlite3.Connection, spent: bool) -> None:
    pay(once, db, "approval_1")  # the tool recognises the approval, and answers as it did


def pay(once: Once, db: sqlite3.Connection, approval: str) -> None:
    db.execute("INSERT OR IGNORE INTO approvals VALUES (?)", (approval,))
    once.provider("bank", contract="client_key").call("pay", {"invoice": "invoice_1"}, key=approval)


def turn(once: Once, tool: Callable[[Once, sqlite3.Connection, bool], None]) -> None:
    model = once.tool(lambda: "paid", name="model", counted=False)
    with database(once, "server", "approvals(id TEXT PRIMARY KEY); answers(id)") as db:
        if db.execute("SELECT 1 FROM answers").fetchone():
            return
        spent = db.execute("SELECT 1 FROM approvals").fetchone() is not None
        tool(once, db, spent)
        try:
            model()
        except ConnectionRefusedError:
            raise TurnFailed from None
        db.execute("INSERT INTO answers VALUES ('approval_1')")


def test_a_spent_approval_refuses_the_retry() -> None:
    report = explore(lambda once: turn(once, refuses), faults=("refused",))
    assert report.verdict is Verdict.STUCK
    assert cell(report, "refused", "model") == "stuck"
    assert any(violation.story[-1].ending.startswith("raised Refused") for violation in report.violations)


def test_an_approval_that_is_taken_for_new_pays_again() -> None:
    report = explore(lambda once: turn(once, takes_it_for_new), faults=("refused",))
    convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="invoice_1")
    assert cell(report, "refused", "model") == "2x"


def test_the_retry_returns_the_first_result() -> None:
    exactly_once(explore(lambda once: turn(once, returns_the_first_result), faults=("refused",)))
