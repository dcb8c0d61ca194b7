"""P09: the company's id is used as the idempotency key of "create customer", as if it were a unique constraint.

It holds for a day; then the key is forgotten and the next call makes a second customer. Report: crbnos/carbon#252.
"""

from __future__ import annotations

from pytest_once import Once, Verdict, explore
from tests.incidents.forgetful import Forgetful
from tests.incidents.models import convicted, database, exactly_once

DAY_S = 86400.0
DELAYS = ("0s", "25h")


def customer_of(once: Once, company: str, *, unique_for_ever: bool) -> None:
    """Called whenever the customer is needed; nothing is recorded here."""
    billing = Forgetful(once, None if unique_for_ever else DAY_S)
    billing.act(f"create:{company}", company)


def test_the_next_day_makes_a_second_customer() -> None:
    report = explore(
        lambda once: customer_of(once, "company_1", unique_for_ever=False), soft_faults=0, restart_after=DELAYS
    )
    violation = convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="company_1")
    assert "w90000" in str(violation.schedule)
    assert violation.schedule.crashes <= 1


def test_a_unique_constraint_is_one() -> None:
    exactly_once(
        explore(lambda once: customer_of(once, "company_1", unique_for_ever=True), soft_faults=0, restart_after=DELAYS)
    )


def test_a_record_of_ones_own_is_not_enough() -> None:
    """It closes the redelivery; a crash before it is written, and a day, still make a second customer."""

    def body(once: Once) -> None:
        with database(once, "app", "customers(company TEXT PRIMARY KEY)") as db:
            if not db.execute("SELECT 1 FROM customers").fetchone():
                customer_of(once, "company_1", unique_for_ever=False)
                db.execute("INSERT INTO customers VALUES ('company_1')")

    report = explore(body, soft_faults=0, restart_after=DELAYS)
    violation = convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="company_1")
    assert violation.schedule.crashes == 1
