"""H06: the job is submitted and running; a status request fails, the task fails, and its retry submits a new job.

The fault hits the question, not the submission. Report: apache/airflow#14267.
"""

from __future__ import annotations

import uuid

from pytest_once import Once, Verdict, explore
from tests.incidents.models import cell, convicted, database, exactly_once


def load(once: Once, *, keeps_the_id: bool) -> None:
    """One attempt of the task; when it raises, the scheduler starts the next."""
    jobs = once.provider("warehouse", contract="client_key")  # a job id that is known is not run again
    poll = once.tool(lambda job: "done", name="poll", counted=False)
    with database(once, "scheduler", "tasks(id TEXT PRIMARY KEY, job)") as db:
        if keeps_the_id:
            db.execute("INSERT OR IGNORE INTO tasks VALUES ('load', ?)", (str(uuid.uuid4()),))
            job = db.execute("SELECT job FROM tasks").fetchone()[0]
        else:
            job = str(uuid.uuid4())
        jobs.call("load", {"table": "sales"}, key=job)
        poll(job)


def test_a_lost_answer_to_a_question_appends_the_rows_twice() -> None:
    report = explore(lambda once: load(once, keeps_the_id=False), faults=("reset-response",), redeliver=0)
    convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="table=sales")
    assert cell(report, "reset-response", "poll") == "2x"


def test_a_job_id_that_is_stored_before_it_is_used_is_met_again() -> None:
    exactly_once(explore(lambda once: load(once, keeps_the_id=True), faults=("reset-response", "lost-response")))
