"""Bookkeeping that fails while the process survives: what code makes of it, wrong and right.

Each wrong body is right as far as crashes go; what convicts it is an error that the store raises.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
import uuid
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import pytest

from pytest_once import Once, Report, Verdict, explore, replay
from pytest_once.boundaries import Boundary
from pytest_once.events import Event, Recorded
from pytest_once.faults import COMMIT_UNKNOWN, KINDS, STORE_BUSY, STORE_FAULTS, STORE_FULL, STORE_READONLY, mark_of
from tests.engine.bodies import careful, proven, put, state, tasks, told

ORDER = {"order": "order_1"}


class Failed(Exception):
    """The code is certain that nothing was paid."""


def faults_tried(report: Report) -> set[str]:
    return {what for row in report.matrix for what in row.outcomes}


def boundaries_of(body: Callable[[Once], Any]) -> list[Boundary]:
    found: list[Boundary] = []

    def listener(event: Event) -> None:
        if isinstance(event, Recorded):
            found.extend(event.boundaries)

    explore(body, soft_faults=0, limits={"max_states": 1}, listener=listener)
    return found


# A local table of payments plays the provider: its rows are the effects.


def payments(once: Once) -> sqlite3.Connection:
    file = once.path / "bank.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE IF NOT EXISTS payments(id INTEGER PRIMARY KEY, name TEXT)")
    once.count(file, "SELECT name, count(*) FROM payments GROUP BY name")
    return connection


def paid(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM payments WHERE name = 'order_1'").fetchone() is not None


def pay(connection: sqlite3.Connection) -> None:
    with connection:
        connection.execute("INSERT INTO payments(name) VALUES ('order_1')")


def acts_again_on_any_error(once: Once) -> None:
    with closing(payments(once)) as connection:
        if not paid(connection):
            try:
                pay(connection)
            except sqlite3.OperationalError:
                pay(connection)


def looks_again_on_any_error(once: Once) -> None:
    with closing(payments(once)) as connection:
        if not paid(connection):
            try:
                pay(connection)
            except sqlite3.OperationalError:
                if not paid(connection):
                    pay(connection)


def reports_a_failure_on_any_error(once: Once) -> None:
    with closing(payments(once)) as connection:
        if not paid(connection):
            try:
                pay(connection)
            except sqlite3.OperationalError as error:
                raise Failed from error


def reports_a_failure_after_looking(once: Once) -> None:
    with closing(payments(once)) as connection:
        if not paid(connection):
            try:
                pay(connection)
            except sqlite3.OperationalError as error:
                if not paid(connection):
                    raise Failed from error


# A provider that remembers keys, and a table that remembers the key.


def key_of(once: Once, db: sqlite3.Connection) -> str:
    row = db.execute("SELECT note FROM tasks WHERE id = 't'").fetchone()
    if row is None:
        put(db, "planned", note=uuid.uuid4().hex)
    return str(db.execute("SELECT note FROM tasks WHERE id = 't'").fetchone()[0])


def pays_without_its_record(once: Once) -> None:
    with tasks(once) as db:
        if state(db) == "done":
            return
        try:
            key = key_of(once, db)
        except sqlite3.OperationalError:
            key = uuid.uuid4().hex  # "only bookkeeping"
        careful(once).call("refund", ORDER, key=key)
        with suppress(sqlite3.OperationalError):
            put(db, "done", note=key)


def pays_with_its_record_only(once: Once) -> None:
    with tasks(once) as db:
        if state(db) == "done":
            return
        key = key_of(once, db)
        careful(once).call("refund", ORDER, key=key)
        put(db, "done", note=key)


def takes_a_failed_record_for_a_failed_payment(once: Once) -> None:
    with tasks(once) as db:
        key = key_of(once, db)
        for _ in range(2):
            if state(db) == "done":
                return
            careful(once).call("refund", ORDER, key=key)
            try:
                put(db, "done", note=key)
            except sqlite3.OperationalError:
                key = uuid.uuid4().hex
                put(db, "planned", note=key)


def records_again_what_could_not_be_recorded(once: Once) -> None:
    with tasks(once) as db:
        key = key_of(once, db)
        if state(db) == "done":
            return
        careful(once).call("refund", ORDER, key=key)
        try:
            put(db, "done", note=key)
        except sqlite3.OperationalError:
            put(db, "done", note=key)


# The same with a file.


def read(once: Once) -> dict[str, Any]:
    file = once.path / "job.json"
    return dict(json.loads(file.read_text())) if file.exists() else {}


def write(once: Once, job: dict[str, Any]) -> None:
    with open(once.path / "job.new", "w") as file:
        json.dump(job, file)
    os.replace(once.path / "job.new", once.path / "job.json")


def takes_a_new_key_when_the_file_is_not_written(once: Once) -> None:
    job = read(once) or {"key": uuid.uuid4().hex}
    if "done" not in job:
        with suppress(OSError):
            write(once, job)
        careful(once).call("refund", ORDER, key=job["key"])
        write(once, {**job, "done": True})


def stops_when_the_file_is_not_written(once: Once) -> None:
    job = read(once) or {"key": uuid.uuid4().hex}
    if "done" not in job:
        write(once, job)
        careful(once).call("refund", ORDER, key=job["key"])
        write(once, {**job, "done": True})


NOT_APPLIED = (STORE_BUSY, STORE_FULL, STORE_READONLY)
WRONG: list[tuple[Callable[[Once], None], str, Verdict]] = [
    (acts_again_on_any_error, COMMIT_UNKNOWN, Verdict.DUPLICATE),
    (reports_a_failure_on_any_error, COMMIT_UNKNOWN, Verdict.FALSE_FAILURE),
    *((pays_without_its_record, fault, Verdict.DUPLICATE) for fault in NOT_APPLIED),
    *((takes_a_failed_record_for_a_failed_payment, fault, Verdict.DUPLICATE) for fault in NOT_APPLIED),
    (takes_a_new_key_when_the_file_is_not_written, STORE_FULL, Verdict.DUPLICATE),
]
RIGHT = [
    looks_again_on_any_error,
    reports_a_failure_after_looking,
    pays_with_its_record_only,
    records_again_what_could_not_be_recorded,
    stops_when_the_file_is_not_written,
]


@pytest.mark.slow
@pytest.mark.parametrize(("body", "fault", "verdict"), WRONG)
def test_code_that_mistakes_a_bookkeeping_error_is_convicted(
    body: Callable[[Once], None], fault: str, verdict: Verdict
) -> None:
    """With the one fault that shows it, in one life, and confirmed."""
    assert proven(explore(body, profile="crash", definite_failure=(Failed,)))
    report = explore(body, faults=(fault,), definite_failure=(Failed,))
    assert report.verdict is verdict, told(report)
    found = next(violation for violation in report.violations if violation.verdict is verdict)
    assert found.confirmed
    assert f"{KINDS[fault].code}@" in str(found.schedule).lower()
    assert faults_tried(report) == {"crash", fault}


@pytest.mark.slow
@pytest.mark.parametrize("body", RIGHT)
def test_code_that_looks_or_stops_gets_through_every_bookkeeping_error(body: Callable[[Once], None]) -> None:
    """All four, wherever they can strike."""
    report = explore(body, faults=STORE_FAULTS, definite_failure=(Failed,))
    assert proven(report), told(report)
    assert faults_tried(report) > {"crash", COMMIT_UNKNOWN, STORE_FULL}


@pytest.mark.slow
def test_the_standard_profile_explores_no_bookkeeping_errors_and_deep_does() -> None:
    """They multiply the search, so they are for those who ask."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            put(db, "planned")
        careful(once).call("refund", ORDER, key="order_1")

    assert not faults_tried(explore(body)) & set(STORE_FAULTS)
    assert faults_tried(explore(body, profile="deep", soft_faults=1)) > set(STORE_FAULTS)


