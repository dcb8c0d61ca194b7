"""Each soft fault, in every way of calling: that it happened, and what it did to the caller and to the ledger."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from pytest_once import Once, Report, Verdict, explore, replay
from pytest_once.boundaries import Boundary
from pytest_once.events import Event, Recorded
from pytest_once.faults import CALL_FAULTS, HTTP_FAULTS, KINDS, LATE_FAULTS, mark_of
from pytest_once.ledger import Ledger
from tests.engine.bodies import careful, careless, proven, put, state, tasks, told

ORDER = {"order": "order_1"}
READ_ONLY = "GET /refunds/order_1"


def note(once: Once, what: str) -> None:
    """Keep what the caller saw in the world, where the test can read it afterwards."""
    (once.path / "seen.txt").write_text(what)


def seen(once: Once, what: str) -> None:
    """The same, life by life."""
    (once.path / f"seen{once.ledger.incarnation()}.txt").write_text(what)


def seen_by(error: BaseException) -> str:
    return type(error).__name__


# Ways to call. Each lets the caller survive, and notes what it saw.


def over_http(once: Once) -> None:
    with httpx.Client(base_url=careless(once).url) as client:
        try:
            seen(once, str(client.post("/refunds", json=ORDER).status_code))
        except httpx.TransportError as error:
            seen(once, seen_by(error))


async def over_http_async(once: Once) -> None:
    async with httpx.AsyncClient(base_url=careless(once).url) as client:
        try:
            seen(once, str((await client.post("/refunds", json=ORDER)).status_code))
        except httpx.TransportError as error:
            seen(once, seen_by(error))


def through_the_router(once: Once) -> None:
    provider = careless(once)
    with provider.router, httpx.Client(base_url=provider.base_url) as client:
        try:
            seen(once, str(client.post("/refunds", json=ORDER).status_code))
        except httpx.TransportError as error:
            seen(once, seen_by(error))


def plainly(once: Once) -> None:
    try:
        seen(once, str(careless(once).call("refund", ORDER).status))
    except OSError as error:
        seen(once, seen_by(error))


def as_a_tool(once: Once) -> None:
    tool = once.tool(lambda order: f"paid {order}", name="pay")
    try:
        seen(once, tool("order_1"))
    except OSError as error:
        seen(once, seen_by(error))


async def as_an_async_tool(once: Once) -> None:
    async def pay(order: str) -> str:
        await asyncio.sleep(1)
        return f"paid {order}"

    try:
        seen(once, await once.tool(pay)("order_1"))
    except OSError as error:
        seen(once, seen_by(error))


HTTP_SEEN = {
    "refused": "ConnectError",
    "lost-request": "ReadTimeout",
    "lost-response": "ReadTimeout",
    "reset-response": "ReadError",
    "error-before": "503",
    "error-after": "500",
    "duplicate": "200",
}
CALL_SEEN = {
    "refused": "ConnectionRefusedError",
    "lost-request": "TimeoutError",
    "lost-response": "TimeoutError",
    "reset-response": "ConnectionResetError",
    "duplicate": "200",
}
PLAIN_SEEN = {**CALL_SEEN, "error-before": "503", "error-after": "500", "late": "TimeoutError", "late-copy": "200"}
PLAIN_SEEN["late-twice"] = PLAIN_SEEN["late"]
TOOL_SEEN = {**CALL_SEEN, "duplicate": "paid order_1"}
WAYS: list[tuple[Callable[[Once], Any], dict[str, str]]] = [
    (over_http, HTTP_SEEN),
    (over_http_async, HTTP_SEEN),
    (through_the_router, HTTP_SEEN),
    (plainly, PLAIN_SEEN),
    (as_a_tool, TOOL_SEEN),
    (as_an_async_tool, TOOL_SEEN),
]


def call_of(body: Callable[[Once], Any], number: int = 0) -> Boundary:
    """The body's n-th call of a provider, as a recording shows it."""
    found: list[Boundary] = []

    def listener(event: Event) -> None:
        if isinstance(event, Recorded):
            found.extend(boundary for boundary in event.boundaries if boundary.provider)

    explore(body, soft_faults=0, limits={"max_states": 1}, listener=listener)
    return found[number]


