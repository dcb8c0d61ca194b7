"""Q09: the job has succeeded, its entry is still in the registry of started jobs, and a sweep finds it abandoned.

It is filed under failed, and whoever requeues failed jobs runs it again. Reports: rq/rq#2424, rq/rq#1507,
n8n-io/n8n#7435. The effect and the success commit together here, so that only the left-over entry can harm.
"""

from __future__ import annotations

import sqlite3
import time

import pytest

from pytest_once import Once, Verdict, explore
from tests.incidents.models import cell, convicted, database, exactly_once

TABLES = "jobs(id TEXT PRIMARY KEY, state); started(id TEXT PRIMARY KEY, until_s REAL); results(job)"
TIMEOUT_S = 180.0


def sweep(db: sqlite3.Connection, *, spares_finished: bool) -> None:
    """Abandoned jobs are failed, and failed jobs are queued again."""
    for (job,) in db.execute("SELECT id FROM started WHERE until_s < ?", (time.time(),)).fetchall():
        finished = db.execute("SELECT 1 FROM jobs WHERE id = ? AND state = 'finished'", (job,)).fetchone()
        db.execute("BEGIN")
        if not (finished and spares_finished):
            db.execute("UPDATE jobs SET state = 'queued' WHERE id = ?", (job,))
        db.execute("DELETE FROM started WHERE id = ?", (job,))
        db.execute("COMMIT")


def worker(once: Once, *, spares_finished: bool) -> None:
    once.count("rq.db", "SELECT job, count(*) FROM results GROUP BY job")
    with database(once, "rq", TABLES) as db:
        db.execute("INSERT OR IGNORE INTO jobs VALUES ('job_1', 'queued')")
        sweep(db, spares_finished=spares_finished)
        for (job,) in db.execute("SELECT id FROM jobs WHERE state = 'queued'").fetchall():
            db.execute("INSERT OR REPLACE INTO started VALUES (?, ?)", (job, time.time() + TIMEOUT_S))
            db.execute("BEGIN")
            db.execute("INSERT INTO results VALUES (?)", (job,))
            db.execute("UPDATE jobs SET state = 'finished' WHERE id = ?", (job,))
            db.execute("COMMIT")
            db.execute("DELETE FROM started WHERE id = ?", (job,))


DELAYS = ("0s", "1h")


@pytest.mark.slow
def test_a_finished_job_is_swept_and_run_again() -> None:
    report = explore(lambda once: worker(once, spares_finished=False), soft_faults=0, restart_after=DELAYS)
    violation = convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="job_1")
    assert violation.schedule.crashes == 1
    assert "w3600" in str(violation.schedule)
    assert violation.story[0].ending == "killed before rq.db DELETE FROM started"


def test_a_sweep_that_looks_at_the_outcome_first() -> None:
    report = explore(lambda once: worker(once, spares_finished=True), soft_faults=0, restart_after=DELAYS)
    exactly_once(report)
    assert cell(report, "crash", "DELETE FROM started") == "once"
