"""A05: a person allows the arguments that are shown; the resume asks the model again, which now says something else.

The approval is matched by position, so what nobody has seen is executed. Report: extra-org/extra#139.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable

from pytest_once import Once, Verdict, explore
from tests.incidents.models import cell, convicted, database, escalated

SAID = ("refund order_x", "refund order_y")


def ask_model(db: sqlite3.Connection) -> str:
    """It says the first thing until that is allowed, and another one when it is asked again on the resume."""
    return SAID[int(db.execute("SELECT count(*) FROM approvals").fetchone()[0])]


def digest(call: str) -> str:
    return hashlib.sha256(call.encode()).hexdigest()


def agent(once: Once, bound_to: Callable[[str], str]) -> None:
    bank = once.provider("bank", contract="client_key")
    with database(once, "agent", "approvals(of TEXT PRIMARY KEY); done(id)") as db:
        if db.execute("SELECT 1 FROM done").fetchone():
            return
        call = ask_model(db)
        approved = [of for (of,) in db.execute("SELECT of FROM approvals").fetchall()]
        if not approved:
            db.execute("INSERT INTO approvals VALUES (?)", (bound_to(call),))  # shown, and allowed
        elif bound_to(call) not in approved:
            once.claim("unknown")  # nobody has allowed this: a person has to look again
            return
        bank.call("execute", {"call": call}, key="approval_1")
        db.execute("INSERT INTO done VALUES ('approval_1')")


def test_an_approval_by_position_executes_what_was_never_shown() -> None:
    report = explore(lambda once: agent(once, lambda call: "call 1"), soft_faults=0, blocked=("unknown",))
    violation = convicted(report, Verdict.DUPLICATE, expected=0, actual=1, key="refund order_y")
    assert violation.schedule.crashes == 1
    assert cell(report, "crash", "bank execute") == "1x"


def test_an_approval_of_these_arguments_blocks_others() -> None:
    report = explore(lambda once: agent(once, digest), soft_faults=0, blocked=("unknown",))
    escalated(report)
    assert cell(report, "crash", "bank execute") == "esc."
