"""K08: the platform kills the function at its limit, its record stays "in progress", and all retries are refused.

Report: aws-powertools/powertools-lambda-python#738. Twin of K09, where the record expires.
"""

from __future__ import annotations

from pytest_once import Verdict, explore
from tests.incidents.claims_of_functions import withdraw
from tests.incidents.models import cell, exactly_once

DELAYS = ("0s", "1h")


def test_a_record_without_an_end_refuses_every_delivery() -> None:
    """Killed before the effect, or after it: both are stuck, and the record cannot tell which it was."""
    report = explore(lambda once: withdraw(once, expires_s=None), soft_faults=0, restart_after=DELAYS)
    assert report.verdict is Verdict.STUCK
    assert {violation.actual for violation in report.violations} == {0, None}
    assert all(violation.confirmed for violation in report.violations)
    assert cell(report, "crash", "bank withdraw") == "stuck"
    assert cell(report, "crash", "UPDATE records") == "stuck"
    assert report.violations[0].story[-1].ending.startswith("raised AlreadyInProgress")


def test_an_expiry_is_safe_only_where_the_remote_side_knows_the_key() -> None:
    exactly_once(
        explore(
            lambda once: withdraw(once, expires_s=900, after_expiry="takes over with a key"),
            soft_faults=0,
            restart_after=DELAYS,
        )
    )
