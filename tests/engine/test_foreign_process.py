"""`once.process`: a program in another process, and in any language, is explored like a body."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pytest_once import Once, Report, Verdict, explore, replay
from pytest_once.boundaries import Boundary
from pytest_once.faults import KINDS, mark_of
from pytest_once.premises import Premises, ProviderServer
from pytest_once.process import ProcessFailed
from pytest_once.scenario import ScenarioError
from tests.engine.bodies import proven, told, verdicts
from tests.engine.foreign import CAREFUL, FORGETFUL, python, running

NODE = Path(__file__).parents[2] / "examples" / "any_language"


def request_of(report: Report) -> Boundary:
    [request] = [boundary for boundary in report.boundaries if boundary.kind == "http"]
    return request


def ledger_rows(directory: Path, sql: str) -> list[Any]:
    with closing(sqlite3.connect(directory / "ledger.db")) as connection:
        return connection.execute(sql).fetchall()


# Verdicts


def test_a_program_that_forgets_its_key_is_convicted_where_it_asks() -> None:
    """Issue 4.4: killed after the effect and before the answer; the story names the request and the test's line."""
    report = explore(running(FORGETFUL), profile="crash")

    assert (report.verdict, report.coverage) == (Verdict.DUPLICATE, "exhausted")
    [violation] = report.violations
    assert violation.confirmed
    assert (violation.expected, violation.actual) == (1, 2)
    first, second = violation.story
    assert first.killed
    assert [(step.boundary.kind, step.boundary.target) for step in first.steps] == [
        ("process", "subprocess:python"),
        ("http", "pay POST /refunds"),
        ("process", "pay POST /refunds: answered"),
    ]
    assert [number for step in first.steps for _, number in step.effects] == [1]
    assert [number for step in second.steps for _, number in step.effects] == [2]
    assert {step.boundary.site.text for step in first.steps} == {
        'once.process(python(program), env={"PAY": once.provider("pay", contract=contract).url}, **options)'
    }


@pytest.mark.slow
def test_a_program_that_keeps_its_key_is_proven() -> None:
    """S4.1: also by a program that stores a random key and a time, which nobody saw it make."""
    report = explore(running(CAREFUL))
    assert proven(report), told(report)
    assert {outcome for row in report.matrix for outcome in row.outcomes.values()} == {"once"}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node: no program 'node' is installed")
@pytest.mark.parametrize(
    ("program", "verdict"), [("refund.mjs", Verdict.DUPLICATE), ("refund_fixed.mjs", Verdict.EXACTLY_ONCE)]
)
def test_a_node_program_is_judged_like_any_other(program: str, verdict: Verdict) -> None:
    """Issue 4.4: the same report, whatever the language, with the program's own files as world."""

    def body(once: Once) -> None:
        url = once.provider("payments", contract="client_key").url
        once.process(["node", NODE / program, "task.json", "order_1", "500"], env={"PAYMENTS_URL": url})

    report = explore(body, profile="crash")
    assert (report.verdict, report.coverage) == (verdict, "exhausted")
    assert all(violation.confirmed for violation in report.violations)


def test_a_status_says_what_the_end_means() -> None:
    """DESIGN 5: an answer instead of an exception. "Certainly not", after an effect, is false."""
    gives_up = "try:\n    ask(PAY, key='k')\nexcept OSError:\n    sys.exit(3)\n"
    one = {"profile": "standard", "faults": ("reset-response",)}

    report = explore(running(gives_up, definite_failure=(3,)), **one)
    assert verdicts(report) == {"FALSE_FAILURE"}
    report = explore(running(gives_up, blocked=(3,)), blocked=("unknown",), **one)
    assert report.verdict is Verdict.ESCALATED
    report = explore(running(gives_up), **one)
    assert proven(report), told(report)


# Faults: each that is offered happens, and does what it says.

REPORTING = """
try:
    said = f"status {ask(PAY, key='k', timeout=0.3)[0]}"
except OSError as error:
    said = type(error).__name__
store("said", said)
"""
WHAT_IS_SEEN = {
    "reset-response": "ConnectionResetError",
    "error-before": "status 503",
    "error-after": "status 500",
    "duplicate": "status 200",
    "late-copy": "status 200",
    "lost-request": "TimeoutError",
    "lost-response": "TimeoutError",
    "late": "TimeoutError",
    "late-twice": "TimeoutError",
}


def test_answers_are_lost_without_a_word_only_where_the_program_gives_up() -> None:
    """A fault that the program could never notice would hang it, and prove nothing."""
    known = set(request_of(replay(running(REPORTING), ".")).faults)
    assert known == {fault for fault, seen in WHAT_IS_SEEN.items() if seen != "TimeoutError"}
    known = set(request_of(replay(running(REPORTING, client_timeout_s=0.3), ".")).faults)
    assert known == set(WHAT_IS_SEEN)


@pytest.mark.parametrize("fault", WHAT_IS_SEEN)
def test_each_fault_of_a_request_happens(fault: str, tmp_path: Path) -> None:
    """Honesty: as many arrive, as many stay on their way, and the program sees what the report says."""
    kind = KINDS[fault]
    body = running(REPORTING, client_timeout_s=0.3)
    mark = mark_of(request_of(replay(body, ".")))
    report = replay(body, f"{kind.code}@{mark}", keep=tmp_path, keys={"order_1": int(kind.effect)})

    assert (tmp_path / "world" / "said").read_text() == WHAT_IS_SEEN[fault], report.problem
    assert len(ledger_rows(tmp_path, "SELECT 1 FROM arrivals")) == kind.arrivals
    assert len(ledger_rows(tmp_path, "SELECT 1 FROM in_flight")) == kind.held
    assert len(ledger_rows(tmp_path, "SELECT 1 FROM effects")) == int(kind.effect)
