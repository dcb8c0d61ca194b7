"""Looking up what happened is how code recovers without a key; a fake must show no more than the real one would."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import pytest

from once_fakes import CLIENT_KEY, NONE, Contract, Provider, Reply
from once_fakes.wire import handle_http
from pytest_once.boundaries import Announcer, Boundary, Order, connect
from pytest_once.clock import EPOCH_S
from pytest_once.ledger import Ledger

BY_REF = replace(NONE, name="by_ref", lookup="by_client_ref")
BY_KEY = replace(CLIENT_KEY, name="by_key", lookup="by_key")
LISTED = replace(NONE, name="listed", lookup="list_only")


def provider(ledger: Ledger, contract: Contract) -> Provider:
    return Provider("pay", contract, ledger, str)


def get(ledger: Ledger, pay: Provider, path: str, **headers: str) -> Reply:
    return handle_http(ledger, pay.name, pay.contract, "GET", path, headers, b"")


def post(ledger: Ledger, pay: Provider, path: str, body: bytes, **headers: str) -> Reply:
    headers["content-type"] = "application/json"
    return handle_http(ledger, pay.name, pay.contract, "POST", path, headers, body)


def ids(reply: Reply) -> list[str]:
    return [one["id"] for one in reply.body["data"]]


def ordering(fault: str | None) -> list[Boundary]:
    announced: list[Boundary] = []

    def ask(boundary: Boundary) -> Order:
        announced.append(boundary)
        return Order(fault)

    connect(Announcer(ask))
    return announced


def test_an_effect_is_found_by_id_and_client_reference(ledger: Ledger) -> None:
    """The reference is the client's own, so it can ask although it never saw the answer."""
    pay = provider(ledger, BY_REF)
    made = post(ledger, pay, "/v1/refunds", b'{"client_ref": "order /1"}')

    for reference in ("pay_1", "order%20%2F1"):
        found = get(ledger, pay, f"/v1/refunds/{reference}")
        assert (found.status, found.outcome, found.content) == (200, "found", made.content)
    missing = get(ledger, pay, "/v1/refunds/order_2")
    assert (missing.status, missing.outcome, missing.body["error"]["type"]) == (404, "not_found", "not_found")
    assert get(ledger, pay, "/v1/charges/pay_1").status == 404
    assert len(ledger.arrivals()) == 1


def test_the_reference_may_be_another_field_or_the_key(ledger: Ledger) -> None:
    """Providers differ in what they let one search for."""
    nested = Provider("nested", replace(BY_REF, reference_field="meta.order"), ledger, str)
    nested.call("refund", {"meta": {"order": 7}, "client_ref": "x"})
    assert nested.find("7").status == 200
    assert nested.find("x").status == 404

    keyed = Provider("keyed", BY_KEY, ledger, str)
    post(ledger, keyed, "/refunds", b'{"client_ref": "x"}', **{"idempotency-key": "k"})
    assert get(ledger, keyed, "/refunds/k").body["id"] == "keyed_1"
    assert get(ledger, keyed, "/refunds/x").status == 404
    assert [effect.reference for effect in ledger.effects()] == ["7", "k"]


def test_what_a_lookup_reads_is_state(ledger: Ledger) -> None:
    """Worlds that answer differently must not be merged."""
    provider(ledger, replace(BY_KEY, visibility_lag_s=60)).call("refund", 1, key="k")
    effect = next(row for table, row in ledger.state_rows() if table == "effects")
    assert effect[4:6] == ("k", EPOCH_S + 60)


def test_without_lookup_nothing_more_is_state(ledger: Ledger) -> None:
    """Keys that nobody reads again would only keep worlds apart."""
    provider(ledger, replace(CLIENT_KEY)).call("refund", {"client_ref": "x"}, key="k")
    effect = next(row for table, row in ledger.state_rows() if table == "effects")
    assert effect[4:6] == (None, None)


def test_a_list_has_the_effects_of_its_path_in_order(ledger: Ledger) -> None:
    """A list of everything would let code find what the real one keeps apart."""
    pay = provider(ledger, LISTED)
    for path in ("/v1/refunds", "/v1/charges", "/v1/refunds/"):
        post(ledger, pay, path, b"1")

    assert ids(get(ledger, pay, "/v1/refunds?limit=9")) == ["pay_1", "pay_3"]
    assert ids(get(ledger, pay, "/v1/refunds/")) == ["pay_1", "pay_3"]
    assert ids(get(ledger, pay, "/v1/payouts")) == []
    assert ids(pay.list()) == ["pay_1", "pay_2", "pay_3"]
    one = get(ledger, pay, "/v1/refunds/pay_1")
    assert (one.status, one.body["error"]["message"]) == (
        405,
        "this contract answers with lists only, not for one effect",
    )


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/refunds", 200),
        ("/v1/refunds", 200),
        ("/v1.1/refunds", 200),
        ("/api/v2/refunds", 200),
        ("/customers/c1/refunds", 200),
        ("/refunds/order_1", 404),
        ("/v1/refunds/order_1", 404),
        ("/customers/c1/refunds/r1", 404),
        ("/v1", 200),
        ("/", 200),
    ],
)
def test_before_anything_happened_a_path_is_read_by_its_parts(ledger: Ledger, path: str, status: int) -> None:
    """Code that looks before it acts asks when there is nothing yet: an empty list, or no such thing."""
    assert get(ledger, provider(ledger, BY_REF), path).status == status


