"""Faults of a provider's work (still-working, failed-inside, declined), over every transport, and what they decide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from once_fakes import CLIENT_KEY, Contract
from pytest_once import Once, Report, Verdict, explore, replay
from pytest_once.boundaries import Boundary
from pytest_once.events import Event, Recorded
from pytest_once.faults import WORK_FAULTS, mark_of
from pytest_once.ledger import Ledger
from pytest_once.reporting import terminal
from tests.engine.bodies import proven, put, state, tasks, told
from tests.fakes.transports import TRANSPORTS, NoAnswer, Send, by_call, by_httpx

REJECTS = replace(CLIENT_KEY, name="rejects", on_concurrent="reject")
COALESCES = replace(CLIENT_KEY, name="coalesces", on_concurrent="coalesce")
RACES = replace(CLIENT_KEY, name="races", on_concurrent="race")
TAKEN_LATE = replace(RACES, name="taken_when_completed", record_point="completed")
UNKNOWN = replace(CLIENT_KEY, name="unknown", on_concurrent="unspecified")
KEEPS_ALL = replace(CLIENT_KEY, name="keeps_all", stored_outcomes="all")
TRIES_ANEW = replace(KEEPS_ALL, name="tries_anew", on_retry_after_failure="re_execute")
KEEPS_REFUSALS = replace(CLIENT_KEY, name="keeps_refusals", stored_outcomes="success_and_4xx")
REFUSES_ANEW = replace(KEEPS_REFUSALS, name="refuses_anew", on_retry_after_failure="re_execute")
EVERYTHING = replace(COALESCES, name="everything", stored_outcomes="all")

REFUND = {"order": "order_1"}


class Refused(Exception):
    """The provider says no; it may be asked again."""


class Failed(Exception):
    """Certainly no effect."""


def boundaries_of(body: Callable[[Once], None]) -> tuple[Boundary, ...]:
    found: list[Boundary] = []

    def listener(event: Event) -> None:
        if isinstance(event, Recorded):
            found.extend(event.boundaries)

    explore(body, soft_faults=0, limits={"max_states": 1}, listener=listener)
    return tuple(found)


def once_sent(send: Send, contract: Contract) -> Callable[[Once], None]:
    """Sends once, and writes down what the client saw."""

    def body(once: Once) -> None:
        pay = once.provider("pay", contract=contract)
        try:
            seen = str(send(pay, REFUND, "order_1")[0])
        except NoAnswer:
            seen = "time-out"
        (once.path / "seen.txt").write_text(seen)

    return body


@pytest.mark.parametrize(
    ("code", "outcome", "seen", "effects", "receipts"),
    [
        ("sw", "begun", "time-out", ["pending"], 1),
        ("fi", "failed", "500", [], 1),
        ("dc", "failed", "402", [], 1),
    ],
)
@pytest.mark.parametrize("send", TRANSPORTS)
def test_a_fault_of_the_work_fires_and_does_what_its_name_says(
    tmp_path: Path, send: Send, code: str, outcome: str, seen: str, effects: list[str], receipts: int
) -> None:
    """The key is taken by all three; an effect is begun by one, and done by none."""
    body = once_sent(send, EVERYTHING)
    (call,) = (boundary for boundary in boundaries_of(body) if boundary.provider == "pay")
    assert set(WORK_FAULTS) <= set(call.faults)
    report = replay(body, f"{code}@{mark_of(call)}", keep=tmp_path)
    assert not report.problem, report.problem
    ledger = Ledger(tmp_path / "ledger.db")
    assert [arrival.outcome for arrival in ledger.arrivals()] == [outcome]
    assert (tmp_path / "seen.txt").read_text() == seen
    assert [effect.state for effect in ledger.begun()] == effects
    assert len(ledger.receipts()) == receipts
    assert len(ledger.in_flight()) == (code == "sw")
    assert not [one for one in ledger.told() if "once-order" in one.what]


@pytest.mark.parametrize("send", [by_call, by_httpx])
def test_only_a_contract_that_makes_a_difference_of_them_offers_them(send: Send) -> None:
    """A fault that changes nothing would only cost time."""
    (plain,) = (boundary for boundary in boundaries_of(once_sent(send, CLIENT_KEY)) if boundary.provider)
    assert not set(WORK_FAULTS) & set(plain.faults)
    (keeping,) = (boundary for boundary in boundaries_of(once_sent(send, KEEPS_REFUSALS)) if boundary.provider)
    assert "declined" in keeping.faults and "failed-inside" not in keeping.faults


def refund(contract: Contract, *accepted: int, send: Send = by_call) -> Callable[[Once], None]:
    """Refund under one key until an answer says that it is done; `accepted` statuses say so too."""

    def body(once: Once) -> None:
        pay = once.provider("pay", contract=contract)
        with tasks(once) as db:
            if state(db) != "done":
                status, _ = send(pay, REFUND, "order_1")
                if status not in (200, *accepted):
                    raise Failed if status == 402 else Refused(status)
                put(db, "done")

    return body


def explored(body: Callable[[Once], None], *faults: str, **how: Any) -> Report:
    return explore(body, name="refund", key="order_1", faults=faults, **how)


SW, FI, DC = "still-working", "failed-inside", "declined"


@pytest.mark.parametrize(
    ("contract", "accepted", "fault", "verdict"),
    [
        (REJECTS, (), SW, Verdict.EXACTLY_ONCE),
        (REJECTS, (409,), SW, Verdict.OMISSION),
        (COALESCES, (), SW, Verdict.EXACTLY_ONCE),
        (COALESCES, (409,), SW, Verdict.EXACTLY_ONCE),
        (RACES, (), SW, Verdict.DUPLICATE),
        (TAKEN_LATE, (), SW, Verdict.DUPLICATE),
        (UNKNOWN, (), SW, Verdict.DUPLICATE),
        (KEEPS_ALL, (), FI, Verdict.STUCK),
        (TRIES_ANEW, (), FI, Verdict.EXACTLY_ONCE),
        (KEEPS_ALL, (500,), FI, Verdict.OMISSION),
        (KEEPS_REFUSALS, (), DC, Verdict.STUCK),
        (KEEPS_REFUSALS, (402,), DC, Verdict.OMISSION),
        (REFUSES_ANEW, (), DC, Verdict.EXACTLY_ONCE),
        (replace(KEEPS_REFUSALS, name="open", on_retry_after_failure="unspecified"), (), DC, Verdict.STUCK),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_what_a_provider_does_about_its_own_failures_decides(
    contract: Contract, accepted: tuple[int, ...], fault: str, verdict: Verdict
) -> None:
    """409 is no success where the work may still fail; a stored 500 comes back for ever; a race acts twice."""
    report = explored(refund(contract, *accepted), fault)
    assert report.verdict is verdict, told(report)
    assert proven(report) == (verdict is Verdict.EXACTLY_ONCE)


def test_a_refusal_of_the_business_may_be_reported_as_a_failure() -> None:
    """It is one: nothing was done, and the receipt says so for ever."""
    report = explored(refund(KEEPS_REFUSALS), DC, definite_failure=(Failed,))
    assert proven(report), told(report)


def test_the_story_tells_how_the_work_ended() -> None:
    """The provider worked on, and what came of it is not the fault of the process that asked again."""
    report = explored(refund(RACES), SW)
    text = " ".join(terminal.render(report).split())
    assert "! still-working: the provider is still at work on it; the caller sees a time-out" in text
    assert "the provider's work on an earlier request is done => effect number" in text
    assert report.violations[0].confirmed


@pytest.mark.parametrize("send", TRANSPORTS[1:])
def test_a_409_taken_for_success_is_convicted_over_every_transport(send: Send) -> None:
    """The work that was still going on fails: nobody does it."""
    report = explored(refund(REJECTS, 409, send=send), SW)
    assert report.verdict is Verdict.OMISSION, told(report)
