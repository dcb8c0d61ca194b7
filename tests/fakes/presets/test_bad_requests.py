"""Whatever a client sends, these providers answer in their own words, and never with an exception."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from once_fakes import Contract
from once_fakes.dialect import dialect_of
from once_fakes.presets.github import GITHUB_ISSUES
from once_fakes.presets.google import GOOGLE_REQUEST_ID
from once_fakes.presets.ietf_draft import IETF_DRAFT
from once_fakes.presets.kafka import KAFKA_PRODUCER
from once_fakes.presets.kubernetes import KUBERNETES, KUBERNETES_UPDATE
from once_fakes.presets.shopify import SHOPIFY
from once_fakes.presets.warehouse import WAREHOUSE_DEDUP, WAREHOUSE_NO_DEDUP
from once_fakes.settling import shown_effect
from pytest_once.ledger import Ledger
from tests.fakes.presets.wire import Wire, shown

IS_ERROR: dict[Contract, Callable[[Any], bool]] = {
    GITHUB_ISSUES: lambda body: {"message", "documentation_url", "status"} <= body.keys(),
    GOOGLE_REQUEST_ID: lambda body: {"code", "message", "status"} <= body["error"].keys(),
    IETF_DRAFT: lambda body: {"type", "title", "status", "detail"} <= body.keys(),
    KAFKA_PRODUCER: lambda body: {"error_code", "message"} <= body.keys(),
    KUBERNETES: lambda body: body["kind"] == "Status" and body["reason"],
    KUBERNETES_UPDATE: lambda body: body["kind"] == "Status" and body["reason"],
    SHOPIFY: lambda body: "errors" in body,
    WAREHOUSE_DEDUP: lambda body: {"type", "message"} <= body["error"].keys(),
    WAREHOUSE_NO_DEDUP: lambda body: {"type", "message"} <= body["error"].keys(),
}
CONTRACTS = pytest.mark.parametrize("contract", IS_ERROR, ids=lambda contract: contract.name)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def mangled(body: Any, path: list[int], value: Any) -> Any:
    """The body with something else in one place."""
    if isinstance(body, dict) and body and path:
        name = sorted(body)[path[0] % len(body)]
        return {**body, name: mangled(body[name], path[1:], value)}
    if isinstance(body, list) and body and path:
        at = path[0] % len(body)
        return [*body[:at], mangled(body[at], path[1:], value), *body[at + 1 :]]
    return value


def judged(wire: Wire, method: str, path: str, body: bytes, headers: dict[str, str]) -> None:
    reply = wire.send(method, path, body, headers)
    document = shown(reply)
    assert 200 <= reply.status < 500
    if reply.status >= 400:
        assert IS_ERROR[wire.contract](document), document
    assert reply.headers["content-type"].startswith("application/")


@CONTRACTS
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_request_with_something_wrong_is_answered(contract: Contract, ledger: Ledger, data: st.DataObject) -> None:
    """Method, path, a header, a place in the body, or all of its bytes."""
    wire = Wire(ledger, contract)
    good = dialect_of(contract).example(contract, data.draw(st.sampled_from([None, "k", "tenant:k", "k" * 300])))
    method, path, headers, body = good.method, good.path, dict(good.headers), good.body
    query = f"?{good.query}" if good.query else ""
    match data.draw(st.sampled_from(["method", "path", "query", "header", "body", "bytes"])):
        case "method":
            method = data.draw(st.sampled_from(["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"]))
        case "path":
            path += data.draw(st.sampled_from(["/", "//", "/x", "/x/y", "%00", "?", "x"]))
        case "query":
            query = "?" + data.draw(
                st.sampled_from(["requestId=", "requestId=x", "a=1&a=2", "%ff=%ff", "&&", "page=-1"])
            )
        case "header":
            name = data.draw(st.sampled_from(sorted(headers)))
            headers[name] = data.draw(st.text(st.characters(max_codepoint=255), max_size=300))
        case "body":
            changed = mangled(
                json.loads(body), data.draw(st.lists(st.integers(0, 5), max_size=6)), data.draw(json_values)
            )
            body = json.dumps(changed).encode()
        case "bytes":
            body = data.draw(st.binary(max_size=50))
    judged(wire, method, path + query, body, headers)


@CONTRACTS
def test_the_usual_mistakes(contract: Contract, ledger: Ledger) -> None:
    """Too large, nested too deeply, a number too long, surrogates: each has killed some server."""
    wire = Wire(ledger, contract)
    good = dialect_of(contract).example(contract, "k")
    path, headers = good.path, dict(good.headers)
    for body in (b"x" * (2**20 + 1), b"[" * 100_000, b'{"a":' + b"9" * 5000 + b"}", b"{", b"\xff", b'"\\ud800'):
        judged(wire, good.method, path, body, headers)
    assert ledger.effects() == []
    judged(wire, good.method, path, b'{"title":"\\ud800"}', headers)


@CONTRACTS
def test_examples_are_understood(contract: Contract, ledger: Ledger) -> None:
    """Whoever tests a fake in general speaks to it through its examples."""
    wire = Wire(ledger, contract)
    first, again, other = wire.example("a"), wire.example("a"), wire.example("b", 1)
    assert (first.outcome in ("executed", "accepted"), other.outcome) == (True, first.outcome), shown(first)
    assert (again.outcome == first.outcome) == (contract.dedup == "none"), shown(again)
    ledger.set_now(2e9)
    assert contract.lookup == "none" or wire.lookup(None).outcome == "found"
    assert len(ledger.effects()) == (3 if contract.dedup == "none" else 2)
    if contract.lookup != "none":
        known = [dialect_of(contract).identifier(contract, one) for one in map(shown_effect, ledger.effects())]
        assert [wire.lookup(name).outcome for name in known] == ["found"] * len(known)
        assert wire.lookup("unknown").outcome == "not_found"
