"""K11: the insert that remembers the event fails, the handler answers 200 all the same, and the event is gone.

(a) the error is swallowed; (c) the worker dies after it has claimed the event, and its marker stops all redeliveries.
Report: 2witstudios/PageSpace#1588.
"""

from __future__ import annotations

from pytest_once import Once, Verdict, explore
from tests.incidents.models import by_fault_alone, cell, convicted, database, exactly_once


def webhook(once: Once, *, claims_first: bool, swallows: bool) -> None:
    """Returning is 200, after which the sender never delivers again."""
    billing = once.provider("billing", contract="client_key")
    with database(once, "app", "events(id TEXT PRIMARY KEY)") as db:

        def remember() -> bool:
            return db.execute("INSERT OR IGNORE INTO events VALUES ('event_1')").rowcount == 1

        insert = once.tool(remember, name="insert event", counted=False)
        try:
            is_new = insert() if claims_first else db.execute("SELECT 1 FROM events").fetchone() is None
        except ConnectionRefusedError:
            if not swallows:
                raise
            is_new = False
        if is_new:
            billing.call("grant", {"event": "event_1"}, key="event_1")
            if not claims_first:
                insert()


def test_a_swallowed_error_loses_the_event() -> None:
    report = explore(
        lambda once: webhook(once, claims_first=True, swallows=True), faults=("refused",), keys=["event_1"]
    )
    convicted(report, Verdict.OMISSION, expected=1, actual=0, key="event_1")
    assert cell(report, "refused", "insert event") == "0x"  # (a)
    assert by_fault_alone(report)


def test_a_marker_before_the_work_stops_the_redelivery() -> None:
    report = explore(
        lambda once: webhook(once, claims_first=True, swallows=False), faults=("refused",), keys=["event_1"]
    )
    violation = convicted(report, Verdict.OMISSION, expected=1, actual=0, key="event_1")
    assert violation.schedule.crashes + violation.schedule.soft_faults == 1
    assert cell(report, "crash", "billing grant") == "0x"  # (c)
    assert cell(report, "refused", "insert event") == "once"


def test_the_marker_after_the_work_and_errors_that_are_errors() -> None:
    exactly_once(
        explore(lambda once: webhook(once, claims_first=False, swallows=False), faults=("refused",), keys=["event_1"])
    )
