"""LangGraph: a resume runs the interrupted node again, and a RetryPolicy runs it again at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.agents.langgraph.agent import resume, resume_by_next
from examples.agents.refunds import AFTER_THE_LEASE, DECIDES_NOTHING, keyed, protected, unprotected
from pytest_once import Once
from pytest_once.reference.databases import SQLite


@pytest.mark.once_effect(faults=("lost-response",))
@pytest.mark.convicted("DUPLICATE", because="an unfinished node is run again, on resume and by its RetryPolicy")
def test_a_resumed_graph_calls_its_tool_again(once: Once, tmp_path: Path) -> None:
    """S3.1, S3.9: the checkpoint comes after the refund."""
    payments = once.provider("payments", contract="client_key")
    resume(tmp_path / "checkpoints.db", unprotected(payments.url))


@pytest.mark.once_effect(faults=("lost-response",), restart_after=AFTER_THE_LEASE, ignore=DECIDES_NOTHING)
def test_a_tool_behind_the_gate_refunds_once(once: Once, tmp_path: Path, gates: SQLite) -> None:
    """S4.8, S4.11: the graph resumes and retries as before, and gets the receipt."""
    payments = once.provider("payments", contract="client_key")
    resume(tmp_path / "checkpoints.db", protected(payments.url, gates))


@pytest.mark.once_effect(soft_faults=0)
@pytest.mark.convicted(
    "OMISSION", because="killed between the two writes of a step, `next` is empty, and is taken for the end"
)
def test_a_supervisor_that_reads_next_loses_the_refund(once: Once, tmp_path: Path) -> None:
    """S3.5: an empty field is no evidence that the work is done."""
    payments = once.provider("payments", contract="client_key")
    resume_by_next(tmp_path / "checkpoints.db", keyed(payments.url))
