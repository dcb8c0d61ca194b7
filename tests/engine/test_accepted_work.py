"""Work that a provider has accepted (202) and not yet done: it is done later, or fails (S1.9)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from once_fakes import Contract, Provider
from pytest_once import Once, Report, Verdict, explore, replay
from pytest_once.events import Event, ViolationFound
from pytest_once.ledger import Ledger
from pytest_once.reporting import terminal
from tests.engine.bodies import Rejected, proven, put, state, tasks, told

ACCEPTS = Contract(name="accepts", acceptance="async202", lookup="by_client_ref")
ORDER = "order_1"


def asked(pay: Provider, attempt: int = 0) -> str:
    """Ask for the refund, and return what a poll finds once it is neither pending nor unknown."""
    key = f"{ORDER}/{attempt}"
    pay.call("refund", {"client_ref": key}, key=key).raise_for_status()
    while (found := pay.find(key).raise_for_status().body["status"]) == "pending":
        time.sleep(1)
    return str(found)


def believes_202(once: Once) -> None:
    with tasks(once) as db:
        if state(db) != "done":
            once.provider("pay", contract=ACCEPTS).call("refund", {"client_ref": ORDER}, key=ORDER).raise_for_status()
            put(db, "done")


def waits_for_any_end(once: Once) -> None:
    with tasks(once) as db:
        if state(db) != "done":
            asked(once.provider("pay", contract=ACCEPTS))
            put(db, "done")


def begins_again(once: Once) -> None:
    with tasks(once) as db:
        attempt = int(db.execute("SELECT coalesce(max(note), 0) FROM tasks").fetchone()[0])
        while state(db) != "done":
            ended = asked(once.provider("pay", contract=ACCEPTS), attempt)
            attempt += 1
            put(db, ended, note=attempt)


def says_that_it_failed(once: Once) -> None:
    with tasks(once) as db:
        if state(db) is None:
            put(db, asked(once.provider("pay", contract=ACCEPTS)))
        if state(db) == "failed":
            raise Rejected


def gives_up_too_soon(once: Once) -> None:
    pay = once.provider("pay", contract=ACCEPTS)
    pay.call("refund", {"client_ref": ORDER}, key=ORDER).raise_for_status()
    while (found := pay.find(ORDER)).body.get("status") != "done":
        if found.status == 503 or found.body["status"] == "failed":
            raise Rejected
        time.sleep(1)


def asks_again_at_each_start(once: Once) -> None:
    with tasks(once) as db:
        if state(db) != "done":
            asked(
                once.provider("pay", contract=ACCEPTS), len(once.provider("pay", contract=ACCEPTS).list().body["data"])
            )
            put(db, "done")


def explored(body: Callable[[Once], None], **how: Any) -> Report:
    return explore(body, **{"key": ORDER, "soft_faults": 0, **how})


def story(report: Report) -> str:
    return " ".join(terminal.render(report).split())


def test_accepted_is_not_done() -> None:
    """S1.9: the code stores "done" at 202, and what was accepted fails: nobody does it again."""
    report = explored(believes_202)
    assert report.verdict is Verdict.OMISSION, told(report)
    violation = report.violations[0]
    assert violation.confirmed and str(violation.schedule) == "./d1.1"
    assert "it said that it was done when the work was only accepted (status 202)" in violation.detail
    assert "returned: done the accepted work fails" in story(report)


def test_a_poll_that_takes_any_end_for_success_loses_what_failed() -> None:
    """It waits, as it should, and does not look at how it ended."""
    report = explored(waits_for_any_end)
    assert report.verdict is Verdict.OMISSION, told(report)
    assert "! the accepted work fails" in story(report)


@pytest.mark.slow
def test_a_poll_that_begins_again_after_a_failure_is_exactly_once() -> None:
    """The corrected twin; the loop ends, because time is virtual and the work is done when it is due."""
    report = explored(begins_again)
    assert proven(report), told(report)
    assert report.verdict is Verdict.EXACTLY_ONCE


@pytest.mark.slow
def test_a_failure_after_acceptance_may_be_reported_as_one() -> None:
    """ "Certainly no effect" is true of work that was accepted and has failed."""
    report = explored(says_that_it_failed, definite_failure=(Rejected,))
    assert proven(report), told(report)


def test_accepted_work_may_be_done_after_a_failure_was_reported() -> None:
    """A failing poll says nothing of the work."""
    marker: dict[str, Any] = {"definite_failure": (Rejected,), "soft_faults": 1, "faults": ("error-before",)}
    found: list[str] = []

    def listener(event: Event) -> None:
        if isinstance(event, ViolationFound):
            found.append(event.schedule)

    report = explored(gives_up_too_soon, listener=listener, **marker)
    assert report.verdict is Verdict.FALSE_FAILURE, told(report)
    afterwards = next(schedule for schedule in found if schedule.startswith("eb@") and schedule.endswith("/d1"))
    replayed = replay(gives_up_too_soon, afterwards, key=ORDER, **marker)
    assert "it happens all the same" in replayed.violations[0].detail
    assert "a definite failure (Rejected) [" in story(replayed)
    assert "the accepted work is done => effect number 1" in story(replayed)


def test_work_that_is_accepted_twice_is_done_twice() -> None:
    """No second effect is there yet when it is too late to prevent it; the story goes on until it is."""
    report = explored(asks_again_at_each_start)
    assert report.verdict is Verdict.DUPLICATE, told(report)
    assert report.violations[0].confirmed
    assert "=> effect number 2" in story(report)


@pytest.mark.parametrize("completes_after_s", [0.0, 7200.0])
def test_work_that_takes_its_time_is_not_stuck(completes_after_s: float) -> None:
    """Restarts follow at once, and find it pending again and again; nothing is wrong with that."""
    contract = Contract(name="slow", acceptance="async202", lookup="by_client_ref", completes_after_s=completes_after_s)

    def body(once: Once) -> None:
        pay = once.provider("pay", contract=contract)
        pay.call("refund", {"client_ref": ORDER}, key=ORDER).raise_for_status()
        once.boundary("asked")
        if once.choose("patience", ["all", "little"]) == "all":
            time.sleep(7200)
        ended = pay.find(ORDER).raise_for_status().body["status"]
        once.claim({"done": "done", "failed": "failed", "pending": "in_progress"}[ended])

    report = explored(body)
    assert proven(report), told(report)


def test_a_schedule_with_failing_work_replays(tmp_path: Any) -> None:
    """From nothing, with a kill: what was accepted in the life that was killed fails before the next one."""
    report = replay(believes_202, "x@end/d1.1/.", keep=tmp_path, key=ORDER)
    assert report.verdict is Verdict.OMISSION, told(report)
    ledger = Ledger(tmp_path / "ledger.db")
    assert [effect.state for effect in ledger.begun()] == ["failed"]
    assert ledger.effects() == []
    assert [arrival.outcome for arrival in ledger.arrivals()] == ["accepted"]
