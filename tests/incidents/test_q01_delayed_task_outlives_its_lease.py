"""Q01: a task due in six hours is fetched at once and waits in the worker's memory; its lease is one hour.

The broker gives it to the next worker, and both run it when it is due. Nobody crashes, only time passes.
Reports: celery/kombu#337, celery/celery#5935.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from pytest_once import Once, Verdict, explore
from tests.incidents.models import QUEUE, Broker, convicted, convicted_undisturbed, database, exactly_once

HOUR_S = 3600.0


async def worker(once: Once, broker: Broker, *, keyed: bool) -> None:
    """Prefetches, keeps the task until it is due, runs it, acknowledges."""
    mail = once.provider("mail", contract="client_key")
    while broker.waiting():
        fetched = broker.fetch()
        if fetched is None:
            await asyncio.sleep(HOUR_S / 2)
            continue
        task, due_s = fetched
        await asyncio.sleep(due_s - time.time())
        mail.call("remind", {"task": task}, key=task if keyed else None)
        broker.ack(task)


async def workers(once: Once, *, lease_s: float, keyed: bool = False) -> None:
    with database(once, "broker", QUEUE) as db:
        broker = Broker(db, lease_s)
        broker.put("task_1", delay_s=6 * HOUR_S)
        await asyncio.gather(*(worker(once, broker, keyed=keyed) for _ in range(2)))


async def short_lease(once: Once) -> None:
    await workers(once, lease_s=HOUR_S)


async def long_lease(once: Once) -> None:
    await workers(once, lease_s=12 * HOUR_S)


async def one_key_a_task(once: Once) -> None:
    await workers(once, lease_s=HOUR_S, keyed=True)


DELAYS = ("0s", "1d")


def test_two_workers_hold_the_task_when_it_is_due() -> None:
    report = explore(short_lease, soft_faults=0, keys=["task_1"], restart_after=DELAYS)
    convicted_undisturbed(report, Verdict.DUPLICATE, expected=1, actual=2, key="task_1")


@pytest.mark.slow
def test_a_longer_lease_leaves_the_crash_before_the_acknowledgement() -> None:
    report = explore(long_lease, soft_faults=0, keys=["task_1"], restart_after=DELAYS)
    violation = convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="task_1")
    assert violation.schedule.crashes == 1


@pytest.mark.slow
def test_one_key_a_task_makes_the_second_run_harmless() -> None:
    exactly_once(explore(one_key_a_task, soft_faults=0, keys=["task_1"], restart_after=DELAYS))
