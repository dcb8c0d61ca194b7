"""Time kept in SQL: a search over it closes, and two runs of one schedule agree."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing

import pytest

from pytest_once import Once, explore
from tests.engine.bodies import careful, proven, told

SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs(
    id TEXT PRIMARY KEY, made TEXT DEFAULT CURRENT_TIMESTAMP, until TEXT, done TEXT
)
"""


@pytest.mark.slow
def test_a_worker_with_leases_and_timestamps_in_sql_is_explored_to_the_end() -> None:
    """What a restarted worker finds is a lease that has not run out; it waits for it, on the virtual clock."""

    def body(once: Once) -> None:
        with closing(sqlite3.connect(once.path / "jobs.db", isolation_level=None)) as db:
            db.execute(SCHEMA)
            db.execute("INSERT OR IGNORE INTO jobs(id) VALUES ('job_1')")
            while db.execute("SELECT done FROM jobs").fetchone() == (None,):
                claimed = db.execute(
                    "UPDATE jobs SET until = datetime('now', '+60 seconds') "
                    "WHERE done IS NULL AND (until IS NULL OR until <= datetime('now'))"
                )
                if claimed.rowcount == 0:
                    time.sleep(5)
                    continue
                careful(once).call("refund", {"order": "order_1"}, key="job_1")
                db.execute("UPDATE jobs SET done = CURRENT_TIMESTAMP")

    report = explore(body, profile="crash", restart_after=("0s", "2m"))
    assert proven(report), told(report)
