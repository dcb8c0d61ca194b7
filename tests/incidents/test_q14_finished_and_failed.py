"""Q14: heartbeats stop reaching the database, a pruner fails the claimed job, and the live worker finishes it.

Deleting a claim that is gone already raises nothing, so both outcomes commit. Report: rails/solid_queue#589.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time

import pytest

from pytest_once import Once, Verdict, explore
from tests.incidents.models import by_fault_alone, convicted, database, exactly_once

TABLES = "claims(job TEXT PRIMARY KEY, beat_s REAL); outcomes(job, outcome)"
STALE_S = 450.0
WORK_S = 600.0


def conclude(db: sqlite3.Connection, outcome: str, *, asks_whether_it_was_there: bool) -> None:
    db.execute("BEGIN")
    deleted = db.execute("DELETE FROM claims WHERE job = 'job_1'").rowcount
    if deleted or not asks_whether_it_was_there:
        db.execute("INSERT INTO outcomes VALUES ('job_1', ?)", (outcome,))
    db.execute("COMMIT")


async def worker(once: Once, db: sqlite3.Connection, checks: bool) -> None:
    def write_beat() -> None:
        db.execute("UPDATE claims SET beat_s = ?", (time.time(),))

    beat = once.tool(write_beat, name="beat", counted=False)
    for _ in range(3):
        await asyncio.sleep(WORK_S / 3)
        try:
            beat()
        except ConnectionRefusedError:
            continue  # the next one will do
    conclude(db, "finished", asks_whether_it_was_there=checks)


async def pruner(db: sqlite3.Connection, checks: bool) -> None:
    while db.execute("SELECT 1 FROM claims").fetchone():
        if db.execute("SELECT 1 FROM claims WHERE beat_s < ?", (time.time() - STALE_S,)).fetchone():
            conclude(db, "failed", asks_whether_it_was_there=checks)
        await asyncio.sleep(60)


async def queue(once: Once, *, checks: bool) -> None:
    once.count("queue.db", "SELECT job, count(*) FROM outcomes GROUP BY job", name="terminal")
    with database(once, "queue", TABLES) as db:
        if db.execute("SELECT 1 FROM outcomes").fetchone():
            return
        left_over = db.execute("INSERT OR IGNORE INTO claims VALUES ('job_1', ?)", (time.time(),)).rowcount == 0
        actors = [pruner(db, checks)] if left_over else [worker(once, db, checks), pruner(db, checks)]
        await asyncio.gather(*actors)


async def faulty(once: Once) -> None:
    await queue(once, checks=False)


async def corrected(once: Once) -> None:
    await queue(once, checks=True)


DELAYS = ("0s", "1h")


@pytest.mark.slow
def test_a_job_ends_both_ways() -> None:
    report = explore(faulty, faults=("refused",), restart_after=DELAYS)
    violation = convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="job_1")
    assert violation.schedule.crashes == 0
    assert by_fault_alone(report)[0].startswith("RF@")


@pytest.mark.slow
def test_whoever_deletes_the_claim_decides_the_outcome() -> None:
    exactly_once(explore(corrected, faults=("refused",), restart_after=DELAYS))
