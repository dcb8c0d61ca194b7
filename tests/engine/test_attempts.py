"""Attempts that the provider saw against attempts that were allowed."""

from __future__ import annotations

import pytest

from pytest_once import Once, Verdict, explore
from tests.engine.bodies import careful, proven, told

ORDER = {"order": "order_1"}


def insistent(once: Once) -> None:
    """Three attempts under one key: one effect, but not one attempt."""
    for attempt in range(3):
        try:
            careful(once).call("refund", ORDER, key="order_1").raise_for_status()
            return
        except OSError:
            if attempt == 2:
                raise


def test_more_attempts_than_allowed_are_a_violation() -> None:
    """The effect is right; what the code is said to do is not (incident H05)."""
    report = explore(insistent, attempts=1, faults=("lost-response",))
    assert report.verdict is Verdict.TOO_MANY_ATTEMPTS
    violation = report.violations[0]
    assert violation.confirmed
    assert (violation.expected, violation.actual) == (1, 2)


def test_as_many_as_allowed_are_none() -> None:
    """Lost requests reach nobody, and restarts begin to count anew."""
    assert proven(explore(insistent, attempts=3))


def test_nobody_counts_unless_asked() -> None:
    assert proven(explore(insistent))


@pytest.mark.parametrize("attempts", [-1, "2", True])
def test_a_number_that_is_none_is_refused(attempts: object) -> None:
    with pytest.raises(ValueError, match="attempts"):
        explore(insistent, attempts=attempts)


@pytest.mark.slow
def test_a_fault_on_one_key_neither_loses_nor_repeats_another() -> None:
    """Three siblings in one batch; the one that fails is tried again alone."""

    def body(once: Once) -> None:
        failed = False
        for order in ("order_1", "order_2", "order_3"):
            try:
                careful(once).call("refund", {"order": order}, key=order).raise_for_status()
            except Exception:
                failed = True
        if failed:
            raise RuntimeError("some are open")

    report = explore(body, keys=("order_1", "order_2", "order_3"), faults=("lost-response", "error-before"))
    assert proven(report)


def test_a_batch_that_ends_at_the_first_failure_loses_the_siblings() -> None:
    def body(once: Once) -> None:
        try:
            for order in ("order_1", "order_2", "order_3"):
                careful(once).call("refund", {"order": order}, key=order).raise_for_status()
        except Exception:
            return

    report = explore(body, keys=("order_1", "order_2", "order_3"), redeliver=0, faults=("error-before",))
    assert report.verdict is Verdict.OMISSION
    assert {violation.key.name for violation in report.violations if violation.key} >= {"order_2", "order_3"}
    assert "0 of 1" in told(report)
