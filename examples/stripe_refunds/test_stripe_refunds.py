"""Two refund agents against Stripe's API v1, restarted at once and three days later.

Run with `pytest --once-chaos examples/stripe_refunds`. A test marked `convicted` holds code that is broken on purpose.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.stripe_refunds import agent_broken, agent_corrected
from pytest_once import Once


@pytest.mark.once_effect(restart_after=("0s", "3d"))
@pytest.mark.convicted("DUPLICATE", because="the key is made for the call and dies with the process")
def test_a_key_that_dies_with_the_process_refunds_twice(once: Once, tmp_path: Path) -> None:
    """S3.2: the identity of a call is not the identity of the refund."""
    stripe = once.provider("stripe", contract="stripe_v1")
    agent = agent_broken.RefundAgent(db=tmp_path / "agent.db", base_url=stripe.url, api_key="sk_test_example")
    agent.refund(order="order_123", charge="ch_example", amount=500)


@pytest.mark.once_effect(restart_after=("0s", "3d"))
def test_a_key_of_the_order_and_a_look_at_old_ones_refund_once(once: Once, tmp_path: Path) -> None:
    """S4.1: the key is stored before the call, and is trusted for as long as Stripe promises to know it."""
    stripe = once.provider("stripe", contract="stripe_v1")
    agent = agent_corrected.RefundAgent(db=tmp_path / "agent.db", base_url=stripe.url, api_key="sk_test_example")
    agent.refund(order="order_123", charge="ch_example", amount=500)
