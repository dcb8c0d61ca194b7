"""What a contract leaves open is asked for and explored with each value, over every transport and for late arrivals."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from once_fakes import CLIENT_KEY, Contract, Provider
from once_fakes.held import deliver, ways
from once_fakes.wire import handle_http
from pytest_once import Once, Report, Verdict, explore, replay
from pytest_once.boundaries import ORDER_HEADER, UNDECIDED_HEADER, Announcer, Boundary, Order, connect
from pytest_once.events import Event, ViolationFound
from pytest_once.ledger import Ledger
from pytest_once.reporting import terminal
from tests.engine.bodies import proven, told
from tests.fakes.transports import TRANSPORTS, Send, by_call

OPEN = replace(CLIENT_KEY, name="open", on_mismatch="unspecified")
REFUSES = replace(OPEN, name="refuses", on_mismatch="error")
FORGETS = replace(CLIENT_KEY, name="forgets", retention_s=(60, None))


def provider(ledger: Ledger, contract: Contract) -> Provider:
    return Provider("pay", contract, ledger, str)


def taking(*options: int) -> list[Boundary]:
    """Decide so, one option after the other; returns the boundaries as they are announced."""
    announced: list[Boundary] = []
    left = list(options)

    def ask(boundary: Boundary) -> Order:
        announced.append(boundary)
        return Order(option=left.pop(0) if boundary.kind == "contract" else 0)

    connect(Announcer(ask))
    return announced


# On the wire.


def post(ledger: Ledger, contract: Contract, amount: int, order: str = "") -> Any:
    headers = {"content-type": "application/json", "idempotency-key": "k", ORDER_HEADER: order}
    return handle_http(ledger, "pay", contract, "POST", "/r", headers, str(amount).encode())


def test_a_request_that_asks_is_told_what_is_open_and_leaves_no_trace(ledger: Ledger) -> None:
    """The seam asks the controller and sends it again; an arrival for each question would be evidence of nothing."""
    provider(ledger, OPEN)
    post(ledger, OPEN, 1)
    asked = post(ledger, OPEN, 2, "asks")
    assert (asked.status, asked.headers[UNDECIDED_HEADER]) == (300, "on_mismatch=error|replay|execute")
    assert len(ledger.arrivals()) == 1
    assert post(ledger, OPEN, 2, "asks,on_mismatch=execute").outcome == "executed"
    assert [arrival.relied for arrival in ledger.arrivals()] == ["", "on_mismatch"]


def test_what_was_decided_once_is_so_for_ever(ledger: Ledger) -> None:
    """A provider that refuses today and replays tomorrow would convict code that is right with either."""
    provider(ledger, OPEN)
    post(ledger, OPEN, 1)
    assert post(ledger, OPEN, 2, "asks,on_mismatch=replay").outcome == "replayed"
    assert post(ledger, OPEN, 3, "asks").outcome == "replayed"
    assert ("decisions", ("pay", "on_mismatch", "replay")) in ledger.state_rows()


def test_where_nobody_asks_the_first_value_is_taken(ledger: Ledger) -> None:
    """A plain run, another language's client: what happens undisturbed."""
    provider(ledger, OPEN)
    post(ledger, OPEN, 1)
    assert post(ledger, OPEN, 2).outcome == "refused"


def test_a_nonsense_decision_is_asked_again(ledger: Ledger) -> None:
    """Only the values that the contract allows can be ordered."""
    provider(ledger, OPEN)
    post(ledger, OPEN, 1)
    assert post(ledger, OPEN, 2, "asks,on_mismatch=vanish").status == 300