def test_what_was_asked_for_at_a_path_makes_it_a_collection(ledger: Ledger) -> None:
    """Not every API counts its parts as we do."""
    pay = provider(ledger, BY_REF)
    post(ledger, pay, "/payments/refunds", b'{"client_ref": "a"}')
    assert ids(get(ledger, pay, "/payments/refunds")) == ["pay_1"]
    assert get(ledger, pay, "/payments/refunds/a").status == 200
    assert get(ledger, pay, "/payments/refunds/b").status == 404


def test_a_young_effect_is_not_shown_yet(ledger: Ledger) -> None:
    """ "Not found" proves nothing before the lag has passed: code that believes it acts twice."""
    pay = provider(ledger, replace(BY_REF, visibility_lag_s=60))
    post(ledger, pay, "/refunds", b'{"client_ref": "a"}')
    ledger.set_now(EPOCH_S + 59.9)
    assert get(ledger, pay, "/refunds/a").status == 404
    assert ids(get(ledger, pay, "/refunds")) == []
    ledger.set_now(EPOCH_S + 60)
    assert get(ledger, pay, "/refunds/a").status == 200
    assert ids(get(ledger, pay, "/refunds")) == ["pay_1"]


def test_a_stale_answer_is_from_before_the_latest_effect(ledger: Ledger) -> None:
    """Replicas lag: what was just done may be missing from an answer, and be there in the next."""
    pay = provider(ledger, BY_REF)
    for order in (b"a", b"b"):
        post(ledger, pay, "/refunds", b'{"client_ref": "%s"}' % order)
    assert ids(get(ledger, pay, "/refunds", **{"Once-Order": "stale"})) == ["pay_1"]
    assert get(ledger, pay, "/refunds/b", **{"once-order": "stale"}).status == 404
    assert get(ledger, pay, "/refunds/a", **{"once-order": "stale"}).status == 200
    assert get(ledger, pay, "/refunds/b", **{"once-order": "other"}).status == 200


def test_of_two_effects_the_older_is_found(ledger: Ledger) -> None:
    """The answer must be the same every time, also after the provider acted twice."""
    pay = provider(ledger, BY_REF)
    pay.call("refund", {"client_ref": "a", "amount": 1})
    pay.call("refund", {"client_ref": "a", "amount": 2})
    assert pay.find("a").body["payload"]["amount"] == 1


def test_other_methods_are_told_which_ones_there_are(ledger: Ledger) -> None:
    """The Allow header is how a client learns that there is a look-up."""
    pay = provider(ledger, BY_REF)
    reply = handle_http(ledger, "pay", pay.contract, "OPTIONS", "/r", {}, b"")
    assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD, POST, PUT, PATCH, DELETE")
    assert handle_http(ledger, "pay", pay.contract, "HEAD", "/refunds", {}, b"").status == 200


@pytest.mark.parametrize(
    ("contract", "find", "listing"), [(NONE, False, False), (LISTED, False, True), (BY_REF, True, True)]
)
def test_a_plain_call_that_the_contract_lacks_is_an_error(
    ledger: Ledger, contract: Contract, find: bool, listing: bool
) -> None:
    """An answer of "not found" would be taken for knowledge, whatever fault is ordered."""
    pay = provider(ledger, contract)
    ordering("lost-request")
    with pytest.raises(TimeoutError if find else LookupError, match="lost" if find else "for one effect: its contract"):
        pay.find("a")
    with pytest.raises(TimeoutError if listing else LookupError, match="lost" if listing else "did: its contract"):
        pay.list()


@pytest.mark.parametrize(
    ("fault", "seen"),
    [
        (None, "200"),
        ("refused", "ConnectionRefusedError"),
        ("lost-request", "TimeoutError"),
        ("lost-response", "TimeoutError"),
        ("reset-response", "ConnectionResetError"),
        ("error-before", "503"),
        ("stale-read", "404"),
    ],
)
def test_asking_performs_the_ordered_fault(ledger: Ledger, fault: str | None, seen: str) -> None:
    """Recovery fails too: a question may be lost like any request, or answered from the past."""
    pay = provider(ledger, BY_REF)
    pay.call("refund", {"client_ref": "a"})
    announced = ordering(fault)
    if seen.isdecimal():
        assert pay.find("a").status == int(seen)
    else:
        with pytest.raises(OSError, match="the re") as raised:
            pay.find("a")
        assert type(raised.value).__name__ == seen
    assert ledger.told()[-1].what == seen
    (boundary,) = announced
    assert (boundary.kind, boundary.target, boundary.provider) == ("lookup", "pay find", "pay")
    assert boundary.faults == (
        "refused",
        "lost-request",
        "lost-response",
        "reset-response",
        "error-before",
        "stale-read",
    )
    assert len(ledger.arrivals()) == len(ledger.effects()) == 1


def test_the_router_answers_questions_too(ledger: Ledger) -> None:
    """The transports differ in nothing that code could notice."""
    pay = provider(ledger, BY_REF)
    body: dict[str, Any] = {"client_ref": "a"}
    with pay.router, httpx.Client(verify=False, base_url=pay.base_url) as client:
        assert client.get("/refunds").json() == {"object": "list", "data": []}
        made = client.post("/refunds", json=body)
        assert client.get("/refunds/a").content == made.content
        assert client.get("/refunds/a", headers={"once-order": "stale"}).status_code == 404
