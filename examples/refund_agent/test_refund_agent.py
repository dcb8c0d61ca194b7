"""Three refund agents against a payment provider that knows a repetition by its Idempotency-Key.

Run with `pytest --once-chaos examples/refund_agent`. A test marked `convicted` holds code that is broken on purpose.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.refund_agent import agent_broken, agent_corrected, agent_recovery_key
from pytest_once import Once


@pytest.mark.once_effect
@pytest.mark.convicted("DUPLICATE", because="every attempt has a key of its own, so a retry looks like another refund")
def test_a_key_for_every_attempt_refunds_twice(once: Once, tmp_path: Path) -> None:
    """S3.2: the identity of an attempt is not the identity of the operation."""
    payments = once.provider("payments", contract="client_key")
    agent = agent_broken.RefundAgent(db=tmp_path / "agent.db", base_url=payments.url)
    agent.refund(order="order_123", amount=500)


@pytest.mark.once_effect
def test_a_key_stored_with_the_task_refunds_once(once: Once, tmp_path: Path) -> None:
    """S4.1: the key is made at planning time and committed with the task."""
    payments = once.provider("payments", contract="client_key")
    agent = agent_corrected.RefundAgent(db=tmp_path / "agent.db", base_url=payments.url)
    agent.refund(order="order_123", amount=500)


@pytest.mark.once_effect
@pytest.mark.convicted("DUPLICATE", because="the recovery makes a new key and stores it only after it has sent it")
def test_a_recovery_that_crashes_refunds_twice(once: Once, tmp_path: Path) -> None:
    """S3.1: right after any one crash; a second one, in the recovery, pays again."""
    payments = once.provider("payments", contract="client_key")
    agent = agent_recovery_key.RefundAgent(db=tmp_path / "agent.db", base_url=payments.url)
    agent.refund(order="order_123", amount=500)


@pytest.mark.once_effect
def test_the_provider_can_also_answer_in_process(once: Once, tmp_path: Path) -> None:
    """The corrected agent once more, its httpx client answered by the router instead of the loopback server."""
    payments = once.provider("payments", contract="client_key")
    with payments.router:
        agent = agent_corrected.RefundAgent(db=tmp_path / "agent.db", base_url=payments.base_url)
        agent.refund(order="order_123", amount=500)