@pytest.mark.parametrize(("body", "seen"), WAYS, ids=[body.__name__ for body, _ in WAYS])
def test_every_fault_fires_and_the_caller_sees_what_its_client_would_raise(
    body: Callable[[Once], Any], seen: dict[str, str], tmp_path: Path
) -> None:
    """The evidence is the ledger's: how often the request arrived, and what was done. One life for each fault."""
    boundary = call_of(body)
    assert set(boundary.faults) - set(LATE_FAULTS) == set(seen) - set(LATE_FAULTS)
    mark = mark_of(boundary)
    report = replay(body, "/".join(f"{KINDS[fault].code}@{mark}" for fault in seen), keep=tmp_path)
    assert not report.problem, report.problem
    ledger = Ledger(tmp_path / "ledger.db")
    arrivals = {arrival.id: arrival.incarnation for arrival in ledger.arrivals()}
    effects = [arrivals[effect.arrival] for effect in ledger.effects()]
    arrived = {"duplicate": 2, "lost-response": 1, "reset-response": 1, "error-after": 1, "late-copy": 1}
    for number, (fault, what) in enumerate(seen.items(), 1):
        assert list(arrivals.values()).count(number) == arrived.get(fault, 0) == KINDS[fault].arrivals, fault
        assert effects.count(number) == arrived.get(fault, 0), fault
        assert (tmp_path / f"seen{number}.txt").read_text() == what, fault
        steps = report.replayed[number - 1].steps
        assert [step.fault for step in steps if step.boundary.anchor == boundary.anchor] == [fault]


@pytest.mark.parametrize("body", [over_http, plainly], ids=lambda body: str(body.__name__))
def test_the_ledger_keeps_what_the_caller_was_told(body: Callable[[Once], Any], tmp_path: Path) -> None:
    """ "The provider acted and the caller saw a time-out" is the pair that a story is made of."""
    mark = mark_of(call_of(body))
    replay(body, f"lr@{mark}/rf@{mark}", keep=tmp_path)
    told_of_response, told_of_refusal = Ledger(tmp_path / "ledger.db").told()
    assert (told_of_response.provider, told_of_response.incarnation) == ("pay", 1)
    assert told_of_response.arrival is not None
    assert told_of_response.what == (tmp_path / "seen1.txt").read_text()
    assert (told_of_refusal.arrival, told_of_refusal.incarnation) == (None, 2)
    assert told_of_refusal.what == (tmp_path / "seen2.txt").read_text()


def test_arrivals_of_two_lives_are_told_apart(tmp_path: Path) -> None:
    """The first life is number 1, in the ledger as in a story."""

    def body(once: Once) -> None:
        careless(once).call("refund", ORDER)
        once.boundary("after")

    after = mark_of(explore_boundaries(body)[1])
    replay(body, f"x@{after}/.", keep=tmp_path)
    assert [arrival.incarnation for arrival in Ledger(tmp_path / "ledger.db").arrivals()] == [1, 2]


def explore_boundaries(body: Callable[[Once], Any]) -> list[Boundary]:
    found: list[Boundary] = []
    explore(
        body,
        soft_faults=0,
        limits={"max_states": 1},
        listener=lambda event: found.extend(event.boundaries) if isinstance(event, Recorded) else None,
    )
    return found


def test_a_tool_raises_the_exceptions_it_was_given(tmp_path: Path) -> None:
    """A tool stands for a library, whose own exceptions the code under test catches."""

    class GatewayTimeout(Exception):
        pass

    def body(once: Once) -> None:
        tool = once.tool(lambda: None, name="pay", timeout_error=GatewayTimeout)
        try:
            tool()
        except GatewayTimeout:
            note(once, "caught")

    boundary = call_of(body)
    report = replay(body, f"lr@{mark_of(boundary)}", keep=tmp_path)
    assert not report.problem
    assert (tmp_path / "seen.txt").read_text() == "caught"


