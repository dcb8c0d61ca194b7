"""Q05: a delayed message that is due is copied to the work queue first and acknowledged in the delay queue second.

The connection closes in between, and it is copied again, as another message. Reports: Bogdanp/dramatiq#431,
Bogdanp/dramatiq#461.
"""

from __future__ import annotations

import uuid

import pytest

from pytest_once import Once, Verdict, explore
from tests.incidents.models import cell, convicted, database, exactly_once

QUEUES = "work(id TEXT PRIMARY KEY, task, done); delayed(task TEXT PRIMARY KEY, acked)"
FEW = {"max_boundaries": 12, "max_states": 30}


def consumer(once: Once, *, keeps_the_id: bool) -> None:
    mail = once.provider("mail", contract="client_key")
    with database(once, "broker", QUEUES) as db:
        db.execute("INSERT OR IGNORE INTO delayed VALUES ('task_1', 0)")

        def acknowledge(task: str) -> None:
            db.execute("UPDATE delayed SET acked = 1 WHERE task = ?", (task,))

        ack = once.tool(acknowledge, name="ack", counted=False)
        while row := db.execute("SELECT task FROM delayed WHERE NOT acked").fetchone():
            message = row[0] if keeps_the_id else str(uuid.uuid4())
            db.execute("INSERT OR IGNORE INTO work VALUES (?, ?, 0)", (message, row[0]))
            try:
                ack(row[0])
            except ConnectionRefusedError:
                continue
        for message, task in db.execute("SELECT id, task FROM work WHERE NOT done").fetchall():
            mail.call("send", {"task": task}, key=message)
            db.execute("UPDATE work SET done = 1 WHERE id = ?", (message,))


@pytest.mark.slow
def test_a_connection_that_closes_between_the_two_writes_copies_it_again() -> None:
    report = explore(lambda once: consumer(once, keeps_the_id=False), faults=("refused",), limits=FEW)
    convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="task_1")
    assert cell(report, "crash", "ack") == "2x"
    assert cell(report, "refused", "ack") == "2x"


@pytest.mark.slow
def test_a_copy_under_the_same_id_is_the_same_message() -> None:
    exactly_once(explore(lambda once: consumer(once, keeps_the_id=True), faults=("refused",), limits=FEW))