def test_whether_a_receipt_is_still_kept_is_decided_for_each_request(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kept today, it may be gone tomorrow; that is no habit of the provider's."""
    pay = provider(ledger, FORGETS)
    pay.call("refund", 1, key="k")
    ledger.set_now(ledger.now_s() + 59)
    assert pay.call("refund", 1, key="k").outcome == "replayed"
    ledger.set_now(ledger.now_s() + 1)
    announced = taking(0, 1)
    now_s = ledger.now_s()
    monkeypatch.setattr("time.time", lambda: now_s)
    assert [pay.call("refund", 1, key="k").outcome for _ in range(2)] == ["replayed", "executed"]
    asked = [boundary for boundary in announced if boundary.kind == "contract"]
    assert [boundary.target for boundary in asked] == ["pay retention", "pay retention"]
    assert asked[0].options == ("kept", "forgotten")


def test_a_late_arrival_has_as_many_ways_as_its_contract_leaves_open(ledger: Ledger) -> None:
    """d1, d1.1 and d1.2: nobody lives who could be asked."""
    pay = provider(ledger, OPEN)
    pay.call("refund", 1, key="k")
    for _ in range(3):
        ledger.hold("pay", "refund", {"payload": "2", "key": "k"})
    with ledger.transaction() as connection:
        possible = ways(connection, 1)
    assert len(possible) == 3
    assert [way.rpartition("; ")[2] for way in possible] == [
        "decided for it: on_mismatch is error",
        "decided for it: on_mismatch is replay",
        "decided for it: on_mismatch is execute",
    ]
    assert len(ledger.arrivals()) == 1
    with pytest.raises(LookupError, match="has no way 3"):
        deliver(ledger, 1, 3)
    reply = deliver(ledger, 1, 2)
    assert reply is not None and reply.outcome == "executed"
    with ledger.transaction() as connection:
        assert len(ways(connection, 1)) == 1  # it is decided now


# Explored.


def drifting(send: Send, contract: Contract) -> Callable[[Once], None]:
    """Each attempt says something else; a refusal means that an earlier one was done."""

    def body(once: Once) -> None:
        pay = once.provider("pay", contract=contract)
        status, _ = send(pay, {"order": "order_1", "trace": str(uuid.uuid4())}, "order_1")
        if status not in (200, 422):
            raise RuntimeError(status)

    return body


def explored(body: Callable[[Once], None], **how: Any) -> Report:
    return explore(body, name="drifting", key="order_1", **{"soft_faults": 0, **how})


@pytest.mark.parametrize("send", TRANSPORTS)
def test_code_that_is_right_only_if_a_mismatch_is_refused_is_convicted(send: Send) -> None:
    """The decision has its place in the schedule and its line in the story."""
    report = explored(drifting(send, OPEN))
    assert report.verdict is Verdict.DUPLICATE, told(report)
    assert report.violations[0].confirmed
    assert "o2@" in str(report.violations[0].schedule)
    text = " ".join(terminal.render(report).split())
    assert "contract pay on_mismatch [" in text
    assert "> execute => effect number 2" in text


def test_its_twin_under_a_contract_that_says_so_is_exactly_once() -> None:
    """Nothing but the documented promise makes it right."""
    report = explored(drifting(by_call, REFUSES))
    assert proven(report), told(report)


def test_a_schedule_with_a_decision_replays_with_kills(tmp_path: Path) -> None:
    """From nothing: the kill, then the decision; the ledger remembers it."""
    found: list[str] = []

    def listener(event: Event) -> None:
        if isinstance(event, ViolationFound):
            found.append(event.schedule)

    explored(drifting(by_call, OPEN), listener=listener)
    killed = next(schedule for schedule in found if "x@" in schedule and "o2@" in schedule)
    report = replay(drifting(by_call, OPEN), killed, key="order_1", keep=tmp_path)
    assert report.verdict is Verdict.DUPLICATE, report.problem
    ledger = Ledger(tmp_path / "ledger.db")
    assert ("decisions", ("pay", "on_mismatch", "execute")) in ledger.state_rows()
    assert [arrival.outcome for arrival in ledger.arrivals()] == ["executed", "executed"]


def test_what_is_open_is_decided_for_late_arrivals_too(tmp_path: Path) -> None:
    """The first attempt arrives after the second: refused, replayed or done again."""
    found: list[str] = []

    def listener(event: Event) -> None:
        if isinstance(event, ViolationFound):
            found.append(event.schedule)

    report = explored(drifting(by_call, OPEN), soft_faults=1, faults=("late",), listener=listener)
    assert report.verdict is Verdict.DUPLICATE, told(report)
    late = next(schedule for schedule in found if "la@" in schedule and schedule.endswith("/d1.2"))
    replayed = replay(drifting(by_call, OPEN), late, key="order_1", keep=tmp_path)
    assert replayed.verdict is Verdict.DUPLICATE, replayed.problem
    text = " ".join(terminal.render(replayed).split())
    assert (
        "a request that was still on its way arrives; nobody hears the answer; decided for it: on_mismatch is" in text
    )