def test_a_tool_that_raises_has_had_no_effect(tmp_path: Path) -> None:
    """Whatever fault surrounds it: no answer, no entry in the ledger."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            broken = state(db) == "broken"
            put(db, "broken")

            def pay() -> None:
                if broken:
                    raise LookupError("no such customer")

            try:
                once.tool(pay)()
            except (LookupError, OSError) as error:
                note(once, seen_by(error))

    write, call, *_ = [boundary for boundary in explore_boundaries(body) if "CREATE" not in boundary.target]
    for fault, seen in (("lost-response", "TimeoutError"), ("duplicate", "LookupError")):
        kept = tmp_path / fault
        kept.mkdir()
        replay(body, f"x@{mark_of(call)}/{KINDS[fault].code}@{mark_of(call)}", keep=kept)
        assert Ledger(kept / "ledger.db").effects() == []
        assert (kept / "seen.txt").read_text() == seen
    assert write.kind == "sqlite"


def test_reading_requests_are_neither_doubled_nor_acted_on() -> None:
    """A GET delivered twice is no different; what can be lost is its answer."""

    def body(once: Once) -> None:
        careful(once).call("refund", ORDER, key="order_1")
        with httpx.Client(base_url=careful(once).url) as client:
            client.get("/refunds/order_1")

    read = call_of(body, 1)
    assert read.target.endswith(READ_ONLY)
    assert set(read.faults) == {*HTTP_FAULTS, "stale-read"} - {"duplicate", "error-after"}


# Transient and lasting


def patient(once: Once, attempts: int) -> None:
    """A client with a retry loop of its own."""
    for number in range(attempts):
        try:
            careful(once).call("refund", ORDER, key="order_1")
        except OSError:
            time.sleep(2**number)
        else:
            note(once, f"after {number} failures")
            return
    note(once, "gave up")


def test_a_transient_fault_is_over_at_the_next_attempt_and_a_lasting_one_is_not(tmp_path: Path) -> None:
    """Retry loops hide the first and must still end, and end right, under the second."""

    def body(once: Once) -> None:
        patient(once, 3)

    mark = mark_of(call_of(body))
    for step, seen, arrivals in (("rf", "after 1 failures", 1), ("RF", "gave up", 0), ("lr", "after 1 failures", 2)):
        kept = tmp_path / step.replace("R", "r_")
        kept.mkdir()
        report = replay(body, f"{step}@{mark}", keep=kept)
        assert (kept / "seen.txt").read_text() == seen
        assert len(Ledger(kept / "ledger.db").arrivals()) == arrivals
        assert not report.problem


@pytest.mark.slow
def test_giving_up_silently_is_found_by_the_lasting_fault_only() -> None:
    """With transient faults alone this retry loop would look perfect."""

    def gives_up(once: Once) -> None:
        patient(once, 3)

    report = explore(gives_up, faults=("refused",))
    assert report.verdict is Verdict.OMISSION
    assert str(report.violations[0].schedule).startswith("RF@")

    def says_so(once: Once) -> None:
        patient(once, 3)
        if (once.path / "seen.txt").read_text() == "gave up":
            raise TimeoutError

    assert proven(explore(says_so, faults=("refused",)))


def test_retrying_for_ever_is_no_fault_of_the_code() -> None:
    """An outage for the rest of the incarnation keeps the loop going; it makes no new state, so nothing is wrong."""

    def body(once: Once) -> None:
        while True:
            try:
                careful(once).call("refund", ORDER, key="order_1")
            except OSError:
                time.sleep(1)
            else:
                return

    assert proven(explore(body, faults=("refused", "lost-response"), limits={"max_boundaries": 30}))


@pytest.mark.slow
def test_two_faults_in_one_life_are_tried_where_they_are_asked_for() -> None:
    """What survives any one fault may fail with two; `deep` and soft_faults=2 look at pairs."""

    def body(once: Once) -> None:
        stock, pay = once.provider("stock", contract="client_key"), careful(once)
        nervous = False
        try:
            stock.call("reserve", ORDER, key="order_1")
        except TimeoutError:
            nervous = True
            stock.call("reserve", ORDER, key="order_1")
        try:
            pay.call("refund", ORDER, key="order_1")
        except TimeoutError:
            pay.call("refund", ORDER, key="another" if nervous else "order_1")

    assert proven(explore(body, faults=("lost-response",), soft_faults=1))
    pair = explore(body, faults=("lost-response",), soft_faults=2)
    assert pair.verdict is Verdict.DUPLICATE
    assert (pair.violations[0].schedule.soft_faults, pair.violations[0].schedule.crashes) == (2, 0)
    assert pair.violations[0].confirmed


# What may not pass


def test_a_planned_fault_that_does_not_fire_is_no_pass() -> None:
    """A schedule that misses its boundary has tested nothing."""

    def body(once: Once) -> None:
        careful(once).call("refund", ORDER, key="order_1")

    mark = mark_of(call_of(body))
    never_there = replay(body, "lr@000000")
    assert not never_there.passed
    assert "never reached boundary 000000" in never_there.problem
    not_again = replay(body, f"./lr@{mark}/lr@{mark}/lr@abcdef")
    assert not not_again.passed
    fired = replay(body, f"lr@{mark}")
    assert not fired.problem


def test_a_fault_that_a_boundary_cannot_perform_is_no_pass() -> None:
    """A database commit has no response to lose."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            put(db, "planned")
        careful(once).call("refund", ORDER, key="order_1")

    report = replay(body, f"lr@{mark_of(explore_boundaries(body)[0])}")
    assert not report.passed
    assert "cannot happen there" in report.problem


