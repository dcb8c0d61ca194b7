"""MCP: an error result does not tell a client what has happened, and it calls again; so does one that is started again.

Over stdio, client and server are two real processes, run by `once.process` and cut where the server asks the provider.
In one process the same server is cut between its own commits as well.
"""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from examples.agents.mcp_stdio.client import refund
from examples.agents.mcp_stdio.server import keyed_by_request, shop
from examples.agents.refunds import (
    AFTER_THE_LEASE,
    AT_ONCE,
    DECIDES_NOTHING,
    WITHOUT_KEYS,
    protected,
    reconcile,
)
from pytest_once import Once
from pytest_once.reference.databases import SQLite


def over_stdio(once: Once, tool: str) -> None:
    """The client, which starts the server."""
    payments = once.provider("payments", contract="client_key")
    once.process(
        [sys.executable, "-m", "examples.agents.mcp_stdio.client", tool],
        env={"PAYMENTS_URL": payments.url, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout_s=30.0,
    )


@pytest.mark.once_effect(soft_faults=0)
@pytest.mark.convicted("DUPLICATE", because="a client that is started again calls again, and nobody remembers")
def test_over_stdio_a_tool_without_a_key_refunds_twice(once: Once) -> None:
    """S3.1: whoever has ordered it orders it again until he has an answer."""
    once.caller("order_123", over_stdio, once, "bare")


@pytest.mark.once_effect(soft_faults=0)
def test_over_stdio_a_tool_with_a_key_of_the_intent_refunds_once(once: Once) -> None:
    """S4.8: no server can make its clients stop calling; it can say that it is the same refund."""
    over_stdio(once, "keyed")


@pytest.mark.once_effect(faults=("lost-response",))
@pytest.mark.convicted("DUPLICATE", because="the client calls again after an error, and that request has another id")
def test_a_key_made_of_the_request_id_does_not_survive_a_second_call(once: Once) -> None:
    """S3.2, S4.4: a lost answer arrives as an error result, which says nothing of the refund.

    No crash convicts this one, since request ids begin anew with each connection; which is a fault of its own: the next
    order would get this one's answer.
    """
    payments = once.provider("payments", contract="client_key")
    asyncio.run(refund(shop(keyed_by_request(payments.url))))


@pytest.mark.once_effect(faults=("lost-response",), restart_after=AFTER_THE_LEASE, ignore=DECIDES_NOTHING)
def test_a_server_behind_the_gate_refunds_once(once: Once, gates: SQLite) -> None:
    """S4.8, S4.11: clients may call as often as they like."""
    payments = once.provider("payments", contract="client_key")
    asyncio.run(refund(shop(protected(payments.url, gates))))


@pytest.mark.once_effect(faults=("refused", "lost-response"), restart_after=AFTER_THE_LEASE, ignore=DECIDES_NOTHING)
def test_without_keys_the_gate_waits_for_the_look_up(once: Once, gates: SQLite) -> None:
    """S3.9, S4.6: no answer is UNKNOWN and refuses; the look-up confirms it later, without a second refund."""
    payments = once.provider("payments", contract=WITHOUT_KEYS)
    reconcile(payments.url, gates)
    asyncio.run(refund(shop(protected(payments.url, gates, AT_ONCE))))
