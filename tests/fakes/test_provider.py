"""A fake provider is the judge's witness: it must keep its contract exactly, whichever way it is reached."""

from __future__ import annotations

import asyncio
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from once_fakes import CLIENT_KEY, NONE, Contract, Provider, Reply
from once_fakes.arriving import arrive
from once_fakes.dialect import Act
from once_fakes.held import deliver
from once_fakes.wire import handle_http
from pytest_once.boundaries import (
    Announcer,
    Boundary,
    Order,
    connect,
    endpoint_of,
)
from pytest_once.calls import perform, perform_async
from pytest_once.faults import CALL_FAULTS, HTTP_FAULTS, KINDS, LATE_FAULTS
from pytest_once.ledger import BETWEEN_LIVES, Ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "ledger.db")


def provider(ledger: Ledger, contract: Contract = CLIENT_KEY, **options: Any) -> Provider:
    return Provider("pay", contract, ledger, lambda: "http://127.0.0.1:1/token", **options)


def outcomes(ledger: Ledger) -> list[str]:
    return [arrival.outcome for arrival in ledger.arrivals()]


def test_the_same_key_has_one_effect_and_the_same_reply(ledger: Ledger) -> None:
    """This is what an idempotency key is for."""
    pay = provider(ledger)
    first = pay.call("refund", {"amount": 5}, key="k")
    second = pay.call("refund", {"amount": 5}, key="k")

    assert first.body == {
        "id": "pay_1",
        "object": "receipt",
        "provider": "pay",
        "operation": "refund",
        "payload": {"amount": 5},
    }
    assert (second.status, second.content) == (first.status, first.content) == (200, first.content)
    assert "idempotent-replayed" not in first.headers
    assert second.headers["idempotent-replayed"] == "true"
    assert len(ledger.effects()) == 1
    assert outcomes(ledger) == ["executed", "replayed"]
    assert [told.what for told in ledger.told()] == ["200", "200"]


def test_another_payload_under_the_key_is_refused_and_recorded(ledger: Ledger) -> None:
    """A replay would hide that the caller meant something else; the refusal is evidence."""
    pay = provider(ledger)
    pay.call("refund", {"amount": 5}, key="k")
    reply = pay.call("refund", {"amount": 6}, key="k")
    other_operation = pay.call("charge", {"amount": 5}, key="k")

    assert (reply.status, other_operation.status) == (422, 422)
    assert reply.body["error"]["type"] == "idempotency_mismatch"
    assert reply.body["error"]["param"] == "Idempotency-Key"
    assert outcomes(ledger) == ["executed", "refused", "refused"]
    assert len(ledger.effects()) == 1
    assert ledger.told()[1].what == "422"
    assert pay.call("refund", {"amount": 5}, key="k").outcome == "replayed"


def test_a_mismatch_may_replay_or_execute(ledger: Ledger) -> None:
    """Real providers differ here, and a client must be tested against its own."""
    lenient = Provider("lenient", replace(CLIENT_KEY, on_mismatch="replay"), ledger, str)
    eager = Provider("eager", replace(CLIENT_KEY, on_mismatch="execute"), ledger, str)
    for pay in (lenient, eager):
        pay.call("refund", 1, key="k")

    assert lenient.call("refund", 2, key="k").body["payload"] == 1
    assert eager.call("refund", 2, key="k").body["id"] == "eager_2"
    assert eager.call("refund", 2, key="k").outcome == "replayed"
    assert eager.call("refund", 1, key="k").body["id"] == "eager_3"


def test_without_contract_each_request_acts(ledger: Ledger) -> None:
    """The default must not lend the code under test a guarantee its provider does not give."""
    pay = provider(ledger, NONE)
    replies = [pay.call("refund", 1, key="k") for _ in range(2)]

    assert [reply.body["id"] for reply in replies] == ["pay_1", "pay_2"]
    assert ledger.receipts() == []


