"""Braintree: no key, but half a minute in which the same content is rejected, with an HTTP status of 200."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import httpx
import pytest

from once_fakes import contracts
from once_fakes.held import deliver
from once_fakes.presets.braintree import BRAINTREE_GRAPHQL
from pytest_once import Once, Verdict, explore
from pytest_once.clock import EPOCH_S
from pytest_once.ledger import Ledger
from tests.engine.bodies import told
from tests.fakes.presets.requests_of import Wire

BRAINTREE = contracts.braintree


def charged(reply: Any) -> Any:
    return reply.body["data"]["chargePaymentMethod"]["transaction"]


def test_the_same_content_is_rejected_for_half_a_minute(ledger: Ledger) -> None:
    """Whoever looks at the HTTP status alone takes the rejection for a second charge, or for the first."""
    wire = Wire(ledger, BRAINTREE)
    assert charged(wire.example("o_1"))["status"] == "SUBMITTED_FOR_SETTLEMENT"
    ledger.set_now(EPOCH_S + 29)
    rejected = wire.example("o_1")
    assert (rejected.status, rejected.outcome) == (200, "refused")
    assert charged(rejected)["statusHistory"][0]["gatewayRejectionReason"] == "DUPLICATE"
    ledger.set_now(EPOCH_S + 31)
    assert charged(wire.example("o_1"))["id"] == "once00000002"


def test_another_order_or_amount_is_another_transaction(ledger: Ledger) -> None:
    """The content is amount, order and payment method, and nothing else."""
    wire = Wire(ledger, BRAINTREE)
    for request, outcome in (
        (wire.dialect.example(BRAINTREE, "o_1"), "executed"),
        (wire.dialect.example(BRAINTREE, "o_2"), "executed"),
        (wire.dialect.example(BRAINTREE, "o_1", 1), "executed"),
    ):
        assert wire.again(request).outcome == outcome
    same = wire.dialect.example(BRAINTREE, "o_1")
    noted = replace(same, body=same.body.replace(b'"transaction"', b'"clientMutationId": "x", "transaction"'))
    assert wire.again(noted).outcome == "refused"


def test_transactions_are_searched_by_their_order(ledger: Ledger) -> None:
    """The order id is how code finds out what has become of a lost answer."""
    wire = Wire(ledger, BRAINTREE)
    wire.example("o_1")
    wire.example("o_2", 1)
    found = wire.again(wire.dialect.example_lookup(BRAINTREE, "o_2"))
    edges = found.body["data"]["search"]["transactions"]["edges"]
    assert [edge["node"]["orderId"] for edge in edges] == ["o_2"]
    assert (found.outcome, wire.effects) == ("found", 2)


def test_a_search_that_was_held_up_comes_to_nothing(ledger: Ledger) -> None:
    """GraphQL asks by POST, which looks like acting to whoever holds it up."""
    wire = Wire(ledger, BRAINTREE)
    search = wire.dialect.example_lookup(BRAINTREE, "o_1")
    request = {"method": "POST", "path": "/graphql", "headers": dict(search.headers), "body": search.body}
    ledger.hold("pay", "POST /graphql", request)
    assert deliver(ledger, 1) is None


def test_what_is_not_valid_is_told_with_status_200(ledger: Ledger) -> None:
    """GraphQL's own errors are in the body."""
    wire = Wire(ledger, BRAINTREE)
    bad = wire.dialect.example(BRAINTREE, "o_1")
    reply = wire.again(replace(bad, body=bad.body.replace(b'"10.00"', b'"ten"')))
    assert (reply.status, reply.body["errors"][0]["extensions"]["errorClass"]) == (200, "VALIDATION")
    assert reply.body["errors"][0]["extensions"]["inputPath"] == ["input", "transaction", "amount"]
    assert wire.effects == 0


def charging(looks: bool) -> Callable[[Once], None]:
    """Charge an order once; a restart relies on the window, or looks first."""

    def body(once: Once) -> None:
        pay = once.provider("braintree", contract="braintree")

        def send(client: httpx.Client, request: Any) -> Any:
            url = f"{pay.url}{request.path}"
            return client.post(url, content=request.body, headers=dict(request.headers)).json()["data"]

        with closing(sqlite3.connect(once.path / "tasks.db", isolation_level=None)) as db:
            db.execute("CREATE TABLE IF NOT EXISTS done(order_id)")
            if db.execute("SELECT 1 FROM done").fetchone() is not None:
                return
            with httpx.Client(verify=False) as client:
                search = BRAINTREE_GRAPHQL.example_lookup(BRAINTREE, "o_1")
                if not looks or not send(client, search)["search"]["transactions"]["edges"]:
                    send(client, BRAINTREE_GRAPHQL.example(BRAINTREE, "o_1"))
            db.execute("INSERT INTO done VALUES ('o_1')")

    return body


@pytest.mark.slow
def test_the_window_covers_a_quick_restart_only() -> None:
    """A restart after half a minute charges again; searching for the order first does not."""
    how: dict[str, Any] = {"profile": "crash", "restart_after": ("0s", "31s")}
    wrong = explore(charging(looks=False), **how)
    assert wrong.verdict is Verdict.DUPLICATE, told(wrong)
    right = explore(charging(looks=True), **how)
    assert (right.verdict, right.coverage) == (Verdict.EXACTLY_ONCE, "exhausted"), told(right)
