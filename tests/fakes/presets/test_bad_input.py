"""Whatever arrives, a preset answers with its provider's own error document, and nothing acts by accident."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from once_fakes import Contract, Reply, contracts
from once_fakes.held import deliver
from pytest_once.clock import EPOCH_S
from pytest_once.ledger import Ledger
from tests.fakes.presets.requests_of import Wire, mutated


def of_stripe(body: dict[str, Any]) -> bool:
    return {"type", "message"} <= set(body["error"])


def of_paypal(body: dict[str, Any]) -> bool:
    return {"name", "message", "debug_id", "details"} <= body.keys()


def of_adyen(body: dict[str, Any]) -> bool:
    return {"status", "errorCode", "message", "errorType"} == body.keys()


def of_square(body: dict[str, Any]) -> bool:
    return all({"category", "code", "detail"} <= error.keys() for error in body["errors"])


def of_braintree(body: dict[str, Any]) -> bool:
    return all({"message", "extensions"} <= error.keys() for error in body["errors"])


IsError = Callable[[dict[str, Any]], bool]
PRESETS: list[tuple[Contract, IsError]] = [
    (contracts.stripe_v1, of_stripe),
    (contracts.stripe_v2, of_stripe),
    (contracts.paypal_payments, of_paypal),
    (contracts.paypal_orders, of_paypal),
    (contracts.paypal_vault, of_paypal),
    (contracts.adyen, of_adyen),
    (contracts.square, of_square),
    (contracts.braintree, of_braintree),
]
each = pytest.mark.parametrize(("contract", "is_error"), PRESETS, ids=[contract.name for contract, _ in PRESETS])


def refused(reply: Reply, is_error: IsError, statuses: tuple[int, ...]) -> None:
    assert reply.status in statuses, reply.body
    assert is_error(reply.body), reply.body
    assert json.loads(reply.content) == reply.body


@each
def test_bad_requests_get_the_providers_error_document(contract: Contract, is_error: IsError, ledger: Ledger) -> None:
    """Issue 4, point 8: a client that parses errors must be able to parse each of these."""
    wire = Wire(ledger, contract)
    good = wire.dialect.example(contract, "k")
    without = {name: text for name, text in good.headers.items() if name not in ("authorization", "x-api-key")}

    refused(wire.send(good.method, good.path, good.body, without), is_error, (401,))
    refused(wire.send("POST", "/v9/nonsense", good.body, good.headers), is_error, (404,))
    refused(wire.send("PUT", good.path, good.body, good.headers), is_error, (404, 405))
    refused(wire.send(good.method, good.path, b"[[[=\xff", good.headers), is_error, (400,))
    refused(wire.send(good.method, good.path, b"x" * (1024 * 1024 + 1), good.headers), is_error, (413,))
    if contract.dedup == "client_key":
        for key in ("k" * (contract.max_key_length + 1), "kéy", "a\x00b"):
            refused(wire.again(wire.dialect.example(contract, key)), is_error, (400,))
    if contract.on_missing_key == "error":
        refused(wire.example(None), is_error, (400,))
    assert wire.effects == 0


@each
def test_a_failing_provider_speaks_its_own_language(contract: Contract, is_error: IsError, ledger: Ledger) -> None:
    """A 500 in another format would make clients fail where the real one lets them try again."""
    wire = Wire(ledger, contract)
    refused(wire.example("k", once_order="fail"), is_error, (500,))
    assert wire.effects == 0


@each
def test_ids_and_instants_are_the_same_each_time(contract: Contract, is_error: IsError, tmp_path: Path) -> None:
    """Documents are state: a random id would make every life another world."""
    answers = []
    for number in range(2):
        ledger = Ledger.create(tmp_path / f"{number}.db")
        ledger.set_now(EPOCH_S + 1000 * number)
        answers.append([Wire(ledger, contract).example(key, variant).content for variant, key in enumerate("ab")])
    assert answers[0] == answers[1]
    assert answers[0][0] != answers[0][1]


@each
def test_a_request_that_was_held_up_acts_for_its_account(contract: Contract, is_error: IsError, ledger: Ledger) -> None:
    """Its credentials are not kept on its way; were it refused for that, late requests would do no harm, which is
    wrong."""
    wire = Wire(ledger, contract)
    late = wire.dialect.example(contract, "k")
    held = {"method": late.method, "path": late.path, "headers": dict(late.headers), "body": late.body}
    ledger.hold("pay", f"{late.method} {late.path}", held)
    assert "A21AA" not in str(ledger.in_flight()) and "sk_test" not in str(ledger.in_flight())
    arrived = deliver(ledger, 1)
    assert arrived is not None and arrived.outcome in ("executed", "accepted")
    if contract.dedup == "client_key":
        assert wire.example("k").outcome == "replayed"


@each
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_no_body_and_no_path_is_an_exception(contract: Contract, is_error: IsError, data: st.DataObject) -> None:
    """Issue 4, point 8: never a traceback, whatever the bytes."""
    with tempfile.TemporaryDirectory() as directory:
        wire = Wire(Ledger.create(Path(directory) / "ledger.db"), contract)
        good = wire.dialect.example(contract, "k")
        body = data.draw(mutated(good))
        query = data.draw(st.text(st.characters(codec="ascii", exclude_characters="#"), max_size=12))
        method = data.draw(st.sampled_from(["POST", "GET", "HEAD", "PUT", "OPTIONS"]))
        paths = [good.path, f"{good.path}/x%ff", f"{good.path}/search", "/", "//", "/v1/oauth2/token"]
        path = data.draw(st.sampled_from(paths))
        reply = wire.send(method, f"{path}?{query}", body, good.headers)
        assert isinstance(json.loads(reply.content), dict)
        if reply.status >= 400:
            assert is_error(reply.body)
        assert wire.effects == wire.outcomes.count("executed")
