"""Refund agents that are not written in Python, each run as it is against a fake payment provider.

Run with `pytest --once-chaos examples/any_language`.
A test marked `convicted` runs a program that is broken on purpose.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pytest_once import Once

HERE = Path(__file__).parent

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node: no program 'node' is installed")
needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl: no program 'curl' is installed")


def refund(once: Once, *program: str | Path) -> None:
    payments = once.provider("payments", contract="client_key")
    once.process([*program, once.path / "task.json", "order_123", "500"], env={"PAYMENTS_URL": payments.url})


@needs_node
@pytest.mark.once_effect
@pytest.mark.convicted("DUPLICATE", because="the key is stored only after it was sent, so a restart makes another")
def test_a_node_program_that_makes_its_key_when_it_sends(once: Once) -> None:
    """S3.1, in JavaScript."""
    refund(once, "node", HERE / "refund.mjs")


@needs_node
@pytest.mark.once_effect
def test_a_node_program_that_writes_its_key_down_first(once: Once) -> None:
    """S4.1, in JavaScript."""
    refund(once, "node", HERE / "refund_fixed.mjs")


@needs_curl
@pytest.mark.once_effect
@pytest.mark.convicted("DUPLICATE", because="it has no key, and knows of its refund only after the answer")
def test_a_shell_script_without_a_key(once: Once) -> None:
    """S3.1, in a shell."""
    refund(once, "sh", HERE / "refund.sh")


@needs_curl
@pytest.mark.once_effect
def test_a_shell_script_whose_key_names_the_intent(once: Once) -> None:
    """S4.1, in a shell."""
    refund(once, "sh", HERE / "refund_fixed.sh")
