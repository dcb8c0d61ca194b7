"""That a search closes, when it may, on exactly the states there are, and that it ends in any case."""

from __future__ import annotations

import datetime
import json
import os
import random
import secrets
import sqlite3
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from pytest_once import Once, Report, Verdict, explore
from pytest_once.events import Event, Progress
from tests.engine.bodies import careful, careless, proven, put, state, tasks, told, verdicts

ORDER = {"order": "order_1"}


def crashed(body: Callable[[Once], Any], **marker: Any) -> Report:
    """Explore crashes alone."""
    return explore(body, soft_faults=0, **marker)


# Graphs small enough to count by hand


def test_one_call_has_three_states() -> None:
    """Nothing; acted; acted and completed (which is delivered once more). One crash reaches each."""

    def body(once: Once) -> None:
        careful(once).call("refund", ORDER, key="order_1")

    report = crashed(body)
    assert proven(report)
    assert (report.states, report.crash_diameter) == (3, 1)
    # Root: before the call, at the end. Acted: the same. Completed: the same.
    assert report.crash_points == 6


def test_without_redelivery_there_is_no_completed_state() -> None:
    """A state is a world and how often it was completed; without redelivery only the worlds are left."""

    def body(once: Once) -> None:
        careful(once).call("refund", ORDER, key="order_1")

    report = crashed(body, redeliver=0)
    assert proven(report)
    assert (report.states, report.crash_points) == (2, 4)
    assert crashed(body, redeliver=3).states == 5


def test_a_point_where_nothing_changes_makes_no_state() -> None:
    """Crash points are many, states few: that is why any number of crashes can be exhausted."""

    def body(once: Once) -> None:
        for number in range(5):
            once.boundary(f"point {number}")
        careful(once).call("refund", ORDER, key="order_1")

    report = crashed(body)
    assert report.states == 3
    assert report.crash_points == 3 * 7


@pytest.mark.parametrize("steps", [1, 4])
def test_steps_in_a_row_have_one_state_each(steps: int) -> None:
    """Files 1 to n appear one after the other and survive: n+1 worlds, the last of them also completed."""

    def body(once: Once) -> None:
        careful(once).call("refund", ORDER, key="order_1")
        for number in range(steps):
            if not (once.path / str(number)).exists():
                (once.path / str(number)).mkdir()

    report = crashed(body)
    assert proven(report)
    assert (report.states, report.crash_diameter) == (steps + 3, 1)


def test_a_state_that_only_the_second_crash_reaches_makes_the_diameter_two() -> None:
    """The recovery writes a note of its own; a crash after it is the second one."""

    def body(once: Once) -> None:
        if (once.path / "done").exists():
            return
        found = (once.path / "begun").exists()
        if found and not (once.path / "recovering").exists():
            (once.path / "recovering").mkdir()
        if not found:
            (once.path / "begun").mkdir()
        careful(once).call("refund", ORDER, key="order_1")
        (once.path / "done").mkdir()

    report = crashed(body)
    assert proven(report), told(report)
    # nothing, begun, acted and done; the last two again with the recovery's note, and its note alone; twice completed.
    assert (report.states, report.crash_diameter) == (9, 2)


# Any number of crashes


@pytest.mark.parametrize("needed", [1, 3])
def test_a_bug_that_needs_so_many_crashes_is_convicted_with_just_so_many(needed: int) -> None:
    """There is no depth at which the search stops looking, and the story told is the shortest."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            found = state(db)
            if found == "done":
                return
            crashes = 0 if found is None else int(found) + 1
            put(db, str(min(crashes, needed)))
            # Each recovery is one step more confused; the last one has forgotten the key.
            careful(once).call("refund", ORDER, key="order_1" if crashes < needed else "forgotten")
            put(db, "done")

    report = crashed(body)
    assert report.verdict is Verdict.DUPLICATE
    assert report.violations[0].schedule.crashes == needed
    assert report.violations[0].confirmed
    assert report.coverage == "exhausted"


def test_a_bug_that_needs_one_crash_more_than_the_code_allows_is_acquitted() -> None:
    """The corrected twin: after three attempts the code stops, before the confusion begins."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            found = state(db)
            if found == "done":
                return
            crashes = 0 if found is None else int(found) + 1
            if crashes > 3:
                once.claim("unknown")
                return
            put(db, str(crashes))
            careful(once).call("refund", ORDER, key="order_1" if crashes < 4 else "forgotten")
            put(db, "done")

    report = crashed(body, blocked=("unknown",))
    assert report.passed
    assert (report.verdict, report.coverage) == (Verdict.ESCALATED, "exhausted")


# Volatile values