@pytest.mark.parametrize("key", [None, ""])
def test_a_missing_key_acts_or_is_refused(ledger: Ledger, key: str | None) -> None:
    """An empty header is no identity either."""
    strict = Provider("strict", replace(CLIENT_KEY, on_missing_key="error"), ledger, str)
    assert strict.call("refund", 1, key=key).body["error"]["type"] == "idempotency_key_missing"
    assert ledger.effects() == []

    pay = provider(ledger)
    assert [pay.call("refund", 1, key=key).body["id"] for _ in range(2)] == ["pay_1", "pay_2"]


def test_a_key_above_255_characters_is_refused(ledger: Ledger) -> None:
    """Providers bound their keys; one that concatenates payloads finds out here."""
    pay = provider(ledger)
    assert pay.call("refund", 1, key="k" * 255).status == 200
    assert pay.call("refund", 1, key="k" * 256).status == 400
    assert outcomes(ledger) == ["executed", "refused"]


@pytest.mark.parametrize(
    ("key_field", "logical_key"),
    [
        ("order", "o_1"),
        ("meta.case", "7"),
        ("meta[case]", "c"),
        ("meta.none", None),
        ("order.deeper", None),
        (None, None),
    ],
)
def test_the_logical_key_is_read_from_the_payload(
    ledger: Ledger, key_field: str | None, logical_key: str | None
) -> None:
    """The intent's identity is in business terms, never the idempotency key."""
    pay = provider(ledger, key_field=key_field)
    pay.call("refund", {"order": "o_1", "meta": {"case": 7}, "meta[case]": "c"}, key="k")
    assert [effect.logical_key for effect in ledger.effects()] == [logical_key]


def test_a_bad_name_or_a_second_contract_is_refused(ledger: Ledger) -> None:
    """The name is part of addresses; two contracts under one name would depend on the order of calls."""
    with pytest.raises(ValueError, match="'Pay/1' is not"):
        Provider("Pay/1", NONE, ledger, str)
    provider(ledger)
    provider(ledger)
    with pytest.raises(ValueError, match="already declared"):
        provider(ledger, NONE)


def test_an_undeclared_provider_is_an_error(ledger: Ledger) -> None:
    """Answering without a contract would make up a promise."""
    with pytest.raises(LookupError, match="no provider 'mail'"):
        arrive(ledger, "mail", Act("send", 1))
    assert ledger.arrivals() == []


def http(ledger: Ledger, body: bytes, content_type: str = "", path: str = "/r", **headers: str) -> Reply:
    provider(ledger)
    headers["Content-Type"] = content_type
    return handle_http(ledger, "pay", CLIENT_KEY, "POST", path, headers, body)


@pytest.mark.parametrize(
    ("body", "content_type", "payload"),
    [
        (b'{"a": 1}', "application/json; charset=utf-8", {"a": 1}),
        (b"[1]", "application/vnd.api+json", [1]),
        (b"a=1&b=2&b=3&c=", "application/x-www-form-urlencoded", {"a": "1", "b": ["2", "3"], "c": ""}),
        (b"\x00\xff", "application/octet-stream", {"bytes": "00ff"}),
        ("é".encode(), "text/plain", {"text": "é"}),
        (b"", "application/json", None),
        (rb'"\ud800"', "application/json", "\ud800"),
    ],
)
def test_bodies_become_payloads(ledger: Ledger, body: bytes, content_type: str, payload: object) -> None:
    """Effects are compared by payload, so what a client sends must be understood, whatever its encoding."""
    reply = http(ledger, body, content_type)
    assert (reply.status, reply.body["payload"], reply.body["operation"]) == (200, payload, "POST /r")
    assert json.loads(reply.content) == reply.body


