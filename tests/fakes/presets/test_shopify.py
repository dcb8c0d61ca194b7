"""Shopify's idempotent mutations: the key is a directive, and refusals are HTTP 200."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from typing import Any

import httpx
import pytest

from once_fakes.presets.graphql import call_in
from once_fakes.presets.shopify import MUTATION, SHOPIFY
from pytest_once import Once, Report, Verdict, explore
from pytest_once.boundaries import ASKS, BEGIN, ORDER_HEADER
from pytest_once.clock import EPOCH_S
from pytest_once.ledger import Ledger
from tests.fakes.presets.wire import Wire, shown

PATH = "/admin/api/2026-04/graphql.json"
TOKEN = {"X-Shopify-Access-Token": "shpat_1"}
ADJUST = """
mutation Adjust($input: InventoryAdjustQuantitiesInput!, $key: String!) { # as in the documentation
  inventoryAdjustQuantities(input: $input) @idempotent(key: $key) {
    inventoryAdjustmentGroup { id changes { name delta } }
    userErrors { code field message }
  }
}
"""
INLINE = """
mutation {
  inventoryAdjustQuantities(input: {
    reason: "correction", name: "available",
    changes: [{delta: 5, inventoryItemId: "gid://shopify/InventoryItem/1", locationId: "gid://shopify/Location/2"}]
  }) @idempotent(key: "k") { userErrors { code } }
}
"""


def adjusting(delta: int = 5, key: str | None = "k") -> dict[str, Any]:
    change = {
        "delta": delta,
        "inventoryItemId": "gid://shopify/InventoryItem/1",
        "locationId": "gid://shopify/Location/2",
    }
    asked = {"reason": "correction", "name": "available", "changes": [change]}
    return {"query": ADJUST, "variables": {"input": asked, "key": key}}


def errors_of(body: Any) -> list[str]:
    return [error["code"] for error in body["data"][MUTATION]["userErrors"]]


@pytest.fixture
def shopify(ledger: Ledger) -> Wire:
    wire = Wire(ledger, SHOPIFY)
    wire.headers = {name.lower(): value for name, value in TOKEN.items()}
    return wire


def test_the_directive_is_the_key(shopify: Wire) -> None:
    """Whether the arguments are variables or stand in the document, it is the same request."""
    first, again, inline = (shopify.send("POST", PATH, body) for body in (adjusting(), adjusting(), {"query": INLINE}))
    assert (first.status, first.content, first.content) == (200, again.content, inline.content)
    assert shown(first)["data"][MUTATION]["inventoryAdjustmentGroup"]["changes"][0]["delta"] == 5
    assert shopify.outcomes == ["executed", "replayed", "replayed"]
    assert "key" not in str([effect.payload for effect in shopify.ledger.effects()])


def test_refusals_of_the_key_are_user_errors_with_status_200(shopify: Wire) -> None:
    """A client that only looks at the status takes a refusal for success."""
    shopify.send("POST", PATH, adjusting())
    mismatch = shopify.send("POST", PATH, adjusting(6))
    assert (mismatch.status, errors_of(shown(mismatch))) == (200, ["IDEMPOTENCY_KEY_PARAMETER_MISMATCH"])
    shopify.send("POST", PATH, adjusting(7, "k2"), {ORDER_HEADER: f"{ASKS},{BEGIN}"})
    working = shopify.send("POST", PATH, adjusting(7, "k2"))
    assert (working.status, errors_of(shown(working))) == (200, ["IDEMPOTENCY_CONCURRENT_REQUEST"])

    without = shopify.send("POST", PATH, {**adjusting(), "query": ADJUST.replace("@idempotent(key: $key)", "")})
    assert (without.status, shown(without)["errors"][0]["extensions"]) == (200, {"code": "BAD_REQUEST"})


def test_a_key_is_known_for_a_day_and_in_one_shop(shopify: Wire) -> None:
    """After 24 hours a retry is a new request."""
    shopify.send("POST", PATH, adjusting())
    shopify.send("POST", PATH, adjusting(), {"x-shopify-access-token": "shpat_2"})
    shopify.ledger.set_now(EPOCH_S + 86400)
    shopify.send("POST", PATH, adjusting())
    assert len(shopify.ledger.effects()) == 3
    assert "shpat" not in str(shopify.ledger.arrivals())


def test_what_shopify_does_not_accept(shopify: Wire) -> None:
    """Each refusal is in the form that Shopify gives it: user errors, GraphQL errors, or an HTTP status."""
    body = adjusting()
    body["variables"]["input"]["changes"][0]["locationId"] = "2"
    wrong = shopify.send("POST", PATH, body)
    assert (wrong.status, errors_of(shown(wrong))) == (200, ["INVALID_LOCATION"])
    assert shown(shopify.send("POST", PATH, {"query": "mutation { a"}))["errors"][0]["message"].startswith(
        "syntax error"
    )
    unknown = shown(shopify.send("POST", PATH, {"query": "mutation { orderDelete(id: 1) { userErrors } }"}))
    assert unknown["errors"][0]["extensions"]["fieldName"] == "orderDelete"
    assert shopify.send("POST", PATH, b"[]").status == 400
    assert shopify.send("POST", "/admin/api/latest/graphql.json", adjusting()).status == 404
    shopify.headers = {}
    assert shopify.send("POST", PATH, adjusting()).status == 401
    assert shopify.ledger.effects() == []


def test_a_document_is_read_to_its_end() -> None:
    """What cannot be read must not pass for something else."""
    call = call_in(
        'mutation M($a: [Int!]! = [1]) @x { b: f(a: $a, c: {d: [1.5, -2, OPEN, null, """t"""]}, e: $e) }', {"a": 3}
    )
    assert (call.kind, call.field, dict(call.directives)) == ("mutation", "f", {"x": {}})
    assert call.arguments == {"a": 3, "c": {"d": [1.5, -2, "OPEN", None, "t"]}}
    for wrong in (
        "",
        "mutation",
        "{ f(a: ) }",
        "{ f(a: [) }",
        "{ f { ] } }",
        "{ f(a: !) }",
        '{ f(a: "\\x") }',
        "{ f ; }",
    ):
        with pytest.raises(ValueError, match=r"."):
            call_in(wrong, {})


class TooLate(Exception):
    """The key may have been forgotten: sending again might adjust again."""


def adjust_once(careful: bool) -> Report:
    """Adjust for one delivery; careful: with a key of the delivery's own, and for as long as it is known."""

    def body(once: Once) -> None:
        shopify = once.provider("shop", contract=SHOPIFY)
        with closing(sqlite3.connect(once.path / "stock.db")) as database, shopify.router:
            database.execute("CREATE TABLE IF NOT EXISTS deliveries(id PRIMARY KEY, begun_s REAL, done INTEGER)")
            database.execute("INSERT OR IGNORE INTO deliveries VALUES (5, ?, 0)", (time.time(),))
            database.commit()
            begun_s, done = database.execute("SELECT begun_s, done FROM deliveries").fetchone()
            if done:
                return
            if careful and time.time() - begun_s > 23 * 3600:
                raise TooLate
            used = "delivery-5" if careful else f"attempt {len(once.ledger.arrivals())}"
            with httpx.Client(base_url=shopify.base_url, headers=TOKEN, verify=False) as client:
                answer = client.post(PATH, json=adjusting(key=used)).raise_for_status().json()
            if errors_of(answer):
                raise RuntimeError("not done, as far as is known")
            database.execute("UPDATE deliveries SET done = 1")
            database.commit()

    return explore(body, soft_faults=0, restart_after=("0s", "25h"), blocked=(TooLate,))


@pytest.mark.slow
def test_a_key_for_each_attempt_adjusts_twice() -> None:
    """The directive protects only who uses the same key again (S1.4, S3.2)."""
    assert adjust_once(careful=False).verdict is Verdict.DUPLICATE
    careful = adjust_once(careful=True)
    assert (careful.verdict, careful.coverage) == (Verdict.ESCALATED, "exhausted"), careful.problem
    assert careful.passed
