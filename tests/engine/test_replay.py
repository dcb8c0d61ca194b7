"""Schedules: what an id says, that it repeats exactly what was found, and what happens when it does not fit."""

from __future__ import annotations

import importlib.util
import linecache
import re
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_once import Once, Verdict, explore, replay
from pytest_once.faults import END, KINDS, LifePlan, PlannedFault, Schedule, ScheduleError
from pytest_once.ledger import Ledger
from tests.engine.bodies import NoAnswer, careful, put, state, tasks, told

marks = st.text("0123456789abcdef", min_size=6, max_size=6)
planned = st.builds(PlannedFault, st.sampled_from(sorted(KINDS)), marks, st.booleans())
waits = st.sampled_from([0.0, 0.25, 1.0, 60.0, 3600.0, 86400.0, 1e6, 123456789.0])
lives = st.builds(LifePlan, st.lists(planned, max_size=3).map(tuple), st.none() | marks | st.just(END), waits)
schedules = st.builds(Schedule, st.lists(lives, min_size=1, max_size=5).map(tuple))


@given(schedules)
def test_an_id_read_back_is_the_same_schedule(schedule: Schedule) -> None:
    """It is copied from a report into a command line, possibly weeks later."""
    assert Schedule.parse(str(schedule)) == schedule
    assert Schedule.parse(f"  {schedule}\n") == schedule


@given(schedules)
def test_an_id_needs_no_quoting_in_a_shell(schedule: Schedule) -> None:
    """Nothing in it is special to a shell or to pytest's option parser."""
    assert re.fullmatch(r"[A-Za-z0-9@+./]+", str(schedule))


@given(schedules)
def test_crashes_and_soft_faults_are_counted(schedule: Schedule) -> None:
    """The numbers by which the shortest story is chosen."""
    text = str(schedule)
    assert schedule.crashes == text.count("x@")
    assert schedule.crashes + schedule.soft_faults == text.count("@")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "x",
        "x@",
        "x@12345",
        "x@1234567",
        "x@XYZXYZ",
        "zz@123456",
        "Lr@123456",
        "x@123456+lr@123456",
        "x@123456+x@123456",
        "lr@123456//x@end",
        "/",
        "w",
        "w-1",
        "lr@123456+",
        "lr 123456",
        "..",
        "X@123456",
    ],
)
def test_what_is_no_id_is_refused_with_the_offending_part(text: str) -> None:
    """A mangled id must never be taken for a shorter schedule, which might pass."""
    with pytest.raises(ScheduleError) as refused:
        Schedule.parse(text)
    message = str(refused.value)
    assert "CODE@MARK" in message or "empty" in message
    with pytest.raises(ValueError, match=re.escape(message)):
        replay(lambda once: None, text)


# Reports and replays


def double_fault(once: Once) -> None:
    """A new key in the recovery, stored after it was used."""
    with tasks(once) as db:
        row = db.execute("SELECT state, note FROM tasks").fetchone()
        if row is None:
            put(db, "planned")
            key = uuid.uuid4().hex
            put(db, "sending", note=key)
        elif row[0] == "planned":
            key = uuid.uuid4().hex
        elif row[0] == "sending":
            key = row[1]
        else:
            return
        careful(once).call("refund", {"order": "order_1"}, key=key)
        put(db, "done", note=key)


def marks_first(once: Once) -> None:
    with tasks(once) as db:
        if state(db) is None:
            put(db, "done")
            careful(once).call("refund", {"order": "order_1"}, key="order_1")


def claims(once: Once) -> None:
    with tasks(once) as db:
        if state(db) == "claimed":
            raise RuntimeError("another worker has it")
        if state(db) is None:
            put(db, "claimed")
            careful(once).call("refund", {"order": "order_1"}, key="order_1")
            put(db, "done")


def lies(once: Once) -> None:
    try:
        careful(once).call("refund", {"order": "order_1"}, key="order_1")
    except TimeoutError:
        raise NoAnswer from None


FOUND: list[tuple[Callable[[Once], None], dict[str, Any], Verdict]] = [
    (double_fault, {"soft_faults": 0}, Verdict.DUPLICATE),
    (marks_first, {"soft_faults": 0}, Verdict.OMISSION),
    (claims, {"soft_faults": 0, "restart_after": ("1m",)}, Verdict.STUCK),
    (lies, {"definite_failure": (NoAnswer,), "faults": ("lost-response",)}, Verdict.FALSE_FAILURE),
]


@pytest.mark.parametrize(("body", "marker", "verdict"), FOUND, ids=[str(verdict) for *_, verdict in FOUND])
def test_the_id_in_a_report_replays_the_same_story_and_verdict(
    body: Callable[[Once], None], marker: dict[str, Any], verdict: Verdict, tmp_path: Path
) -> None:
    """The promise printed under every finding, for its variants too."""
    report = explore(body, **marker)
    assert report.verdict is verdict, told(report)
    violation = report.violations[0]
    again = replay(body, str(violation.schedule), keep=tmp_path, **marker)
    assert (again.verdict, again.coverage, again.passed) == (verdict, "replay", False)
    assert again.replayed == violation.story
    assert (again.violations[0].key, again.violations[0].actual) == (violation.key, violation.actual)
    for variant in violation.variants[:2]:
        assert replay(body, str(variant), **marker).verdict is verdict
    assert (tmp_path / "ledger.db").exists()