def test_a_query_is_part_of_the_payload(ledger: Ledger) -> None:
    """Two requests that differ in their query are not the same request."""
    assert http(ledger, b'{"a":1}', "application/json", "/r?x=1").body["payload"] == {"a": 1, "?": {"x": "1"}}
    assert http(ledger, b"[1]", "application/json", "/r?x=1").body["payload"] == {
        "body": [1],
        "?": {"x": "1"},
    }
    assert http(ledger, b"", "", "?x=1").body["operation"] == "POST /"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"{", "application/json"),
        (b'{"a": NaN}', "application/json"),
        (b"[" * 200_000, "application/json"),
        (b"1" * 10_000, "application/json"),
        (b"\xff", "application/json"),
        (b"\xff", "text/plain"),
        (b"\xff", "application/x-www-form-urlencoded"),
    ],
)
def test_a_malformed_body_is_a_400_and_no_arrival(ledger: Ledger, body: bytes, content_type: str) -> None:
    """A provider answers nonsense with an error document, never with a traceback."""
    reply = http(ledger, body, content_type)
    assert (reply.status, reply.body["error"]["type"]) == (400, "malformed_body")
    assert ledger.arrivals() == []


def test_a_body_above_one_mebibyte_is_a_413(ledger: Ledger) -> None:
    """Everything is bounded, and the bound is said."""
    assert http(ledger, b"x" * 1024 * 1024).status == 200
    assert http(ledger, b"x" * (1024 * 1024 + 1)).status == 413


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "get"])
def test_reading_methods_are_not_allowed_and_leave_no_arrival(ledger: Ledger, method: str) -> None:
    """The contract has no look-up; pretending one would make unsafe code look safe."""
    provider(ledger)
    reply = handle_http(ledger, "pay", CLIENT_KEY, method, "/r", {}, b"")
    assert (reply.status, reply.headers["allow"]) == (405, "POST, PUT, PATCH, DELETE")
    assert ledger.arrivals() == []


def test_credentials_are_never_stored(ledger: Ledger) -> None:
    """Ledgers end up in reports and bug trackers."""
    http(ledger, b"1", "application/json", Authorization="Bearer s3cret", Cookie="s3cret")
    assert b"s3cret" not in ledger.path.read_bytes()


def test_fifty_concurrent_requests_with_one_key_have_one_effect(ledger: Ledger) -> None:
    """The transaction, not luck, is what keeps the effect single."""
    provider(ledger)
    with ThreadPoolExecutor(10) as threads:
        replies = list(threads.map(lambda _: arrive(ledger, "pay", Act("refund", 1, "k")), range(50)))

    assert {reply.content for reply in replies} == {replies[0].content}
    assert sorted(outcomes(ledger)) == ["executed"] + ["replayed"] * 49
    assert len(ledger.effects()) == 1


class Faulty:
    """An announcer that orders one fault and keeps what was announced."""

    def __init__(self, fault: str | None) -> None:
        self.boundaries: list[Boundary] = []
        self._fault = fault
        connect(Announcer(self._ask))

    def _ask(self, boundary: Boundary) -> Order:
        self.boundaries.append(boundary)
        return Order(self._fault)


EXPECTED: dict[str, type[OSError] | None] = {
    "refused": ConnectionRefusedError,
    "lost-request": TimeoutError,
    "lost-response": TimeoutError,
    "reset-response": ConnectionResetError,
    "error-before": None,
    "error-after": None,
    "duplicate": None,
    "late": TimeoutError,
    "late-copy": None,
    "late-twice": TimeoutError,
}
STATUS = {"error-before": 503, "error-after": 500, "duplicate": 200, "late-copy": 200}


@pytest.mark.parametrize("fault", HTTP_FAULTS + LATE_FAULTS)
def test_a_call_performs_the_ordered_fault(ledger: Ledger, fault: str) -> None:
    """Each fault must do to the ledger and to the caller exactly what its kind says."""
    pay = provider(ledger, NONE)
    faulty = Faulty(fault)
    error = EXPECTED[fault]
    if error is None:
        assert pay.call("refund", 1).status == STATUS[fault]
    else:
        with pytest.raises(error) as raised:
            pay.call("refund", 1)
        assert type(raised.value) is error
        assert str(raised.value) == KINDS[fault].story

    arrivals = ledger.arrivals()
    assert len(arrivals) == KINDS[fault].arrivals
    (told,) = ledger.told()
    assert told.what == (str(STATUS[fault]) if error is None else error.__name__)
    assert told.arrival == (arrivals[0].id if arrivals else None)
    (boundary,) = faulty.boundaries
    assert (boundary.kind, boundary.target, boundary.provider) == ("call", "pay refund", "pay")
    assert boundary.faults == HTTP_FAULTS + LATE_FAULTS
    assert len(ledger.in_flight()) == KINDS[fault].held


