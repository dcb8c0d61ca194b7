"""Q07: the job retries for more than a day, while the record that belongs to it lives for one day from its enqueueing.

The job is then logged as expired and dropped. Report: python-arq/arq#320.
"""

from __future__ import annotations

import time

import pytest

from pytest_once import Once, Verdict, explore
from tests.incidents.models import by_fault_alone, convicted, database, exactly_once

DAY_S = 86400.0


def worker(once: Once, *, drops_expired: bool) -> None:
    partner = once.provider("partner", contract="client_key")
    with database(once, "redis", "jobs(id TEXT PRIMARY KEY, expires_s REAL, state)") as db:
        db.execute("INSERT OR IGNORE INTO jobs VALUES ('job_1', ?, 'queued')", (time.time() + DAY_S,))
        while row := db.execute("SELECT expires_s FROM jobs WHERE state = 'queued'").fetchone():
            if drops_expired and time.time() > row[0]:
                db.execute("UPDATE jobs SET state = 'expired'")
                return
            try:
                partner.call("import", {"job": "job_1"}, key="job_1")
            except ConnectionRefusedError:
                time.sleep(6 * 3600)
                continue
            db.execute("UPDATE jobs SET state = 'done'")


DELAYS = ("0s", "25h")


@pytest.mark.slow
def test_an_outage_of_a_day_loses_the_job() -> None:
    report = explore(lambda once: worker(once, drops_expired=True), faults=("refused",), restart_after=DELAYS)
    convicted(report, Verdict.OMISSION, expected=1, actual=0, key="job_1")
    assert any(schedule.startswith("RF@") for schedule in by_fault_alone(report))


@pytest.mark.slow
def test_a_record_that_lives_as_long_as_its_job() -> None:
    exactly_once(
        explore(
            lambda once: worker(once, drops_expired=False),
            faults=("refused",),
            restart_after=DELAYS,
            limits={"max_boundaries": 16},
        )
    )
