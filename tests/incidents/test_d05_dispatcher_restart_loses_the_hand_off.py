"""D05: the activity is scheduled in the history, the dispatcher restarts, and what it was to hand on is lost.

The middle tier dies, not the worker; the activity is never delivered. Report: temporalio/temporal#459.
"""

from __future__ import annotations

from collections import deque

from pytest_once import Once, Verdict, explore
from tests.incidents.models import cell, convicted, database, exactly_once


def dispatcher(once: Once, *, reads_the_history: bool) -> None:
    """Schedules the activity and hands it to a worker; what is handed on is kept in memory."""
    effects = once.provider("activities", contract="client_key")
    with database(once, "history", "events(activity TEXT PRIMARY KEY, state)") as db:
        matching: deque[str] = deque()
        if db.execute("INSERT OR IGNORE INTO events VALUES ('activity_1', 'scheduled')").rowcount:
            matching.append("activity_1")
        elif reads_the_history:
            rows = db.execute("SELECT activity FROM events WHERE state = 'scheduled'").fetchall()
            matching.extend(activity for (activity,) in rows)
        while matching:
            activity = matching.popleft()
            effects.call("run", {"activity": activity}, key=activity)
            db.execute("UPDATE events SET state = 'completed' WHERE activity = ?", (activity,))
        db.execute("UPDATE events SET state = 'timed out' WHERE state = 'scheduled'")  # schedule-to-start


def test_what_was_scheduled_is_never_handed_on() -> None:
    report = explore(lambda once: dispatcher(once, reads_the_history=False), soft_faults=0)
    violation = convicted(report, Verdict.OMISSION, expected=1, actual=0, key="activity_1")
    assert violation.schedule.crashes == 1
    assert cell(report, "crash", "activities run") == "0x"


def test_a_dispatcher_that_reads_what_is_scheduled() -> None:
    exactly_once(explore(lambda once: dispatcher(once, reads_the_history=True), soft_faults=0))