@pytest.mark.parametrize("fault", [None, "lost-response", "duplicate", "late", "late-copy"])
def test_a_broken_ledger_does_not_pass_for_a_fault(ledger: Ledger, fault: str | None) -> None:
    """An error of ours must never be taken for what was ordered."""
    pay = provider(ledger)
    ledger.path.unlink()
    Faulty(fault)
    with pytest.raises(FileNotFoundError, match="no ledger at"):
        pay.call("refund", 1)


def arrived(ledger: Ledger, number: int) -> Reply:
    """The answer, which nobody hears, to a request that was on its way."""
    reply = deliver(ledger, number)
    assert reply is not None
    return reply


def test_a_held_call_arrives_once_and_under_the_contract(ledger: Ledger) -> None:
    """What was given up long ago may still act, or be recognised: the hardest case for the code under test."""
    pay = provider(ledger, key_field="order")
    Faulty("late")
    for amount in (5, 6):
        with pytest.raises(TimeoutError):
            pay.call("refund", {"order": "o", "amount": amount}, key="k")
    assert (ledger.arrivals(), ledger.effects()) == ([], [])

    assert arrived(ledger, 2).outcome == "executed"
    assert arrived(ledger, 1).outcome == "refused"
    assert [(effect.logical_key, effect.payload) for effect in ledger.effects()] == [("o", '{"amount":6,"order":"o"}')]
    assert [arrival.incarnation for arrival in ledger.arrivals()] == [BETWEEN_LIVES] * 2
    assert ledger.in_flight() == []
    assert [told.what for told in ledger.told()] == ["TimeoutError"] * 2
    with pytest.raises(LookupError, match="there are 0"):
        deliver(ledger, 1)


@pytest.mark.parametrize(("contract", "effects"), [(NONE, 2), (CLIENT_KEY, 1)])
def test_a_late_copy_acts_again_where_nothing_recognises_it(ledger: Ledger, contract: Contract, effects: int) -> None:
    """A network may deliver twice long after the first answer was received."""
    pay = provider(ledger, contract)
    Faulty("late-copy")
    assert pay.call("refund", 1, key="k").status == 200
    assert len(ledger.effects()) == 1
    deliver(ledger, 1)
    assert len(ledger.effects()) == effects


def test_a_held_http_request_arrives_as_it_was_sent(ledger: Ledger) -> None:
    """HTTP seams hold bytes; the contract reads them when they arrive."""
    provider(ledger, replace(CLIENT_KEY, key_header="X-Key"))
    headers = {"Content-Type": "application/json", "x-key": "k"}
    request = {"method": "POST", "path": "/r?x=1", "headers": headers, "body": b'{"a": 1}'}
    ledger.hold("pay", "POST /r", request)
    ledger.hold("pay", "POST /r", {**request, "body": b"{"})

    assert arrived(ledger, 2).status == 400
    assert ledger.arrivals() == []
    assert arrived(ledger, 1).body["payload"] == {"a": 1, "?": {"x": "1"}}
    (arrival,) = ledger.arrivals()
    assert (arrival.operation, arrival.key, arrival.incarnation) == ("POST /r", "k", BETWEEN_LIVES)
    assert ledger.in_flight() == []


class Answer(Exception):
    """What a tool answers instead of a value."""


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("fault", [None, *CALL_FAULTS])
def test_perform_delivers_and_answers_as_ordered(fault: str | None, raises: bool, asynchronous: bool) -> None:
    """Tools and providers share this mapping, sync and async, whether they answer or raise."""
    deliveries: list[int] = []

    def act() -> int:
        deliveries.append(len(deliveries))
        if raises:
            raise Answer(len(deliveries))
        return len(deliveries)

    async def act_async() -> int:
        return act()

    def run() -> int:
        if asynchronous:
            return asyncio.run(perform_async(Order(fault), act_async))
        return perform(Order(fault), act)

    error = EXPECTED[fault] if fault is not None else None
    if error is not None:
        with pytest.raises(error) as raised:
            run()
        assert isinstance(raised.value.__cause__, Answer) == (raises and bool(deliveries))
    elif raises:
        with pytest.raises(Answer, match="1"):
            run()
    else:
        assert run() == 1
    assert len(deliveries) == (1 if fault is None else KINDS[fault].arrivals)


