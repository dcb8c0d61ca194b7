"""Q12: a crash leaves the uniqueness lock behind, and nothing with that key can ever be enqueued again.

The lock has neither an owner nor an end. Reports: zoolutions/sidekiq-unique-jobs#955,
zoolutions/sidekiq-unique-jobs#304.
"""

from __future__ import annotations

from pytest_once import Once, Verdict, explore
from tests.incidents.models import cell, convicted, database, exactly_once


def client_and_worker(once: Once, *, together: bool) -> None:
    mail = once.provider("mail", contract="client_key")
    with database(once, "redis", "locks(key TEXT PRIMARY KEY); jobs(id TEXT PRIMARY KEY, done)") as db:
        if together:
            db.execute("BEGIN")
        if db.execute("INSERT OR IGNORE INTO locks VALUES ('job_1')").rowcount:
            db.execute("INSERT INTO jobs VALUES ('job_1', 0)")
        if together:
            db.execute("COMMIT")
        for (job,) in db.execute("SELECT id FROM jobs WHERE NOT done").fetchall():
            mail.call("send", {"job": job}, key=job)
            db.execute("UPDATE jobs SET done = 1 WHERE id = ?", (job,))
        if db.execute("SELECT 1 FROM jobs WHERE done").fetchone() is None:
            once.claim("in_progress")  # what a refused enqueue is told: it is running already


def test_a_lock_whose_job_was_never_queued_refuses_all_others() -> None:
    report = explore(lambda once: client_and_worker(once, together=False), soft_faults=0)
    violation = convicted(report, Verdict.STUCK, expected=1, actual=0, key="job_1")
    assert violation.schedule.crashes == 1
    assert cell(report, "crash", "INSERT INTO jobs") == "stuck"


def test_a_lock_that_is_taken_together_with_the_job() -> None:
    exactly_once(explore(lambda once: client_and_worker(once, together=True), soft_faults=0))
