"""P14: the deadline passes, the best-effort cancellation of the payment fails quietly, and the payment settles later.

The subscription is marked as cancelled: the customer has paid and is never served. Report: getlago/lago-api#5624.
"""

from __future__ import annotations

import sqlite3
import time

import pytest

from pytest_once import Once, Verdict, explore
from tests.incidents.models import convicted, database, exactly_once

DEADLINE_S = 3600.0
SETTLES_AFTER_S = 1800.0
SCHEMA = "subscriptions(id TEXT PRIMARY KEY, state, asked_s REAL)"


class Unsupported(Exception):
    """This kind of payment cannot be cancelled."""


def cancel_payment() -> None:
    raise Unsupported


def activate(once: Once, *, trusts_the_cancellation: bool) -> None:
    psp = once.provider("psp", contract="client_key")
    with database(once, "billing", SCHEMA) as db:
        if not db.execute("SELECT 1 FROM subscriptions").fetchone():
            db.execute("INSERT INTO subscriptions VALUES ('subscription_1', 'pending', ?)", (time.time(),))
        state, asked_s = db.execute("SELECT state, asked_s FROM subscriptions").fetchone()
        if state != "pending":
            return
        psp.call("charge", {"subscription": "subscription_1"}, key="subscription_1")
        if time.time() > asked_s + DEADLINE_S:
            try:
                once.tool(cancel_payment, name="cancel", counted=False)()
                cancelled = True
            except Unsupported:
                cancelled = trusts_the_cancellation  # "best effort"
            if cancelled:
                db.execute("UPDATE subscriptions SET state = 'cancelled'")
                return
        time.sleep(SETTLES_AFTER_S)
        grant(once, db)


def grant(once: Once, db: sqlite3.Connection) -> None:
    """What the news of the settlement leads to."""
    service = once.provider("service", contract="client_key")
    service.call("grant", {"subscription": "subscription_1"}, key="subscription_1")
    db.execute("UPDATE subscriptions SET state = 'active'")


DELAYS = ("0s", "2h")


@pytest.mark.slow
def test_paid_and_never_served() -> None:
    report = explore(lambda once: activate(once, trusts_the_cancellation=True), soft_faults=0, restart_after=DELAYS)
    violation = convicted(report, Verdict.OMISSION, expected=1, actual=0, key="service grant")
    assert "w7200" in str(violation.schedule)
    assert any(step.boundary.target == "cancel" for step in violation.story[-1].steps)


def test_a_payment_that_may_still_settle_is_waited_for() -> None:
    exactly_once(
        explore(lambda once: activate(once, trusts_the_cancellation=False), soft_faults=0, restart_after=DELAYS)
    )