def agent(once: Once, make: Callable[[], object], schema: str = "id TEXT PRIMARY KEY, done") -> None:
    """A task under a volatile id, found again by its position, with a volatile value written in every life."""
    with closing(sqlite3.connect(once.path / "agent.db", isolation_level=None)) as db:
        db.execute(f"CREATE TABLE IF NOT EXISTS agent({schema})")
        if db.execute("SELECT count(*) FROM agent").fetchone()[0] == 0:
            db.execute("INSERT INTO agent(id, done) VALUES (?, 0)", (make(),))
        key, done = db.execute("SELECT id, done FROM agent").fetchone()
        if not done:
            careful(once).call("refund", ORDER, key=str(key))
            db.execute("UPDATE agent SET done = 1")


MADE: dict[str, Callable[[], object]] = {
    "uuid4": lambda: str(uuid.uuid4()),
    "bytes": lambda: uuid.uuid4().bytes,
    "prefixed": lambda: f"refund-{uuid.uuid4()}-v1",
    "token_urlsafe": lambda: secrets.token_urlsafe(),
    "random": random.random,
    "integer": lambda: random.getrandbits(62),
    "time": time.time,
    "isoformat": lambda: datetime.datetime.now().isoformat(),
    "strftime": lambda: time.strftime("%Y%m%d%H%M%S"),
    "ulid": lambda: f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}",
    "pid": lambda: f"worker-{os.getpid()}",
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE.keys())
def test_volatile_primary_keys_close(make: Callable[[], object]) -> None:
    """Every life makes other ones; if that were another state each time, no search of real code would end."""
    report = crashed(lambda once: agent(once, make), max_states=40)
    assert proven(report), told(report)
    assert report.states == 7  # nothing, empty file, table, row, acted, done, completed


def test_defaults_made_by_sqlite_itself_close() -> None:
    """CURRENT_TIMESTAMP follows the virtual clock; randomblob() is really random."""
    schema = "id, done, at TEXT DEFAULT CURRENT_TIMESTAMP, token TEXT DEFAULT (lower(hex(randomblob(16))))"
    report = crashed(lambda once: agent(once, lambda: 7, schema), max_states=40)
    assert proven(report), told(report)
    assert report.states == 7


def test_timestamps_written_by_every_restart_close() -> None:
    """started_at, updated_at, heartbeat: only their order can decide anything, and there are few orders."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            if state(db) != "done":
                put(db, "running", note=time.time())
                careful(once).call("refund", ORDER, key="order_1")
                put(db, "done", note=datetime.datetime.now().isoformat())

    report = crashed(body, max_states=60)
    assert proven(report), told(report)


def test_ids_of_attempts_that_are_overwritten_close() -> None:
    """The newest attempt's id replaces the last one's: a new name for the same state."""

    def body(once: Once) -> None:
        (once.path / "attempt.json").write_text(
            json.dumps({"attempt": str(uuid.uuid4()), "at": time.time(), "host": "h"}, indent=1)
        )
        careful(once).call("refund", ORDER, key="order_1")

    report = crashed(body, max_states=60)
    assert proven(report), told(report)


def test_back_off_that_sleeps_closes_without_waiting() -> None:
    """Sleeps pass in virtual time; the length of an outage makes no state."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            if state(db) == "done":
                return
            put(db, "sending", note=time.time())
            for attempt in range(4):
                try:
                    careful(once).call("refund", ORDER, key="order_1")
                    break
                except OSError:
                    time.sleep(60 * 2**attempt * random.uniform(0.5, 1.5))
            else:
                raise TimeoutError
            put(db, "done", note=time.time())

    began = time.monotonic()
    report = explore(body, faults=("refused", "lost-response"))
    assert proven(report), told(report)
    assert time.monotonic() - began < 60


def compares(once: Once, second: Callable[[str], str]) -> None:
    """Two random values are stored one after the other; what is done depends on whether they are equal."""
    with tasks(once) as db:
        if state(db, "a") is None:
            first = uuid.uuid4().hex
            put(db, first, "a")
        else:
            first = str(state(db, "a"))
        if state(db, "b") is None:
            put(db, second(first), "b")
        key = "equal" if state(db, "a") == state(db, "b") else "different"
        careful(once).call("refund", ORDER, key=key)


def test_equal_and_different_random_values_are_not_taken_for_one_state() -> None:
    """Renaming must keep equality: (a, a) and (a, b) look alike, and this code decides by the difference."""
    assert proven(crashed(lambda once: compares(once, lambda first: first)))
    assert proven(crashed(lambda once: compares(once, lambda first: uuid.uuid4().hex)))

    def confused(once: Once) -> None:
        # The first life stores equal values; one that starts anew after a crash between them does not.
        fresh = not (once.path / "tasks.db").exists()
        compares(once, lambda first: first if fresh else uuid.uuid4().hex)
        with tasks(once) as db:
            put(db, uuid.uuid4().hex, "b")  # and the next restart finds them different

    report = crashed(confused)
    assert report.verdict is Verdict.DUPLICATE
    assert report.violations[0].confirmed