def test_perform_makes_the_callers_own_errors() -> None:
    """A tool's clients catch their library's exceptions, not the builtin ones."""
    with pytest.raises(httpx.ReadTimeout, match="the response is lost"):
        perform(Order("lost-response"), lambda: 1, timeout_error=httpx.ReadTimeout)
    with pytest.raises(ValueError, match="cannot perform the fault 'error-before', only refused"):
        perform(Order("error-before"), lambda: 1)


def test_the_url_is_served_once_and_registered(ledger: Ledger) -> None:
    """HTTP seams know a request for a fake by its address only."""
    served: list[int] = []

    def serve() -> str:
        served.append(1)
        return "http://127.0.0.1:9/tok"

    pay = Provider("pay", NONE, ledger, serve)
    assert served == []
    assert pay.url == pay.url == "http://127.0.0.1:9/tok/pay"
    assert served == [1]
    assert endpoint_of("http://127.0.0.1:9/tok/pay/v1/refunds?x=1") == ("pay", "/v1/refunds")


def test_the_router_answers_sync_clients(ledger: Ledger) -> None:
    """Existing httpx tests become exactly-once tests without a socket."""
    pay = provider(ledger, base_url="https://api.pay.example/v1")
    with pay.router, httpx.Client(verify=False, base_url="https://api.pay.example/v1") as client:
        first = client.post("/refunds", json={"amount": 5}, headers={"idempotency-key": "k"})
        second = client.post("/refunds", json={"amount": 5}, headers={"idempotency-key": "k"})
        assert first.json()["operation"] == "POST /refunds"
        assert first.content == second.content
        assert second.headers["idempotent-replayed"] == "true"
        assert second.headers["once-arrival"] == "2"
        assert client.request("PURGE", "/refunds").status_code == 405
        with pytest.raises(AssertionError, match="not mocked"):
            client.post("https://api.pay.example/v10")
    assert len(ledger.effects()) == 1
    assert endpoint_of("https://api.pay.example/v1/refunds") == ("pay", "/refunds")


def test_the_router_answers_async_clients_and_can_be_entered_again(ledger: Ledger) -> None:
    """Each incarnation enters it anew; sync and async code share one provider."""
    pay = provider(ledger)

    async def refund() -> httpx.Response:
        async with httpx.AsyncClient(verify=False) as client:
            return await client.post(f"{pay.base_url}/refunds", data={"amount": "5"})

    for number in (1, 2):
        with pay.router:
            assert asyncio.run(refund()).json()["id"] == f"pay_{number}"
    assert [effect.payload for effect in ledger.effects()] == ['{"amount":"5"}'] * 2


def test_a_missing_respx_is_explained(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message must name the remedy, not only the module."""
    monkeypatch.setitem(sys.modules, "respx", None)
    with pytest.raises(ImportError, match=r"pip install respx.*Provider\.url"):
        _ = provider(ledger).router


@pytest.mark.parametrize("boundary", ["a1", "b2"])
def test_what_separates_the_parts_of_a_form_means_nothing(ledger: Ledger, boundary: str) -> None:
    """A client makes it anew for each request; the same fields under the same key are the same request."""
    provider(ledger, CLIENT_KEY)
    for separator, outcome in (("zz", "executed"), (boundary, "replayed")):
        field = 'Content-Disposition: form-data; name="f"; filename="a.txt"'
        body = f"--{separator}\r\n{field}\r\n\r\nx\r\n--{separator}--\r\n"
        headers = {"content-type": f"multipart/form-data; boundary={separator}", "Idempotency-Key": "k"}
        assert handle_http(ledger, "pay", CLIENT_KEY, "POST", "/r", headers, body.encode()).outcome == outcome
