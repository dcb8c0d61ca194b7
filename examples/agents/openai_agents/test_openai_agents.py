"""OpenAI Agents: an error becomes a text for the model, which calls the tool again under a new id."""

from __future__ import annotations

import pytest

from examples.agents.openai_agents.agent import work
from examples.agents.refunds import (
    AFTER_THE_LEASE,
    AT_ONCE,
    DECIDES_NOTHING,
    WITHOUT_KEYS,
    protected,
    reconcile,
    send,
    unprotected,
)
from pytest_once import Once
from pytest_once.reference.databases import SQLite


@pytest.mark.once_effect(soft_faults=0)
@pytest.mark.convicted("DUPLICATE", because="a restarted run knows nothing of what the first one did")
def test_a_run_that_is_started_again_refunds_again(once: Once) -> None:
    """S3.1: an agent's run is no durable step; whoever has ordered it orders it again until he has an answer."""
    tool = unprotected(once.provider("payments", contract="client_key").url)
    once.caller("order_123", work, lambda order, amount, _: tool(order, amount))


@pytest.mark.once_effect(faults=("lost-response",))
@pytest.mark.convicted("DUPLICATE", because="the key is the id of the call, and the model's second call has another")
def test_a_key_made_of_the_call_id_does_not_survive_a_model_that_tries_again(once: Once) -> None:
    """S3.2: no crash convicts this one, since a run that starts again makes the same ids here."""
    url = once.provider("payments", contract="client_key").url
    work(lambda order, amount, call_id: send(url, order, amount, key=call_id))


@pytest.mark.once_effect(faults=("lost-response",), restart_after=AFTER_THE_LEASE, ignore=DECIDES_NOTHING)
def test_a_tool_behind_the_gate_refunds_once(once: Once, gates: SQLite) -> None:
    """S4.8, S4.11: whatever the model does, the intent is the order's."""
    tool = protected(once.provider("payments", contract="client_key").url, gates)
    work(lambda order, amount, _: tool(order, amount))


@pytest.mark.once_effect(faults=("refused", "lost-response"), restart_after=AFTER_THE_LEASE, ignore=DECIDES_NOTHING)
def test_without_keys_the_gate_waits_for_the_look_up(once: Once, gates: SQLite) -> None:
    """S3.9, S4.6: no answer is UNKNOWN and refuses; the look-up confirms it later, without a second refund."""
    payments = once.provider("payments", contract=WITHOUT_KEYS)
    reconcile(payments.url, gates)
    tool = protected(payments.url, gates, AT_ONCE)
    work(lambda order, amount, _: tool(order, amount))
