"""The refund agents under the explorer: each is judged, and for the reason its docstring names."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest

from examples.refund_agent import agent_broken, agent_corrected, agent_recovery_key
from pytest_once import Once, Report, Verdict, explore, replay
from pytest_once.faults import mark_of


def refunding(agent: ModuleType) -> Callable[[Once], None]:
    def body(once: Once) -> None:
        payments = once.provider("payments", contract="client_key")
        agent.RefundAgent(db=once.path / "agent.db", base_url=payments.url).refund(order="order_123", amount=500)

    return body


def outcomes(report: Report) -> set[str]:
    """Of every single fault in the fault-free run, crashes included."""
    return {outcome for row in report.matrix for outcome in row.outcomes.values()}


@pytest.mark.parametrize(("agent", "keys", "refunds"), [(agent_broken, 2, 2), (agent_corrected, 1, 1)])
def test_after_a_lost_response_only_a_new_key_pays_again(
    agent: ModuleType, keys: int, refunds: int, tmp_path: Path
) -> None:
    """S3.2: both agents send twice; the broken one under another key each time."""
    [call] = [boundary for boundary in replay(refunding(agent), ".").boundaries if boundary.kind == "http"]
    report = replay(refunding(agent), f"lr@{mark_of(call)}", keep=tmp_path)
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as conn:
        arrivals = conn.execute("SELECT COUNT(*), COUNT(DISTINCT key) FROM arrivals").fetchone()
        effects = conn.execute("SELECT COUNT(*) FROM effects").fetchone()
    assert (arrivals, effects) == ((2, keys), (refunds,))
    assert report.verdict is (Verdict.DUPLICATE if refunds == 2 else Verdict.EXACTLY_ONCE)


def test_a_key_for_every_attempt_is_convicted_for_the_call_it_repeats() -> None:
    """S3.2: by a lost response and by a crash before the answer was stored, and by nothing that comes earlier."""
    report = explore(refunding(agent_broken), faults=("lost-request", "lost-response"))
    assert report.verdict is Verdict.DUPLICATE
    [violation] = report.violations
    assert violation.confirmed
    assert (violation.expected, violation.actual) == (1, 2)
    number = next(i for i, row in enumerate(report.matrix) if row.boundary and row.boundary.kind == "http")
    assert report.matrix[number].outcomes == {"crash": "once", "lost-request": "once", "lost-response": "2x"}
    assert [row.outcomes["crash"] for row in report.matrix[number + 1 :]] == ["2x", "once"]


def test_a_key_stored_with_the_task_is_exhausted() -> None:
    """S4.1: the corrected twin, under the same faults."""
    report = explore(refunding(agent_corrected), faults=("lost-request", "lost-response"))
    assert report.passed
    assert (report.verdict, report.coverage, outcomes(report)) == (Verdict.EXACTLY_ONCE, "exhausted", {"once"})


@pytest.mark.parametrize("profile", ["crash", pytest.param("standard", marks=pytest.mark.slow)])
def test_only_a_crash_of_the_recovery_convicts_the_recovery_key(profile: str) -> None:
    """S3.1: every single crash or fault ends in one effect, so a list of single faults would pass this agent."""
    report = explore(refunding(agent_recovery_key), profile=profile)
    assert outcomes(report) == {"once"}
    assert report.verdict is Verdict.DUPLICATE
    [violation] = report.violations
    assert violation.confirmed
    for schedule in (violation.schedule, *violation.variants):
        assert [life.crash is not None for life in schedule.lives[:-1]] == [True, True]

    first, recovery, last = violation.story
    assert [life.killed for life in (first, recovery)] == [True, True]
    numbers = [[n for step in life.steps for _, n in step.effects] for life in (first, recovery, last)]
    assert numbers == [[], [1], [2]]


def test_a_third_life_is_the_shortest_way_to_the_second_refund() -> None:
    """S3.1: the two crashes by themselves do no harm; the restart after them does."""
    report = explore(refunding(agent_recovery_key), profile="crash")
    [violation] = report.violations
    assert len(violation.schedule.lives) == 3
    harmless = "/".join(str(life) for life in violation.schedule.lives[:2])
    assert not replay(refunding(agent_recovery_key), harmless).violations
    assert replay(refunding(agent_recovery_key), f"{harmless}/.").verdict is Verdict.DUPLICATE
