"""Q03: late acknowledgement and "reject when the worker is lost" are set, but parent and child are killed together.

Nobody is left to reject: the message stays invisible, and nothing runs after the restart.
Reports: celery/celery#3541, celery/celery#1628.
"""

from __future__ import annotations

import pytest

from pytest_once import Once, Verdict, explore
from tests.incidents.models import QUEUE, Broker, cell, convicted, database, exactly_once

FOR_EVER_S = 300 * 86400.0


def worker(once: Once, *, lease_s: float, waits_for_hidden: bool) -> None:
    mail = once.provider("mail", contract="client_key")
    with database(once, "broker", QUEUE) as db:
        broker = Broker(db, lease_s)
        broker.put("task_1")
        while fetched := broker.fetch():
            mail.call("send", {"task": fetched[0]}, key=fetched[0])
            broker.ack(fetched[0])
        if waits_for_hidden and broker.waiting():
            once.claim("in_progress")


def test_a_message_in_a_dead_workers_hands_is_never_delivered_again() -> None:
    report = explore(
        lambda once: worker(once, lease_s=FOR_EVER_S, waits_for_hidden=False),
        soft_faults=0,
        restart_after=("0s", "2h"),
    )
    violation = convicted(report, Verdict.OMISSION, expected=1, actual=0, key="task_1")
    assert violation.schedule.crashes == 1
    assert cell(report, "crash", "mail send") == "0x"


@pytest.mark.slow
def test_a_lease_brings_it_back() -> None:
    """Not at once: until it ends, the queue looks empty, and whoever drains it must not call the work done."""
    exactly_once(
        explore(
            lambda once: worker(once, lease_s=3600, waits_for_hidden=True), soft_faults=0, restart_after=("0s", "2h")
        )
    )
