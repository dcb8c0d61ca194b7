"""PayPal: an id is kept for as long as its API says, and answered with what has become of the request."""

from __future__ import annotations

from typing import Any

import pytest

from once_fakes import Contract, contracts
from once_fakes.held import deliver
from pytest_once.clock import EPOCH_S
from pytest_once.ledger import Ledger
from tests.fakes.presets.requests_of import Wire

AUTH = {"authorization": "Bearer A21AA"}
REFUND = "/v2/payments/captures/2GG279541U471931P/refund"
HOUR_S = 3600.0


@pytest.mark.parametrize(
    ("contract", "kept_s"),
    [
        (contracts.paypal_payments, 45 * 24 * HOUR_S),
        (contracts.paypal_orders, 6 * HOUR_S),
        (contracts.paypal_vault, 3 * HOUR_S),
    ],
)
def test_each_api_keeps_ids_for_its_own_time(contract: Contract, kept_s: float, ledger: Ledger) -> None:
    """A retry of the next morning repeats an order, but no refund."""
    wire = Wire(ledger, contract)
    first = wire.example("k")
    ledger.set_now(EPOCH_S + kept_s - 1)
    again = wire.example("k")
    assert (first.status, again.status, again.content) == (201, 201, first.content)
    ledger.set_now(EPOCH_S + kept_s)
    assert wire.example("k").outcome == "executed"
    assert wire.outcomes == ["executed", "replayed", "executed"]


def test_without_an_id_a_partial_refund_is_made_again_but_a_full_one_is_not(ledger: Ledger) -> None:
    """PayPal repeats what has no id; what is left of a capture is a guard of its own."""
    wire = Wire(ledger, contracts.paypal_payments)
    part = {"amount": {"value": "1.00", "currency_code": "USD"}, "invoice_id": "i_1"}
    assert [wire.send("POST", REFUND, part, AUTH).status for _ in range(2)] == [201, 201]
    assert [wire.send("POST", REFUND, {}, AUTH).status for _ in range(2)] == [201, 422]
    refused = wire.send("POST", REFUND, b"", AUTH).body
    assert (refused["name"], refused["details"][0]["issue"]) == ("UNPROCESSABLE_ENTITY", "CAPTURE_FULLY_REFUNDED")


def test_one_id_at_two_calls_is_two_requests_and_other_content_is_undocumented(ledger: Ledger) -> None:
    """Ids are per type of call; what a mismatch gets is asked of whoever explores."""
    wire = Wire(ledger, contracts.paypal_payments)
    wire.example("k")
    capture = "/v2/payments/authorizations/0VF52814937998046/capture"
    keyed = AUTH | {"paypal-request-id": "k"}
    assert wire.send("POST", capture, {}, keyed).outcome == "executed"
    assert wire.example("k", 1, once_order="asks").status == 300
    refused = wire.example("k", 1, once_order="on_mismatch=error")
    assert (refused.status, refused.body["details"][0]["issue"]) == (422, "DUPLICATE_REQUEST_ID")


def test_a_second_request_at_the_same_time_fails(ledger: Ledger) -> None:
    """ "Might fail" is documented; a client must not take it for an answer about the refund."""
    wire = Wire(ledger, contracts.paypal_payments)
    wire.example("k", once_order="begin")
    second = wire.example("k")
    assert (second.status, second.body["details"][0]["issue"]) == (409, "PREVIOUS_REQUEST_IN_PROGRESS")


def test_an_order_is_captured_once_and_shows_it(ledger: Ledger) -> None:
    """Capturing again under a new id is refused by the order's state; asking shows the present state."""
    wire = Wire(ledger, contracts.paypal_orders)
    order = wire.example("k").body["id"]

    def shown() -> Any:
        return wire.send("GET", f"/v2/checkout/orders/{order}", headers=AUTH).body["status"]

    assert shown() == "CREATED"
    captures = [
        wire.send("POST", f"/v2/checkout/orders/{order}/capture", {}, AUTH | {"paypal-request-id": key})
        for key in ("a", "a", "b")
    ]
    assert [reply.outcome for reply in captures] == ["executed", "replayed", "refused"]
    assert captures[2].body["details"][0]["issue"] == "ORDER_ALREADY_CAPTURED"
    assert shown() == "COMPLETED"
    assert wire.send("GET", "/v2/checkout/orders/ORx", headers=AUTH).status == 404


def test_paying_at_once_needs_an_id(ledger: Ledger) -> None:
    """It is documented as mandatory where an order is paid while it is made."""
    wire = Wire(ledger, contracts.paypal_orders)
    unit = {"amount": {"currency_code": "USD", "value": "1.00"}}
    order = {"intent": "CAPTURE", "purchase_units": [unit], "payment_source": {"card": {"vault_id": "v"}}}
    refused = wire.send("POST", "/v2/checkout/orders", order, AUTH)
    assert (refused.status, refused.body["details"][0]["issue"]) == (400, "PAYPAL_REQUEST_ID_REQUIRED")
    assert wire.send("POST", "/v2/checkout/orders", order, AUTH | {"paypal-request-id": "k"}).status == 201


def test_getting_an_access_token_is_no_effect(ledger: Ledger) -> None:
    """Every client begins with it; held up on its way, it comes to nothing."""
    wire = Wire(ledger, contracts.paypal_payments)
    token = wire.send("POST", "/v1/oauth2/token", b"grant_type=client_credentials", authorization="Basic b25jZTo=")
    assert (token.status, token.body["token_type"]) == (200, "Bearer")
    request = {"method": "POST", "path": "/v1/oauth2/token", "headers": {}, "body": b""}
    ledger.hold("pay", "POST /v1/oauth2/token", request)
    assert deliver(ledger, 1) is None
    assert wire.outcomes == []
