"""Q08: taking a task off the queue removes it, so a hard stop loses it.

Reports: coleifer/huey#239, coleifer/huey#571.
"""

from __future__ import annotations

from pytest_once import Once, Verdict, explore
from tests.incidents.models import cell, convicted, database, exactly_once


def worker(once: Once, *, pops_first: bool) -> None:
    mail = once.provider("mail", contract="client_key")
    with database(once, "huey", "tasks(id TEXT PRIMARY KEY, taken)") as db:
        db.execute("INSERT OR IGNORE INTO tasks VALUES ('task_1', 0)")
        for (task,) in db.execute("SELECT id FROM tasks WHERE NOT taken").fetchall():
            if pops_first:
                db.execute("UPDATE tasks SET taken = 1 WHERE id = ?", (task,))
            mail.call("send", {"task": task}, key=task)
            db.execute("UPDATE tasks SET taken = 1 WHERE id = ?", (task,))


def test_a_task_that_was_popped_dies_with_its_worker() -> None:
    report = explore(lambda once: worker(once, pops_first=True), soft_faults=0)
    violation = convicted(report, Verdict.OMISSION, expected=1, actual=0, key="task_1")
    assert violation.schedule.crashes == 1
    assert cell(report, "crash", "mail send") == "0x"


def test_a_task_that_is_removed_when_it_is_done_comes_back() -> None:
    exactly_once(explore(lambda once: worker(once, pops_first=False), soft_faults=0))
