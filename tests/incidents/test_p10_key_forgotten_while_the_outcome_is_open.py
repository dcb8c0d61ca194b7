"""P10: a slow but successful charge is reported as failed, and the button is pressed again.

The first fix kept the attempt's key, but dropped it after an hour although the outcome was still open.
Report: akash-network/console#3449.
"""

from __future__ import annotations

import time
import uuid

from pytest_once import Once, Verdict, explore
from tests.incidents.models import by_fault_alone, convicted, database, exactly_once

TOP_UP = {"account": "account_1", "amount": 20}
PAUSES = ("0s", "2h")


def press(once: Once, *, max_age_s: float | None) -> None:
    """The web client: the attempt's key is kept until the answer is in, or until it is too old."""
    provider = once.provider("stripe", contract="client_key")
    with database(once, "browser", "attempts(slot INTEGER PRIMARY KEY, key, since_s REAL, done)") as db:
        row = db.execute("SELECT key, since_s, done FROM attempts").fetchone()
        if row is not None and row[2]:
            return
        if row is None or (max_age_s is not None and time.time() - row[1] > max_age_s):
            row = (str(uuid.uuid4()), time.time(), False)
            db.execute("INSERT OR REPLACE INTO attempts VALUES (0, ?, ?, ?)", row)
        provider.call("charge", TOP_UP, key=row[0])
        db.execute("UPDATE attempts SET done = 1")


def press_without_key(once: Once) -> None:
    provider = once.provider("stripe", contract="client_key")
    try:
        provider.call("charge", TOP_UP)
    except TimeoutError:
        provider.call("charge", TOP_UP)  # "payment failed, please try again"


def test_without_a_key_a_slow_charge_is_made_again() -> None:
    report = explore(press_without_key, faults=("lost-response",), redeliver=0)
    convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="account_1")
    assert any(schedule.startswith("lr@") for schedule in by_fault_alone(report))


def test_a_key_that_ages_out_before_its_outcome_is_known_is_no_key() -> None:
    report = explore(lambda once: press(once, max_age_s=3600), faults=("lost-response",), restart_after=PAUSES)
    violation = convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="account_1")
    assert "w7200" in str(violation.schedule)


def test_a_key_that_is_kept_until_the_outcome_is_known() -> None:
    exactly_once(explore(lambda once: press(once, max_age_s=None), faults=("lost-response",), restart_after=PAUSES))
