"""Q04: the task takes 180 s and may take 600; the broker hands it out again after 120.

The second worker takes it, both finish, the report is mailed twice; the admin view shows one row.
Reports: Koed00/django-q#183, Koed00/django-q#307.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pytest_once import Once, Verdict, explore, replay
from tests.incidents.models import QUEUE, Broker, convicted, convicted_undisturbed, database, exactly_once

DURATION_S = 180.0


async def worker(once: Once, broker: Broker, starts_s: float) -> None:
    mail = once.provider("mail")
    await asyncio.sleep(starts_s)
    fetched = broker.fetch()
    if fetched is None:
        return
    await asyncio.sleep(DURATION_S)
    mail.call("report", {"task": fetched[0]})
    broker.db.execute("INSERT OR REPLACE INTO successes VALUES (?)", (fetched[0],))
    broker.ack(fetched[0])


async def cluster(once: Once, retry_s: float) -> None:
    with database(once, "broker", f"{QUEUE}; successes(task TEXT PRIMARY KEY)") as db:
        broker = Broker(db, retry_s)
        broker.put("task_1")
        await asyncio.gather(worker(once, broker, 0), worker(once, broker, 130))


async def short_retry(once: Once) -> None:
    await cluster(once, retry_s=120)


async def long_retry(once: Once) -> None:
    await cluster(once, retry_s=700)


def test_both_workers_finish_and_one_row_says_so(tmp_path: Path) -> None:
    report = explore(short_retry, soft_faults=0, keys=["task_1"], max_states=20)
    convicted_undisturbed(report, Verdict.DUPLICATE, expected=1, actual=2, key="task_1")
    replay(short_retry, ".", keep=tmp_path, keys=["task_1"])
    with closing(sqlite3.connect(tmp_path / "broker.db")) as db:
        assert db.execute("SELECT count(*) FROM successes").fetchone() == (1,)


@pytest.mark.slow
def test_a_retry_longer_than_the_time_out_runs_it_once_while_nobody_dies() -> None:
    """A setting is no cure: a worker that dies between mail and acknowledgement still leads to a second mail."""
    report = explore(long_retry, soft_faults=0, keys=["task_1"], restart_after=("0s", "1h"), max_states=60)
    violation = convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="task_1")
    assert violation.schedule.crashes == 1


def test_one_key_a_task_mails_one_report() -> None:
    def body(once: Once) -> None:
        with database(once, "broker", QUEUE) as db:
            broker = Broker(db, lease_s=120)
            broker.put("task_1")
            while fetched := broker.fetch():
                once.provider("mail", contract="client_key").call("report", {"task": fetched[0]}, key=fetched[0])
                broker.ack(fetched[0])
            if broker.waiting():
                once.claim("in_progress")

    exactly_once(explore(body, soft_faults=0, restart_after=("0s", "1h")))
