"""How old a file is, and which of two is newer, decides much; both are of the virtual clock, and survive a crash."""

from __future__ import annotations

import mmap
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pytest_once import Once, Verdict, explore, replay
from tests.engine.bodies import careful, careless, proven, told

ORDER = {"order": "o1"}
HOURS = ("0s", "2h")


def age_s(path: Path) -> float:
    return time.time() - path.stat().st_mtime


def refund(once: Once) -> None:
    careful(once).call("refund", ORDER, key="o1").raise_for_status()


# Locks


def a_fresh_lock_is_somebody_elses(once: Once) -> None:
    lock = once.path / "lock"
    if lock.exists() and age_s(lock) < 3600:
        return
    lock.write_text("x")
    careful(once).call("refund", ORDER, key="o1")
    lock.unlink()


def a_fresh_directory_is_somebody_elses(once: Once) -> None:
    lock = once.path / "lock"
    if lock.exists():
        if age_s(lock) < 3600:
            return
    else:
        lock.mkdir()
    careful(once).call("refund", ORDER, key="o1")
    lock.rmdir()


@pytest.mark.slow
@pytest.mark.parametrize("body", [a_fresh_lock_is_somebody_elses, a_fresh_directory_is_somebody_elses])
@pytest.mark.parametrize("restarts", [(), HOURS])
def test_a_fresh_lock_left_by_a_crash_stops_the_next_process(body: Callable[[Once], Any], restarts: Any) -> None:
    """It returns as if the work were done by somebody."""
    report = explore(body, soft_faults=0, **({"restart_after": restarts} if restarts else {}))
    assert report.verdict is Verdict.OMISSION, told(report)
    assert report.violations[0].schedule.crashes == 1
    assert report.violations[0].confirmed


def steals_a_stale_lock(once: Once) -> None:
    lock, done = once.path / "lock", once.path / "done"
    if done.exists():
        return
    if lock.exists() and age_s(lock) < 3600:
        once.claim("in_progress")
        return
    lock.write_text("x")
    refund(once)
    done.touch()
    lock.unlink()


@pytest.mark.slow
def test_stealing_a_stale_lock_is_proven_when_restarts_come_late_too() -> None:
    """A process that finds a fresh lock says that work is going on; an hour later it takes over, with the same key."""
    report = explore(steals_a_stale_lock, soft_faults=0, restart_after=HOURS)
    assert proven(report), told(report)


def test_without_a_named_delay_the_age_of_a_file_makes_no_acquittal() -> None:
    """The search compares times by order alone; that code goes by their distance is noticed, and told."""
    report = explore(steals_a_stale_lock, soft_faults=0)
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "how much time has passed" in report.problem


@pytest.mark.slow
def test_stealing_without_the_key_is_convicted() -> None:
    """What the lock was left by has acted already."""

    def body(once: Once) -> None:
        lock = once.path / "lock"
        if lock.exists() and age_s(lock) < 3600:
            once.claim("in_progress")
            return
        lock.write_text("x")
        careless(once).call("refund", ORDER)
        lock.unlink()

    report = explore(body, soft_faults=0, restart_after=HOURS, redeliver=0)
    assert report.verdict is Verdict.DUPLICATE, told(report)


def test_a_heartbeat_by_touch_is_a_boundary_and_makes_the_lock_fresh() -> None:
    """Path.touch on a file that is there changes nothing but its time, and that decides."""

    def body(once: Once) -> None:
        lock = once.path / "lock"
        if not lock.exists():
            lock.touch()
        time.sleep(7200)
        stale = age_s(lock)
        lock.touch()
        fresh = age_s(lock)
        assert stale > 7000
        assert 0 <= fresh < 1
        refund(once)

    report = explore(body, soft_faults=0)
    assert proven(report), told(report)
    # Open, touch, call and end in the first life; one less where the lock is there.
    assert report.crash_points == 4 + 3 * (report.states - 1)


