"""The Stripe agents under the explorer: each is judged, and for the reason its docstring names."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from examples.stripe_refunds import agent_broken, agent_corrected
from pytest_once import Once, Verdict, explore
from tests.engine.bodies import told

LATER: dict[str, Any] = {"restart_after": ("0s", "3d"), "faults": ("lost-response",), "redeliver": 0}


def refunding(agent: ModuleType) -> Callable[[Once], None]:
    def body(once: Once) -> None:
        stripe = once.provider("stripe", contract="stripe_v1")
        refunds = agent.RefundAgent(db=once.path / "agent.db", base_url=stripe.url, api_key="sk_test")
        refunds.refund(order="order_123", charge="ch_1", amount=500)

    return body


@pytest.mark.slow
def test_only_a_crash_convicts_the_key_that_dies_with_the_process() -> None:
    """S3.2: a lost answer alone does no harm, since the agent's own retry repeats the key."""
    report = explore(refunding(agent_broken), faults=("lost-response",), redeliver=0)
    assert report.verdict is Verdict.DUPLICATE, told(report)
    [violation] = report.violations
    for schedule in (violation.schedule, *violation.variants):
        assert schedule.lives[0].crash is not None


@pytest.mark.slow
def test_the_key_of_the_order_is_exhausted() -> None:
    """S4.1: the corrected twin, under the same faults, at once and three days later."""
    report = explore(refunding(agent_corrected), **LATER)
    assert (report.verdict, report.coverage) == (Verdict.EXACTLY_ONCE, "exhausted"), told(report)


@pytest.mark.slow
def test_a_key_trusted_for_longer_than_stripe_promises_is_convicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its look at old keys the corrected agent is wrong after three days: the look is what saves it."""
    monkeypatch.setattr(agent_corrected, "KEY_KNOWN_S", float("inf"))
    report = explore(refunding(agent_corrected), profile="crash", restart_after=("0s", "3d"))
    assert report.verdict is Verdict.DUPLICATE, told(report)