def test_a_replay_keeps_a_disk_full_for_the_rest_of_the_life(tmp_path: Any) -> None:
    """In capitals, every change that can fail does, until the restart."""

    def body(once: Once) -> None:
        seen = []
        with closing(sqlite3.connect(once.path / "tasks.db", isolation_level=None)) as db:
            for name in ("one", "two"):
                try:
                    db.execute(f"CREATE TABLE IF NOT EXISTS {name}(a)")
                except sqlite3.OperationalError as error:
                    seen.append(f"{name}: {error.sqlite_errorname}")
        careful(once).call("refund", ORDER, key="order_1")
        once.boundary(", ".join(seen) or "nothing failed")

    first = mark_of(boundaries_of(body)[0])
    targets = []
    for step in ("sf", "SF"):
        report = replay(body, f"{step}@{first}")
        assert not report.problem, report.problem
        targets.append(report.replayed[0].steps[-1].boundary.target)
    assert targets == ["one: SQLITE_FULL", "one: SQLITE_FULL, two: SQLITE_FULL"]


@pytest.mark.slow
def test_a_disk_that_stays_full_convicts_who_gives_up_on_recording() -> None:
    """Three tries to record the key survive one failure; a disk that is full for the whole life leaves no record."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            key = state(db)
            for number in range(3) if key is None else ():
                try:
                    put(db, f"key-{number}-{time.time():.0f}")
                    key = state(db)
                    break
                except sqlite3.OperationalError:
                    continue
            careful(once).call("refund", ORDER, key=key or f"unrecorded-{time.time():.0f}").raise_for_status()

    report = explore(body, faults=("store-full",), key="order_1")
    assert report.verdict is Verdict.DUPLICATE, told(report)
    assert any("SF@" in str(schedule) for schedule in (report.violations[0].schedule, *report.violations[0].variants))
