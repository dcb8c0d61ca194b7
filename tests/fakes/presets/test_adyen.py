"""Adyen: keys of a company account and a region, errors that pass by, and outcomes told by webhooks."""

from __future__ import annotations

import json

from once_fakes import contracts
from pytest_once.clock import EPOCH_S
from pytest_once.ledger import Ledger
from tests.fakes.presets.requests_of import Wire

DAY_S = 86400.0


def test_a_refund_is_received_and_its_outcome_is_told_later(ledger: Ledger) -> None:
    """201 and "received" say nothing about the money."""
    wire = Wire(ledger, contracts.adyen)
    first, again = wire.example("k"), wire.example("k")
    assert (first.status, first.body["status"], first.outcome) == (201, "received", "accepted")
    assert (again.outcome, again.content) == ("replayed", first.content)
    assert wire.effects == 0
    ledger.set_now(EPOCH_S + 3600)
    wire.example("other")
    (event,) = ledger.events()
    item = json.loads(event.body)["notificationItems"][0]["NotificationRequestItem"]
    assert (item["eventCode"], item["success"], item["pspReference"]) == ("REFUND", "true", first.body["pspReference"])
    assert (item["originalReference"], item["merchantReference"]) == ("PSP883400000001", "k")


def test_keys_are_known_in_one_account_and_one_region(ledger: Ledger) -> None:
    """Falling back to another region repeats the payment."""
    wire = Wire(ledger, contracts.adyen)
    assert wire.example("k").outcome == "accepted"
    assert wire.example("k", once_region="au").outcome == "accepted"
    assert wire.example("k", x_api_key="of another company").outcome == "accepted"
    assert wire.example("k", once_region="au").outcome == "replayed"


def test_what_passes_by_may_be_tried_again_under_the_key(ledger: Ledger) -> None:
    """The header says which errors those are: these are not kept."""
    wire = Wire(ledger, contracts.adyen)
    failed = wire.example("k", once_order="fail")
    assert (failed.status, failed.headers["transient-error"]) == (500, "true")
    wire.example("k", once_order="begin")
    busy = wire.example("k")
    assert (busy.status, busy.body["errorCode"], busy.headers["transient-error"]) == (422, "704", "true")
    wrong = wire.example("l", 1, once_order="decline")
    assert (wrong.status, wrong.headers.get("transient-error")) == (422, None)
    assert wire.example("l", 1).content == wrong.content


def test_a_week_is_the_promise(ledger: Ledger) -> None:
    """One document says 31 days, another 7: code may rely on the shorter one."""
    wire = Wire(ledger, contracts.adyen)
    wire.example("k")
    ledger.set_now(EPOCH_S + 7 * DAY_S - 1)
    assert wire.example("k", once_order="asks").outcome == "replayed"
    ledger.set_now(EPOCH_S + 8 * DAY_S)
    assert wire.example("k", once_order="asks").status == 300


def test_payments_captures_and_cancels_have_their_answers(ledger: Ledger) -> None:
    """Versions of the API are one endpoint; each call insists on its fields."""
    wire = Wire(ledger, contracts.adyen)
    headers = {"x-api-key": "AQE", "content-type": "application/json"}
    amount = {"value": 5, "currency": "EUR"}
    payment = {"merchantAccount": "M", "amount": amount, "reference": "o_1"}
    made = wire.send("POST", "/checkout/v70/payments", payment, headers)
    assert (made.status, made.body["resultCode"], made.body["merchantReference"]) == (200, "Received", "o_1")
    psp = made.body["pspReference"]
    captured = wire.send("POST", f"/v71/payments/{psp}/captures", {"merchantAccount": "M", "amount": amount}, headers)
    assert (captured.status, captured.body["paymentPspReference"]) == (201, psp)
    assert wire.send("POST", f"/v71/payments/{psp}/cancels", {"merchantAccount": "M"}, headers).status == 201
    assert wire.send("POST", f"/v71/payments/{psp}/refunds", {"merchantAccount": "M"}, headers).status == 422
