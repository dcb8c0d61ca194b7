"""Q16: the client pulls more than it may run at a time; what waits in its buffer is not renewed and comes again.

One client, no crash, no fault: only the time that the first message takes. Report: googleapis/google-cloud-python#9252.
"""

from __future__ import annotations

import time
from collections import deque

import pytest

from pytest_once import Once, Verdict, explore
from tests.incidents.models import QUEUE, Broker, convicted_undisturbed, database, exactly_once


def subscriber(once: Once, *, keyed: bool) -> None:
    effects = once.provider("mail", contract="client_key")
    with database(once, "broker", QUEUE) as db:
        broker = Broker(db, lease_s=10)
        broker.put("message_a")
        broker.put("message_b")
        buffer: deque[str] = deque()
        while broker.waiting() or buffer:
            while fetched := broker.fetch():
                buffer.append(fetched[0])  # the stream delivers whenever it may
            if not buffer:
                time.sleep(10)
                continue
            running = buffer.popleft()
            for _ in range(2):  # twelve seconds' work, which renews its own lease and no other
                time.sleep(6)
                if running == "message_a":
                    db.execute("UPDATE messages SET hidden_until_s = ? WHERE id = ?", (time.time() + 10, running))
                    while fetched := broker.fetch():
                        buffer.append(fetched[0])
            effects.call("send", {"message": running}, key=running if keyed else None)
            broker.ack(running)


def test_the_message_in_the_buffer_is_processed_as_often_as_it_was_delivered() -> None:
    report = explore(lambda once: subscriber(once, keyed=False), soft_faults=0, keys=["message_a", "message_b"])
    convicted_undisturbed(report, Verdict.DUPLICATE, expected=1, actual=2, key="message_b")


@pytest.mark.slow
def test_one_key_a_message() -> None:
    exactly_once(
        explore(
            lambda once: subscriber(once, keyed=True),
            soft_faults=0,
            keys=["message_a", "message_b"],
            restart_after=("1m",),
        )
    )
