"""H13: the push to the broker is done, its reply is lost; the service reports a failure and deletes the staged input.

A worker meanwhile has the job and finds nothing to work on. Report: xorbitsai/xagent#1616.
"""

from __future__ import annotations

import pytest

from pytest_once import Once, Verdict, explore
from tests.incidents.models import by_fault_alone, cell, convicted, database, exactly_once

JOBS = "jobs(id TEXT PRIMARY KEY, state)"


def accept(once: Once, *, unpublished_is_certain: bool) -> None:
    """The service: stage the input, publish the job; on an error clean up."""
    staged = once.path / "input"
    if not staged.exists():
        staged.write_text("rows")

    def push() -> None:
        with database(once, "broker", JOBS) as db:
            db.execute("INSERT OR IGNORE INTO jobs VALUES ('job_1', 'queued')")

    try:
        once.tool(push, counted=False)()
    except ConnectionResetError:
        if not unpublished_is_certain:
            raise
        staged.unlink()  # "503, job failed"
        once.claim("failed")


def work(once: Once) -> None:
    """The worker, on whatever the broker has for it."""
    with database(once, "broker", JOBS) as db:
        for (job,) in db.execute("SELECT id FROM jobs WHERE state = 'queued'").fetchall():
            if (once.path / "input").exists():
                once.provider("compute", contract="client_key").call("run", {"job": job}, key=job)
            db.execute("UPDATE jobs SET state = 'done' WHERE id = ?", (job,))


def service(once: Once, *, unpublished_is_certain: bool) -> None:
    with database(once, "requests", "accepted(id)") as db:
        if db.execute("SELECT 1 FROM accepted").fetchone() is None:
            accept(once, unpublished_is_certain=unpublished_is_certain)
            db.execute("INSERT INTO accepted VALUES ('job_1')")
    work(once)
    once.claim("done")


@pytest.mark.slow
def test_the_job_runs_into_its_deleted_input() -> None:
    report = explore(lambda once: service(once, unpublished_is_certain=True), faults=("reset-response",))
    violation = convicted(report, Verdict.OMISSION, expected=1, actual=0, key="job_1")
    assert str(violation.schedule) == by_fault_alone(report)[0]
    assert cell(report, "reset-response", "push") == "0x"
    assert any(
        "unlink" in step.boundary.target or "remove" in step.boundary.target for step in violation.story[0].steps
    )


@pytest.mark.slow
def test_while_a_job_may_be_published_its_input_stays() -> None:
    exactly_once(
        explore(lambda once: service(once, unpublished_is_certain=False), faults=("reset-response", "lost-request"))
    )