def test_what_decides_is_kept_apart_even_beside_a_random_value() -> None:
    """One JSON cell often holds a jitter and an attempt counter; this code fails at the third crash."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            row = db.execute("SELECT note FROM tasks").fetchone()
            found = json.loads(row[0]) if row else {"attempt": -1}
            if found.get("done"):
                return
            found["attempt"] = min(found["attempt"] + 1, 3)
            found["jitter"] = random.random()
            put(db, "sending", note=json.dumps(found))
            careful(once).call("refund", ORDER, key="order_1" if found["attempt"] < 3 else "forgotten")
            put(db, "done", note=json.dumps({**found, "done": True}))

    assert crashed(body).verdict is Verdict.DUPLICATE


def test_the_order_of_instants_is_kept() -> None:
    """An expiry that lies ahead and one that has passed are different states, whatever their numbers."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            row = db.execute("SELECT note FROM tasks").fetchone()
            if row is None:
                put(db, "waiting", note=time.time() + 3600)
                row = db.execute("SELECT note FROM tasks").fetchone()
            expired = float(row[0]) <= time.time()
            careful(once).call("refund", ORDER, key="late" if expired else "early")

    assert "depends on how much time has passed" in crashed(body).problem
    report = crashed(body, restart_after=("0s", "2h"))
    assert report.verdict is Verdict.DUPLICATE
    assert "w7200" in str(report.violations[0].schedule)


# What never closes ends all the same


def test_a_loop_without_progress_is_stuck() -> None:
    """The restart waits for something that nobody will do; it is stopped by counting, not by a time-out."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            while state(db) == "claimed":
                once.boundary("wait")
                time.sleep(1)
            put(db, "claimed")
            careful(once).call("refund", ORDER, key="order_1")
            put(db, "done")

    report = crashed(body, limits={"max_boundaries": 40})
    assert report.verdict is Verdict.STUCK
    assert verdicts(report) == {"STUCK"}
    assert report.violations[0].confirmed


def test_a_loop_that_makes_ever_new_states_is_inconclusive() -> None:
    """Whether it would end some day is not known; it is stopped, and nothing passes."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            number = 0
            while state(db, "first") is not None:
                number += 1
                put(db, "more", f"row {number}")
            put(db, "begun", "first")
            careful(once).call("refund", ORDER, key="order_1")
            db.execute("DELETE FROM tasks")

    report = crashed(body, limits={"max_boundaries": 30, "max_states": 10})
    assert report.verdict is Verdict.INCONCLUSIVE
    assert not report.passed
    assert "still making new states" in told(report)


def test_a_loop_in_the_fault_free_run_is_inconclusive() -> None:
    """A body that never ends has no effects that could be called intended."""

    def body(once: Once) -> None:
        careful(once).call("refund", ORDER, key="order_1")
        while True:
            once.boundary("again")

    report = crashed(body, limits={"max_boundaries": 30})
    assert (report.verdict, report.passed) == (Verdict.INCONCLUSIVE, False)
    assert "30 boundaries" in report.problem


def test_a_violation_before_a_limit_is_still_reported() -> None:
    """What was found is true, however much was not looked at."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            put(db, "attempt", str(db.execute("SELECT count(*) FROM tasks").fetchone()[0]))
            careless(once).call("refund", ORDER)

    report = crashed(body, max_states=10)
    assert (report.verdict, report.coverage) == (Verdict.DUPLICATE, "bounded")
    assert report.violations[0].confirmed


def test_the_search_tells_how_far_it_is() -> None:
    """Somebody who waits wants to see that states are found and that fewer wait."""
    seen: list[Progress] = []

    def listener(event: Event) -> None:
        if isinstance(event, Progress):
            seen.append(event)

    report = explore(lambda once: agent(once, lambda: 7), soft_faults=0, listener=listener)
    assert seen[-1].waiting == 0
    assert (seen[-1].states, seen[-1].crash_points) == (report.states, report.crash_points)
    assert [progress.runs for progress in seen] == sorted(progress.runs for progress in seen)


@pytest.mark.slow
def test_what_grows_with_every_attempt_is_named_as_a_whole() -> None:
    """A log or a table of attempts: naming each of its columns would hide that it is the rows that increase."""

    def logs(once: Once) -> None:
        with (once.path / "agent.log").open("a") as log:
            log.write("starting\n")
        careful(once).call("refund", ORDER, key="order_1")

    def audits(once: Once) -> None:
        with tasks(once) as db:
            db.execute("INSERT INTO tasks VALUES ((SELECT count(*) FROM tasks), 'attempt', NULL)")
            careful(once).call("refund", ORDER, key="order_1")

    for body, named, pattern in (
        (logs, "once.path/agent.log", "*.log"),
        (audits, "once.path/tasks.db/tasks", "tasks.db/tasks"),
    ):
        report = crashed(body, max_states=20)
        assert (report.verdict, report.coverage) == (Verdict.INCONCLUSIVE, "bounded")
        assert f"from state to state: {named} (" in report.bound
        assert proven(crashed(body, ignore=[pattern]))
