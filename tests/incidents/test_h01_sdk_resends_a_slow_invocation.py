"""H01: the function runs longer than the read time-out, and the SDK silently invokes it again and again.

Reports: boto/boto3#1104, boto/boto3#1141 (eight runs for one call).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pytest_once import Once, Verdict, explore
from tests.incidents.models import arrivals, asks_once, by_fault_alone, cell, convicted, escalated


def sdk_invoke(send: Callable[[], object], max_attempts: int) -> None:
    """The time-out of the SDK is shorter than the function's work."""
    for attempt in range(1, max_attempts + 1):
        try:
            send()
            return
        except TimeoutError:
            if attempt == max_attempts:
                raise


def program(once: Once, max_attempts: int) -> None:
    functions = once.provider("lambda")
    asks_once(once, lambda: sdk_invoke(lambda: functions.call("invoke", {"report": "r1"}), max_attempts))


def test_the_program_calls_once_and_the_function_runs_many_times(tmp_path: Path) -> None:
    report = explore(lambda once: program(once, 5), blocked=("unknown",), faults=("lost-response",))
    convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="report=r1")
    assert cell(report, "lost-response", "lambda invoke") == "2x"
    slow_each_time = by_fault_alone(report)[0].replace("lr@", "LR@")
    runs = arrivals(lambda once: program(once, 5), slow_each_time, tmp_path, blocked=("unknown",))
    assert len(runs) == 5
    assert {run.incarnation for run in runs} == {1}


def test_without_retries_below_it_the_program_knows_that_it_does_not_know() -> None:
    escalated(explore(lambda once: program(once, 1), blocked=("unknown",), faults=("lost-response",)))