# Order


def test_which_file_is_newer_survives_a_crash() -> None:
    """The slot that was written last holds the truth, whatever its name."""

    def body(once: Once) -> None:
        first, second = once.path / "z", once.path / "a"
        for slot in (first, second):
            if not slot.exists():
                slot.touch()
        assert max(first, second, key=lambda slot: slot.stat().st_mtime_ns) == second
        refund(once)

    report = explore(body, soft_faults=0)
    assert proven(report), told(report)


def test_two_orders_are_two_states() -> None:
    """With equal contents: the code takes the order in which the files were touched for the work being done."""

    def body(once: Once) -> None:
        work, log = once.path / "work", once.path / "log"
        if work.exists() and log.exists() and work.stat().st_mtime_ns > log.stat().st_mtime_ns:
            return
        log.touch()
        work.touch()
        careful(once).call("refund", ORDER, key="o1")

    report = explore(body, soft_faults=0)
    assert report.verdict is Verdict.OMISSION, told(report)


@pytest.mark.slow
def test_rewriting_the_same_files_in_every_life_closes() -> None:
    """Times are compared by order: however many lives there have been, few orders are left."""

    def body(once: Once) -> None:
        for name in ("a", "b", "c"):
            (once.path / name).write_text("same")
        refund(once)

    report = explore(body, soft_faults=0)
    assert proven(report), told(report)


# Every way to change a file


def _mapped(path: Path) -> None:
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 1) as memory:
        memory[:1] = b"z"
        memory.flush()


def _entry(directory: Path) -> None:
    directory.mkdir()
    time.sleep(500)
    (directory / "f").touch()


CHANGES: dict[str, Callable[[Path, Path], Any]] = {
    "write_text": lambda path, other: path.write_text("new"),
    "append": lambda path, other: path.open("a").write("more"),
    "unbuffered": lambda path, other: path.open("wb", 0).write(b"new"),
    "truncate": lambda path, other: os.truncate(path, 0),
    "descriptor": lambda path, other: os.write(os.open(path, os.O_WRONLY), b"new"),
    "creat": lambda path, other: os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)),
    "touch": lambda path, other: path.touch(),
    "copyfile": lambda path, other: shutil.copyfile(other, path),
    "replace": lambda path, other: (path.with_name("tmp").write_text("new"), path.with_name("tmp").replace(path)),
    "mkdir": lambda path, other: path.with_name("d").mkdir(),
    "entry": lambda path, other: _entry(path.with_name("d")),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", CHANGES)
def test_every_change_gives_the_virtual_time_at_once(way: str) -> None:
    """No boundary need come between the change and the question."""

    def body(once: Once) -> None:
        path, other = once.path / "f", once.path / "other"
        path.write_text("old")
        other.write_text("x" * 100)
        time.sleep(500)
        CHANGES[way](path, other)
        changed = once.path / "d" if way in ("mkdir", "entry") else path
        age = age_s(changed)
        assert 0 <= age < 1, age
        refund(once)
        if changed != path:
            shutil.rmtree(changed)

    def restartable(once: Once) -> None:
        shutil.rmtree(once.path / "d", ignore_errors=True)
        body(once)

    report = replay(restartable, ".")
    assert report.passed, told(report)


def test_a_change_without_a_boundary_has_the_virtual_time_at_the_next() -> None:
    """A tool may write through whatever it likes."""

    def body(once: Once) -> None:
        path = once.path / "f"
        path.write_text("old")
        time.sleep(500)
        once.tool(_mapped, counted=False)(path)
        once.boundary("written")
        assert 0 <= age_s(path) < 1, age_s(path)
        refund(once)

    report = explore(body, soft_faults=0)
    assert report.passed, told(report)


