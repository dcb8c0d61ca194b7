"""H07: a job id that is random in each attempt defeats reattaching; one that is always the same blocks a real rerun.

Reports: apache/airflow#69542, apache/airflow#63181. The fix stores the id that was submitted, and takes a new one only
when that job has really failed.
"""

from __future__ import annotations

import uuid

from once_fakes import Provider
from pytest_once import Once, Verdict, explore
from tests.incidents.models import NoAnswer, cell, convicted, database, exactly_once


class JobFailed(Exception):
    pass


def submit(once: Once, warehouse: Provider, job: str) -> None:
    """The job service: an id that has failed stays failed, a running one is met again; only the latest is known."""
    with database(once, "service", "jobs(slot INTEGER PRIMARY KEY, id, state)") as db:
        row = db.execute("SELECT state FROM jobs WHERE id = ?", (job,)).fetchone()
        state = None if row is None else row[0]
        if state is None:
            db.execute("INSERT OR REPLACE INTO jobs VALUES (0, ?, 'running')", (job,))
        if state in (None, "running"):
            reply = warehouse.call("load", {"table": "sales"}, key=job)
            if reply.status >= 400 and state == "running":
                raise NoAnswer  # the service itself was restarted: an earlier load may have worked
            state = "failed" if reply.status >= 400 else "done"
            db.execute("UPDATE jobs SET state = ?", (state,))
        if state == "failed":
            raise JobFailed(job)


def task(once: Once, setting: str) -> None:
    warehouse = once.provider("warehouse", contract="client_key")
    with database(once, "operator", "attempts(job)") as db:
        if setting == "random":
            submit(once, warehouse, str(uuid.uuid4()))
        elif setting == "stable":
            submit(once, warehouse, "load-sales-2024-01-01")
        else:
            row = db.execute("SELECT job FROM attempts").fetchone()
            if row is None:
                db.execute("INSERT INTO attempts VALUES (?)", (str(uuid.uuid4()),))
                row = db.execute("SELECT job FROM attempts").fetchone()
            try:
                submit(once, warehouse, row[0])
            except JobFailed:
                db.execute("DELETE FROM attempts")
                raise NoAnswer from None


def test_a_random_id_submits_a_second_job_after_a_crash() -> None:
    report = explore(lambda once: task(once, "random"), faults=("error-before",), redeliver=0)
    violation = convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="sales")
    assert violation.schedule.crashes == 1
    assert cell(report, "error-before", "warehouse load") == "once"


def test_a_stable_id_never_runs_again_after_a_real_failure() -> None:
    report = explore(lambda once: task(once, "stable"), faults=("error-before",), redeliver=0)
    violation = convicted(report, Verdict.STUCK, expected=1, actual=0, key="sales")
    assert violation.story[-1].ending.startswith("raised JobFailed")
    assert cell(report, "error-before", "warehouse load") == "stuck"
    assert cell(report, "crash", "UPDATE jobs") == "once"


def test_a_stored_id_is_met_again_and_replaced_only_after_a_real_failure() -> None:
    exactly_once(explore(lambda once: task(once, "stored"), faults=("error-before",)))