def faults_tried(report: Report) -> set[str]:
    return {what for row in report.matrix for what in row.outcomes}


@pytest.mark.slow
def test_the_faults_that_were_asked_for_are_the_faults_that_are_tried() -> None:
    """And no others, so that a test can be read for what it covers."""

    def body(once: Once) -> None:
        careful(once).call("refund", ORDER, key="order_1")

    assert faults_tried(explore(body)) == {"crash", *HTTP_FAULTS}
    assert faults_tried(explore(body, profile="deep", soft_faults=1)) == {"crash", *PLAIN_SEEN}
    assert faults_tried(explore(body, faults=("refused",))) == {"crash", "refused"}
    assert faults_tried(explore(body, soft_faults=0)) == {"crash"}
    assert faults_tried(explore(body, profile="crash")) == {"crash"}
    assert set(CALL_FAULTS) <= set(PLAIN_SEEN)


def test_a_double_delivery_harms_whoever_relies_on_asking_only_once() -> None:
    """No crash, no time-out: the network alone repeats the request, and only the provider's memory helps."""

    def keyless(once: Once) -> None:
        with tasks(once) as db:
            if state(db) is None:
                careful(once).call("refund", ORDER)
                put(db, "done")

    report = explore(keyless, faults=("duplicate",))
    assert report.verdict is Verdict.DUPLICATE
    schedules = {str(violation.schedule) for violation in report.violations}
    variants = {str(schedule) for violation in report.violations for schedule in violation.variants}
    assert any(schedule.startswith("du@") for schedule in schedules | variants), told(report)


def test_a_body_of_a_request_arrives_as_it_was_sent(tmp_path: Path) -> None:
    """Doubling a request must send the same bytes twice, also from a stream that can be read once."""

    def body(once: Once) -> None:
        def pieces() -> Any:
            yield b'{"order": '
            yield b'"order_1"}'

        with httpx.Client(base_url=careless(once).url) as client:
            client.post("/refunds", content=pieces(), headers={"content-type": "application/json"})

    replay(body, f"du@{mark_of(call_of(body))}", keep=tmp_path)
    payloads = [json.loads(arrival.payload) for arrival in Ledger(tmp_path / "ledger.db").arrivals()]
    assert payloads == [ORDER, ORDER]
