"""The IETF's draft: three refusals as problem documents, and a key that is a Structured Field String."""

from __future__ import annotations

import pytest

from once_fakes.presets.ietf_draft import IETF_DRAFT, TYPE
from pytest_once.boundaries import BEGIN, FAIL, ORDER_HEADER
from pytest_once.ledger import Ledger
from tests.fakes.presets.wire import Wire, shown

KEY = {"Idempotency-Key": '"8e03978e-40d5"'}
PAYMENT = {"amount": 5}


@pytest.fixture
def resource(ledger: Ledger) -> Wire:
    return Wire(ledger, IETF_DRAFT)


def test_a_repetition_gets_the_first_result_whatever_it_was(resource: Wire) -> None:
    """Success or error (section 2.6)."""
    first, again = (resource.send("POST", "/payments", PAYMENT, KEY) for _ in range(2))
    assert (first.status, again.content) == (200, first.content)
    other = {"Idempotency-Key": '"other"'}
    failed = resource.send("POST", "/payments", PAYMENT, {**other, ORDER_HEADER: FAIL})
    still = resource.send("POST", "/payments", PAYMENT, other)
    assert (failed.status, still.status, still.content) == (500, 500, failed.content)
    assert still.headers["content-type"] == "application/problem+json"
    assert len(resource.ledger.effects()) == 1


def test_the_three_refusals(resource: Wire) -> None:
    """Missing 400, other payload 422, outstanding 409 (section 2.7)."""
    resource.send("POST", "/payments", PAYMENT, KEY)
    resource.send("POST", "/payments", PAYMENT, {"Idempotency-Key": '"k2"', ORDER_HEADER: BEGIN})
    for reply, status, title in (
        (resource.send("POST", "/payments", PAYMENT), 400, "Idempotency-Key is missing"),
        (resource.send("POST", "/payments", {"amount": 6}, KEY), 422, "Idempotency-Key is already used"),
        (
            resource.send("POST", "/payments", PAYMENT, {"Idempotency-Key": '"k2"'}),
            409,
            "A request is outstanding for this Idempotency-Key",
        ),
    ):
        document = shown(reply)
        assert (reply.status, document["status"], document["title"]) == (status, status, title)
        assert (document["type"], reply.headers["content-type"]) == (TYPE, "application/problem+json")


@pytest.mark.parametrize("field", ["8e03978e", '"open', '"a" b', '"a\\b"', "", '"ä"', '""'])
def test_a_field_that_is_no_string_in_quotation_marks_is_missing(resource: Wire, field: str) -> None:
    """A Structured Field that cannot be read is ignored as a whole; nobody notices before it matters."""
    assert resource.send("POST", "/payments", PAYMENT, {"Idempotency-Key": field}).status == 400
    assert resource.ledger.effects() == []


def test_a_field_may_have_escapes_and_parameters(resource: Wire) -> None:
    """The key is what the field means."""
    for field in ('"a\\"b"', ' "a\\"b" ;v=1'):
        resource.send("POST", "/payments", PAYMENT, {"Idempotency-Key": field})
    assert [arrival.key for arrival in resource.ledger.arrivals()] == ['a"b', 'a"b']
    assert len(resource.ledger.effects()) == 1
    get = resource.send("GET", "/payments")
    assert (get.status, shown(get)["type"]) == (405, "about:blank")
