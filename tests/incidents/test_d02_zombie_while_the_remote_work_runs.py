"""D02: the heartbeat to the metadata store stalls, the attempt is taken for dead, and its work on another host goes on.

The next attempt starts that work again. Reports: apache/airflow#13747, apache/airflow#7925.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time

import pytest

from pytest_once import Once, Verdict, explore
from tests.incidents.models import by_fault_alone, convicted, database, exactly_once

STALE_S = 450.0
REMOTE_S = 600.0


async def attempt(once: Once, db: sqlite3.Connection, *, keyed: bool) -> None:
    """Starts the work on the remote host and beats while it runs."""
    remote = once.provider("cluster", contract="client_key")

    def write_beat() -> None:
        db.execute("UPDATE task SET beat_s = ?", (time.time(),))

    beat = once.tool(write_beat, name="beat", counted=False)
    remote.call("run", {"task": "task_1"}, key="task_1" if keyed else None)
    for _ in range(3):
        await asyncio.sleep(REMOTE_S / 3)
        try:
            beat()
        except ConnectionRefusedError:
            continue
    db.execute("UPDATE task SET done = 1")


async def scheduler(once: Once, *, keyed: bool) -> None:
    with database(once, "metadata", "task(id, beat_s REAL, done)") as db:
        if db.execute("SELECT 1 FROM task").fetchone() is None:
            db.execute("INSERT INTO task VALUES ('task_1', ?, 0)", (time.time(),))
        if db.execute("SELECT done FROM task").fetchone()[0]:
            return
        attempts = [asyncio.create_task(attempt(once, db, keyed=keyed))]
        while not all(running.done() for running in attempts):
            await asyncio.sleep(60)
            stale = db.execute("SELECT 1 FROM task WHERE NOT done AND beat_s < ?", (time.time() - STALE_S,)).fetchone()
            if stale and len(attempts) < 2:
                attempts.append(asyncio.create_task(attempt(once, db, keyed=keyed)))
        await asyncio.gather(*attempts)


async def faulty(once: Once) -> None:
    await scheduler(once, keyed=False)


async def corrected(once: Once) -> None:
    await scheduler(once, keyed=True)


def test_a_silent_attempt_is_alive_and_started_again() -> None:
    report = explore(faulty, faults=("refused",), redeliver=0, max_states=40)
    convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="task_1")
    assert any(schedule.startswith("RF@") for schedule in by_fault_alone(report))


@pytest.mark.slow
def test_remote_work_that_knows_its_task_is_met_again() -> None:
    exactly_once(explore(corrected, faults=("refused",), redeliver=0, restart_after=("0s", "1h")))