def test_a_replay_leaves_the_world_to_look_at(tmp_path: Path) -> None:
    """A person wants to open the database that the crash left."""
    schedule = str(explore(double_fault, soft_faults=0).violations[0].schedule)
    replay(double_fault, schedule, keep=tmp_path)
    assert len(Ledger(tmp_path / "ledger.db").effects()) == 2
    assert (tmp_path / "tasks.db").read_bytes().startswith(b"SQLite format 3")


def test_a_replay_of_corrected_code_that_still_fits_passes() -> None:
    """How one sees that a correction helps: the same faults, another outcome."""

    def body(once: Once, fixed: bool) -> None:
        careful(once).call("refund", {"order": "order_1"}, key="order_1" if fixed else str(uuid.uuid4()))

    schedule = str(explore(lambda once: body(once, False), soft_faults=0).violations[0].schedule)
    again = replay(lambda once: body(once, True), schedule)
    assert again.passed
    assert (again.verdict, again.coverage) == (Verdict.EXACTLY_ONCE, "replay")


# Edits between finding and replaying

MODULE = """
import uuid


def refund(once):
    receipt = once.path / "receipt"
    if receipt.exists():
        return
    key = uuid.uuid4().hex
    once.provider("pay", contract="client_key").call("refund", {"order": "order_1"}, key=key)
    receipt.touch()
"""


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Write a version of the module under test and import it anew."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file = tmp_path / "agent_under_test.py"

    def write_and_import(text: str) -> ModuleType:
        file.write_text(text)
        linecache.clearcache()  # in life, the edit and the replay happen in different processes
        spec = importlib.util.spec_from_file_location("agent_under_test", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return write_and_import


def found_in(module: ModuleType) -> str:
    report = explore(module.refund, soft_faults=0)
    assert report.verdict is Verdict.DUPLICATE
    schedule = str(report.violations[0].schedule)
    assert re.fullmatch(r"x@[0-9a-f]{6}/\.", schedule)
    return schedule


UNRELATED = [
    MODULE.replace("import uuid\n", "import uuid\n\n# A comment.\nLIMIT = 3\n\n\ndef other():\n    return LIMIT\n"),
    MODULE.replace("    key =", "    # Which key?\n    unused = 1\n    del unused\n    key ="),
    MODULE.replace("    receipt.touch", "    print('refunded')\n    receipt.touch"),
    MODULE.replace("    key =", '    once.boundary("begin")\n    key ='),
]


@pytest.mark.parametrize("edited", UNRELATED, ids=["above", "inside", "printed", "a boundary more"])
def test_an_id_still_fits_after_unrelated_edits(load: Callable[[str], ModuleType], edited: str) -> None:
    """Lines move all the time; an id that broke with them would be worth nothing."""
    schedule = found_in(load(MODULE))
    again = replay(load(edited).refund, schedule)
    assert again.verdict is Verdict.DUPLICATE, again.problem
    assert again.replayed[0].killed


RELATED = [
    MODULE.replace("    receipt.touch()", "    receipt.write_text(key)"),
    MODULE.replace("    receipt.touch()\n", ""),
    MODULE.replace("def refund(once)", "def pay_back(once)") + "\n\nrefund = pay_back\n",
]


@pytest.mark.parametrize("edited", RELATED, ids=["rewritten", "removed", "in another function"])
def test_an_id_that_no_longer_fits_says_so_and_is_no_pass(load: Callable[[str], ModuleType], edited: str) -> None:
    """What was planned did not happen, so nothing is known; above all not that it is fixed."""
    schedule = found_in(load(MODULE))
    again = replay(load(edited).refund, schedule)
    assert (again.verdict, again.passed) == (Verdict.INCONCLUSIVE, False)
    assert schedule in again.problem
    assert "does not fit this code any more" in again.problem
    assert "agent_under_test.py" in again.problem


def test_an_id_of_another_test_says_what_was_passed_instead() -> None:
    """The list of boundaries with their marks is what one needs to see why."""
    report = replay(marks_first, "x@012345/.")
    assert not report.passed
    assert "012345" in report.problem
    assert "tasks.db INSERT INTO tasks" in report.problem
    assert "bodies.py" in report.problem


def test_a_crash_after_the_end_does_not_fit_a_life_that_never_ends() -> None:
    """x@end means that the life came to its end; one that loops does not."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            while state(db) == "sent":
                once.boundary("wait")
            careful(once).call("refund", {"order": "order_1"}, key="order_1")
            put(db, "sent")

    report = replay(body, "x@end/x@end", limits={"max_boundaries": 20})
    assert not report.passed
    assert "never reached boundary end" in report.problem
