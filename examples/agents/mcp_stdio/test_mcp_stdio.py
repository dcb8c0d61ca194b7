"""MCP over stdio: an error result tells the client nothing of what happened, and it calls again."""

from __future__ import annotations

import os
import sys

import pytest

from examples.agents.refunds import AFTER_THE_LEASE, DECIDES_NOTHING
from pytest_once import Once


def serve(once: Once, tool: str) -> None:
    """The client and its server, which it starts, as they are: two real processes."""
    payments = once.provider("payments", contract="client_key")
    once.process(
        [sys.executable, "-m", "examples.agents.mcp_stdio.client", tool],
        env={"PAYMENTS_URL": payments.url, "GATE": str(once.path / "gate.db"), "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout_s=20.0,
    )


@pytest.mark.once_effect(faults=("reset-response",))
@pytest.mark.convicted("DUPLICATE", because="the client calls again after an error, and when it is started again")
def test_a_client_that_calls_again_refunds_twice(once: Once) -> None:
    """S3.1: request ids restart with each connection; they identify nothing."""
    serve(once, "bare")


@pytest.mark.once_effect(faults=("reset-response",), ignore=DECIDES_NOTHING)
def test_a_server_behind_the_gate_refunds_once(once: Once) -> None:
    """S4.8: the server decides, since no server can make its clients stop calling."""
    serve(once, "gate")
