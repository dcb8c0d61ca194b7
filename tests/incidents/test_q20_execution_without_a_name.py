"""Q20: the trigger is delivered twice, the start request carries no name, and two executions run.

The second fails later, on what the first has made, and writes FAILED over SUCCESS. Report:
awslabs/genai-idp-terraform#197.
"""

from __future__ import annotations

from pytest_once import Once, Verdict, explore
from tests.incidents.models import cell, convicted, database, exactly_once


def trigger(once: Once, *, named: bool) -> None:
    workflows = once.provider("workflows", contract="client_key")
    workflows.call("start", {"document": "doc_1"}, key="doc_1" if named else None)


def execution(once: Once, *, terminal_is_final: bool) -> None:
    """What one delivery of the trigger runs; the store refuses an output that exists."""
    outputs = once.provider("outputs", contract="client_key")
    with database(once, "status", "documents(id TEXT PRIMARY KEY, state)") as db:
        done = db.execute("SELECT 1 FROM documents WHERE state = 'SUCCESS'").fetchone()
        if done and not terminal_is_final:
            db.execute("UPDATE documents SET state = 'FAILED'")  # "output exists already"
        elif not done:
            outputs.call("write", {"document": "doc_1"}, key="doc_1").raise_for_status()
            db.execute("INSERT OR REPLACE INTO documents VALUES ('doc_1', 'SUCCESS')")
        state = db.execute("SELECT state FROM documents").fetchone()[0]
        once.claim("failed" if state == "FAILED" else "done")


def test_a_trigger_that_comes_twice_starts_two_executions() -> None:
    report = explore(lambda once: trigger(once, named=False), faults=("duplicate",), redeliver=0)
    convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="doc_1")
    assert cell(report, "duplicate", "workflows start") == "2x"


def test_a_named_execution_is_started_once() -> None:
    exactly_once(explore(lambda once: trigger(once, named=True), faults=("duplicate",)))


def test_the_stale_execution_overwrites_success() -> None:
    report = explore(lambda once: execution(once, terminal_is_final=False), soft_faults=0)
    violation = convicted(report, Verdict.FALSE_FAILURE, expected=0, actual=1, key="doc_1")
    assert str(violation.schedule) == "./."


def test_a_terminal_state_stays() -> None:
    exactly_once(explore(lambda once: execution(once, terminal_is_final=True), soft_faults=0))