def test_a_time_that_is_set_stays() -> None:
    """Also one of long ago, and also after a crash."""

    def body(once: Once) -> None:
        path = once.path / "f"
        if not (once.path / "set").exists():
            path.write_text("old")
            os.utime(path, (1000, 1000))
            (once.path / "set").touch()
        assert path.stat().st_mtime == 1000
        refund(once)

    report = explore(body, soft_faults=0)
    assert proven(report), told(report)


def test_databases_bring_no_times() -> None:
    """SQLite changes its files when it likes; what it stores is what counts."""

    def body(once: Once) -> None:
        with closing(sqlite3.connect(once.path / "work.db", isolation_level=None)) as db:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("CREATE TABLE IF NOT EXISTS work(id)")
            refund(once)

    report = explore(body, soft_faults=0)
    assert proven(report), told(report)


# What was there before


@pytest.mark.parametrize(("age", "expected"), [(0, 1), (7205, 7201)])
def test_a_file_from_before_is_as_old_as_it_was(age: int, expected: int, tmp_path: Path) -> None:
    """In whole hours, so that it is the same in every session; a second at the least."""
    (tmp_path / "seed").write_text("x")
    made = time.time() - age
    os.utime(tmp_path / "seed", (made, made))

    def body(once: Once) -> None:
        once.track(tmp_path)
        raise LookupError(f"{age_s(tmp_path / 'seed'):.0f} seconds old")

    assert f"LookupError: {expected} seconds old" in explore(body).problem


def test_a_fresh_seed_is_fresh_in_the_second_fault_free_run_too(tmp_path: Path) -> None:
    """Its clock is weeks ahead; going by the age of what was there is not going by the date."""
    (tmp_path / "seed").write_text("x")

    def body(once: Once) -> None:
        once.track(tmp_path)
        if age_s(tmp_path / "seed") > 86400:
            (once.path / "refresh").touch()
        refund(once)

    report = explore(body, soft_faults=0)
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "how much time has passed" in report.problem
    assert explore(body, soft_faults=0, restart_after=("0s", "30d")).passed


def test_an_ignored_time_is_no_part_of_the_state() -> None:
    """And that it decides nothing is tried."""

    def body(once: Once) -> None:
        (once.path / "log").write_text("same")
        refund(once)

    assert proven(explore(body, soft_faults=0, ignore=("log.mtime",)))
    report = explore(a_fresh_lock_is_somebody_elses, soft_faults=0, ignore=("lock.mtime",))
    assert report.verdict is not Verdict.EXACTLY_ONCE


def rewriting(once: Once, reads: bool) -> None:
    """Two files anew in every life, in an order that each crash changes."""
    for name in ("a", "b"):
        (once.path / f"{name}.tmp").write_text("x")
        os.replace(once.path / f"{name}.tmp", once.path / name)
    if reads and (once.path / "a").stat().st_mtime > time.time():
        raise AssertionError("made in the future")
    careful(once).call("refund", ORDER, key="order_1").raise_for_status()


@pytest.mark.slow
def test_times_that_nobody_reads_do_not_multiply_the_states() -> None:
    """Else whoever rewrites files would pay for an order that decides nothing."""
    unread = explore(lambda once: rewriting(once, False), name="unread", profile="crash")
    read = explore(lambda once: rewriting(once, True), name="read", profile="crash", ignore=("*.mtime",))
    assert proven(unread), told(unread)
    assert unread.states == read.states


@pytest.mark.slow
def test_times_that_only_a_recovery_reads_count_from_the_start() -> None:
    """The search begins anew once somebody has read one."""

    def body(once: Once) -> None:
        lock = once.path / "lock"
        if (once.path / "begun").exists() and lock.exists() and time.time() - lock.stat().st_mtime < 3600:
            return
        (once.path / "begun").touch()
        lock.write_text("mine")
        careful(once).call("refund", ORDER, key="order_1").raise_for_status()
        lock.unlink()

    report = explore(body, profile="crash", restart_after=("0s", "2h"))
    assert report.verdict is Verdict.OMISSION, told(report)
    assert report.violations[0].confirmed
