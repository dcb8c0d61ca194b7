"""K09: the cure of K08: "in progress" expires with the function's limit, and the next delivery withdraws again.

No expiry is right: taking over needs a key at the remote side, a look-up, or a person. Report:
aws-powertools/powertools-lambda-python#8049.
"""

from __future__ import annotations

from pytest_once import Verdict, explore
from tests.incidents.claims_of_functions import AlreadyInProgress, withdraw
from tests.incidents.models import convicted, escalated

DELAYS = ("0s", "1h")
LIMIT_S = 900.0


def test_the_next_delivery_after_the_expiry_withdraws_again() -> None:
    report = explore(lambda once: withdraw(once, expires_s=LIMIT_S), soft_faults=0, restart_after=DELAYS)
    violation = convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="withdrawal_1")
    assert violation.schedule.crashes == 1
    assert "w3600" in str(violation.schedule)


def test_an_expired_claim_is_unknown() -> None:
    escalated(
        explore(
            lambda once: withdraw(once, expires_s=LIMIT_S, after_expiry="asks a person"),
            soft_faults=0,
            restart_after=DELAYS,
            blocked=("unknown", AlreadyInProgress),
        )
    )
