"""A15: the refund is done and its answer lost; one framework stops, the other tells the model, which calls again.

The same fault, and the verdict depends on the policy. Report: CTRLRun/ctrlrun#46.
"""

from __future__ import annotations

from collections.abc import Callable

from pytest_once import Once, Verdict, explore
from tests.incidents.models import asks_once, cell, convicted, escalated

TURNS = 4


def describes(tool: Callable[[], object]) -> None:
    """The error becomes text, and a scripted model tries again on reading it."""
    for _ in range(TURNS):
        try:
            tool()
        except TimeoutError:
            continue
        return
    raise TimeoutError


def raises(tool: Callable[[], object]) -> None:
    tool()


def agent(once: Once, policy: Callable[[Callable[[], object]], None]) -> None:
    bank = once.provider("bank")
    asks_once(once, lambda: policy(lambda: bank.call("refund", {"order": "order_1"})))


def test_an_error_that_is_described_is_tried_again() -> None:
    report = explore(lambda once: agent(once, describes), faults=("lost-response",), blocked=("unknown",))
    violation = convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="order_1")
    assert violation.schedule.crashes == 0
    assert cell(report, "lost-response", "bank refund") == "2x"


def test_an_error_that_is_raised_stops() -> None:
    report = explore(lambda once: agent(once, raises), faults=("lost-response",), blocked=("unknown",))
    escalated(report)
    assert cell(report, "lost-response", "bank refund") == "esc."
