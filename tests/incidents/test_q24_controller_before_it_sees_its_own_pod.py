"""Q24: the controller restarts after it made the pod and before its view shows it, and makes a second one.

Reports: kubernetes/kubernetes#120790, kubernetes/kubernetes#130683 (the cause is suspected there, not settled).
"""

from __future__ import annotations

import sqlite3
import time
import uuid

from pytest_once import Once, Verdict, explore
from tests.incidents.models import convicted, database, exactly_once

LAG_S = 5.0


def listed(db: sqlite3.Connection) -> int:
    """The controller's view of the pods: what is younger than the lag is not in it yet."""
    seen = db.execute("SELECT count(*) FROM pods WHERE made_s < ?", (time.time() - LAG_S,))
    return int(seen.fetchone()[0])


def reconcile(once: Once, *, name: str | None) -> None:
    once.count("cluster.db", "SELECT job, count(*) FROM pods GROUP BY job")
    with database(once, "cluster", "pods(name TEXT PRIMARY KEY, job, made_s REAL)") as db:
        while listed(db) < 1:
            pod = name or f"job_1-{uuid.uuid4().hex[:5]}"
            db.execute("INSERT OR IGNORE INTO pods VALUES (?, 'job_1', ?)", (pod, time.time()))
            once.boundary("creation expected")  # kept in memory only: wait for one's own pod to be seen
            time.sleep(2 * LAG_S)


def test_a_restart_inside_the_lag_makes_a_second_pod() -> None:
    report = explore(lambda once: reconcile(once, name=None), soft_faults=0, restart_after=("0s", "1m"))
    violation = convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="job_1")
    assert violation.schedule.crashes <= 1


def test_a_name_that_follows_from_the_job_exists_already() -> None:
    exactly_once(explore(lambda once: reconcile(once, name="job_1-0"), soft_faults=0, restart_after=("0s", "1m")))
