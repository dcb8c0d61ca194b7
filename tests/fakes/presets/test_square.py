"""Square: the key is in the body, and a list lags behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from once_fakes import Provider, contracts
from once_fakes.server import LoopbackServer
from pytest_once.boundaries import forget_endpoints
from pytest_once.clock import EPOCH_S
from pytest_once.ledger import Ledger
from tests.fakes.presets.requests_of import Wire

AUTH = {"authorization": "Bearer EAAA", "content-type": "application/json"}
MONEY = {"amount": 500, "currency": "USD"}


@pytest.fixture
def wire(ledger: Ledger) -> Wire:
    return Wire(ledger, contracts.square)


def code(reply: Any) -> tuple[int, str]:
    return reply.status, reply.body["errors"][0]["code"]


def test_the_key_in_the_body_is_no_part_of_what_is_asked(wire: Wire) -> None:
    """Two keys for one refund are two attempts at one intent, so the ledger must be able to compare them."""
    refund = {"payment_id": "p", "amount_money": MONEY}
    first, again, other = (
        wire.send("POST", "/v2/refunds", {**refund, "idempotency_key": key}, AUTH) for key in ("k", "k", "l")
    )
    assert (again.outcome, again.content) == ("replayed", first.content)
    assert first.body["refund"]["status"] == "PENDING"
    assert other.outcome == "executed"
    payloads = [json.loads(effect.payload) for effect in wire.ledger.effects()]
    assert payloads[0] == payloads[1]
    assert "idempotency_key" not in payloads[0]


def test_the_key_is_required_a_text_and_for_one_request(wire: Wire) -> None:
    """Each in Square's own words."""
    assert code(wire.example(None)) == (400, "MISSING_REQUIRED_PARAMETER")
    assert code(wire.example("k" * 46)) == (400, "VALUE_TOO_LONG")
    body = {"idempotency_key": 7, "payment_id": "p", "amount_money": MONEY}
    assert code(wire.send("POST", "/v2/refunds", body, AUTH)) == (400, "INVALID_VALUE")
    wire.example("k")
    assert code(wire.example("k", 1)) == (400, "IDEMPOTENCY_KEY_REUSED")
    assert wire.effects == 1


def test_a_declined_payment_is_kept_or_not(wire: Wire) -> None:
    """Square does not say what a repetition of a failure gets: both are explored."""
    body = {"idempotency_key": "k", "source_id": "cnon:card-nonce-declined", "amount_money": MONEY}
    assert code(wire.send("POST", "/v2/payments", body, AUTH)) == (402, "GENERIC_DECLINE")
    asked = wire.send("POST", "/v2/payments", body, AUTH, once_order="asks")
    assert asked.headers["once-undecided"] == "on_retry_after_failure=replay|re_execute"


def test_a_payment_made_here_has_an_end(wire: Wire) -> None:
    """Refunds of more than was paid are refused, whatever their key."""
    body = {"idempotency_key": "p", "source_id": "cnon:card-nonce-ok", "amount_money": MONEY}
    paid = wire.send("POST", "/v2/payments", body, AUTH).body["payment"]["id"]
    refund = {"payment_id": paid, "amount_money": {"amount": 300, "currency": "USD"}}
    replies = [wire.send("POST", "/v2/refunds", {**refund, "idempotency_key": key}, AUTH) for key in ("a", "b")]
    assert [reply.status for reply in replies] == [200, 400]
    assert code(replies[1]) == (400, "REFUND_AMOUNT_INVALID")


def test_a_list_lags_and_an_id_does_not(wire: Wire) -> None:
    """An empty list right after a lost answer proves nothing."""
    made = wire.example("k").body["refund"]["id"]

    def listed() -> list[str]:
        return [one["id"] for one in wire.send("GET", "/v2/refunds", headers=AUTH).body["refunds"]]

    assert listed() == []
    assert wire.send("GET", f"/v2/refunds/{made}", headers=AUTH).body["refund"]["id"] == made
    wire.ledger.set_now(EPOCH_S + 6)
    assert listed() == [made]
    assert wire.send("GET", "/v2/payments", headers=AUTH).body == {"payments": []}


@pytest.fixture
def url(ledger: Ledger) -> Iterator[str]:
    server = LoopbackServer()
    server.start()
    yield Provider("square", contracts.square, ledger, lambda: server.address("token", ledger.path)).url
    server.close()
    forget_endpoints()


def test_the_official_sdk_works_unmodified(url: str, ledger: Ledger) -> None:
    """Its models, its errors, its own retries of a 500."""
    square = pytest.importorskip("square")
    errors = pytest.importorskip("square.core.api_error")
    with httpx.Client() as connections:
        refunds_with(square.Square(token="EAAA", base_url=url, httpx_client=connections), errors.ApiError)
    assert len(ledger.effects()) == 1


def refunds_with(client: Any, error: type[Exception]) -> None:
    given: dict[str, Any] = {"idempotency_key": "k", "payment_id": "p", "amount_money": MONEY}
    first = client.refunds.refund_payment(**given)
    assert client.refunds.refund_payment(**given).refund.id == first.refund.id
    with pytest.raises(error) as caught:
        client.refunds.refund_payment(**{**given, "amount_money": {**MONEY, "amount": 1}})
    reused: Any = caught.value
    assert (reused.status_code, reused.errors[0].code) == (400, "IDEMPOTENCY_KEY_REUSED")
    assert client.refunds.get(first.refund.id).refund.amount_money.amount == 500
