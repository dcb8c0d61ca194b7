"""A process may die when it begins to wait, not only when it has waited: less time has passed then."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from pytest_once import Once, Verdict, explore, replay
from pytest_once.reporting import terminal
from tests.engine.bodies import careful, proven, told


def starts_again_after_five_seconds(once: Once, wait: Callable[[], Any]) -> None:
    """Takes a pod for dead that is older than its own wait."""
    once.count(once.path / "pods.db", "SELECT 'pod', count(*) FROM pods")
    with closing(sqlite3.connect(once.path / "pods.db", isolation_level=None)) as db:
        db.execute("CREATE TABLE IF NOT EXISTS pods(made REAL)")
        if db.execute("SELECT 1 FROM pods WHERE made < ?", (time.time() - 5,)).fetchone() is None:
            db.execute("INSERT INTO pods VALUES (?)", (time.time(),))
            wait()


@pytest.mark.parametrize(
    "wait", [lambda: time.sleep(10), lambda: asyncio.run(asyncio.sleep(10))], ids=["time.sleep", "asyncio.sleep"]
)
def test_death_at_the_beginning_of_a_wait_is_a_crash_point(wait: Callable[[], Any]) -> None:
    """Incident Q24: whoever dies at its end restarts when the pod is old enough to be seen."""

    def body(once: Once) -> None:
        starts_again_after_five_seconds(once, wait)

    report = explore(body, profile="crash", redeliver=0, restart_after=("0s", "1h"))
    assert report.verdict is Verdict.DUPLICATE, told(report)
    violation = report.violations[0]
    assert violation.confirmed
    assert str(violation.schedule).startswith("z@")
    assert "while it waits" in " ".join(terminal.render(report).split())
    again = replay(body, str(violation.schedule), redeliver=0, restart_after=("0s", "1h"))
    assert again.verdict is Verdict.DUPLICATE


def test_waiting_changes_nothing_where_no_time_is_stored() -> None:
    """No state more than without the wait."""

    def body(once: Once) -> None:
        for _ in range(3):
            time.sleep(60)
            try:
                careful(once).call("refund", {"order": "order_1"}, key="order_1").raise_for_status()
            except OSError:
                continue
            return
        raise RuntimeError("no answer")

    report = explore(body)
    assert proven(report) and report.states <= 3


# A number among random ones that is none


@pytest.mark.parametrize(
    ("free", "taken"),
    [
        (0, lambda: os.getpid()),
        (-1, lambda: random.getrandbits(62)),
        (0.0, lambda: random.random()),
        (-7, lambda: random.randrange(1, 10**6)),
        (0, lambda: int(time.time() + 1e9)),
    ],
    ids=["pid", "bits", "float", "another sentinel", "beyond the calendar"],
)
def test_a_number_that_means_nobody_is_not_taken_for_a_random_one(free: float, taken: Callable[[], float]) -> None:
    """Incident Q03: an owner that is never released looks like no owner if both are only "a number"."""

    def body(once: Once) -> None:
        with closing(sqlite3.connect(once.path / "t.db", isolation_level=None)) as db:
            db.execute("CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, owner)")
            db.execute("INSERT OR IGNORE INTO t VALUES (1, ?)", (free,))
            if db.execute("SELECT owner FROM t").fetchone()[0] != free:
                return
            db.execute("UPDATE t SET owner = ?", (taken(),))
            careful(once).call("refund", {"order": "order_1"}, key="order_1").raise_for_status()

    assert explore(body, profile="crash").verdict is Verdict.OMISSION


@pytest.mark.slow
def test_random_numbers_are_still_taken_for_each_other() -> None:
    """Else no search with a random number in a column would ever close."""

    def body(once: Once) -> None:
        with closing(sqlite3.connect(once.path / "t.db", isolation_level=None)) as db:
            db.execute("CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, token, weight REAL)")
            if db.execute("SELECT 1 FROM t").fetchone() is None:
                db.execute("INSERT INTO t VALUES (1, ?, ?)", (random.getrandbits(62), random.random()))
            careful(once).call("refund", {"order": "order_1"}, key="order_1").raise_for_status()

    assert proven(explore(body))
