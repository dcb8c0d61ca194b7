"""Q02: the task runs with a late acknowledgement; the broker restarts meanwhile, the acknowledgement goes nowhere.

The worker lives, the broker delivers the message again. Report: celery/celery#4671.
"""

from __future__ import annotations

from pytest_once import Once, Verdict, explore
from tests.incidents.models import cell, convicted, database, exactly_once


def worker(once: Once, *, keyed: bool) -> None:
    effects = once.provider("mail", contract="client_key")
    with database(once, "broker", "messages(id TEXT PRIMARY KEY, acked)") as db:
        db.execute("INSERT OR IGNORE INTO messages VALUES ('task_1', 0)")

        def acknowledge(task: str) -> None:
            db.execute("UPDATE messages SET acked = 1 WHERE id = ?", (task,))

        ack = once.tool(acknowledge, name="ack", counted=False)
        while row := db.execute("SELECT id FROM messages WHERE NOT acked").fetchone():
            effects.call("send", {"task": row[0]}, key=row[0] if keyed else None)
            try:
                ack(row[0])
            except ConnectionRefusedError:
                continue  # connected to the new broker, which has the message


def test_an_acknowledgement_on_a_dead_channel_runs_the_task_again() -> None:
    report = explore(lambda once: worker(once, keyed=False), faults=("refused",), limits={"max_boundaries": 20})
    convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="task_1")
    assert cell(report, "refused", "ack") == "2x"


def test_one_key_a_task_recognises_the_redelivery() -> None:
    exactly_once(explore(lambda once: worker(once, keyed=True), faults=("refused",), limits={"max_boundaries": 20}))
