"""The tool of every example here: it asks a payment provider for a refund. Bare, with a key, and behind the gate.

The provider: `POST /refunds` with JSON `{"order": ..., "amount": ...}` answers `{"id": ...}`. What it promises is
said by each test's contract.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import httpx

from once_fakes import Contract
from pytest_once.reference.databases import SQLite
from pytest_once.reference.gate import Gate, NotExecuted
from pytest_once.reference.identity import intent_id
from pytest_once.reference.promise import Promise
from pytest_once.reference.reconciler import Found, Lookup, Reconciler, Sought
from pytest_once.reference.transitions import Attempt, Request

Refund = Callable[[str, int], str]

KEYS_FOR_EVER = Promise(key_retention_s=math.inf)
"""A provider that knows every Idempotency-Key again."""

WITHOUT_KEYS = Contract(name="without_keys", dedup="none", lookup="by_client_ref", reference_field="order")
"""A provider that acts on whatever arrives, but can be asked for the refund of an order."""

AT_ONCE = Promise(request_lifetime_s=0.0, visibility_lag_s=0.0)
"""What a look-up needs in order to prove absence: nothing is on its way any more when the lease has ended."""

LEASE_S = 30.0
AFTER_THE_LEASE = ("31s",)

DECIDES_NOTHING = ("gate_intents.attempts", "*.attempt", "*.reason", "gate_*.*_at")
"""In the gate's tables: the fencing token (any number will do), and what is written for people only."""


class Unconfirmed(Exception):
    """It may have been refunded, or may be still."""


def unprotected(url: str) -> Refund:
    """As it is usually written: right, as long as it is called once."""

    def refund(order: str, amount: int) -> str:
        """Refund an order. amount: in cents."""
        return send(url, order, amount)

    return refund


def keyed(url: str) -> Refund:
    """With a key made of the intent: enough where the provider promises to know it again."""

    def refund(order: str, amount: int) -> str:
        """Refund an order. amount: in cents."""
        return send(url, order, amount, key=intent(order))

    return refund


def protected(url: str, gates: SQLite, promise: Promise = KEYS_FOR_EVER) -> Refund:
    """Behind the gate: one refund for each order, whoever calls again and why."""
    gate = Gate(gates, promises={"refund": promise}, lease_s=LEASE_S, history=1)

    def refund(order: str, amount: int) -> str:
        """Refund an order. amount: in cents."""

        def act(attempt: Attempt) -> str:
            return send(url, order, amount, key=attempt.key)

        try:
            return str(gate.call(Request(intent(order), "refund", {"order": order, "amount": amount}), act).result)
        except NotExecuted as error:
            # In words that stay the same: frameworks store what a tool says, and models read it.
            raise Unconfirmed(f"the refund of {order} is not confirmed yet; do not repeat it") from error

    return refund


def reconcile(url: str, gates: SQLite) -> None:
    """Ask the provider about every refund of which nothing is known. A real one runs on a schedule."""

    def exact(sought: Sought) -> list[Found]:
        response = httpx.get(f"{url}/refunds/{sought.payload['order']}")
        return [] if response.status_code == 404 else [Found(response.raise_for_status().json()["id"])]

    Reconciler(gates, {"refund": Lookup(exact=exact)}, promises={"refund": AT_ONCE}, patience_s=math.inf).run()


def intent(order: str) -> str:
    """The identity is the order's, not the call's: an order is refunded once, and the gate holds it to one amount."""
    return intent_id("shop", order, "refund", "pay")


def send(url: str, order: str, amount: int, key: str | None = None) -> str:
    """Ask the provider; its id of the refund. Raises httpx.HTTPError."""
    headers = {"Idempotency-Key": key} if key else {}
    response = httpx.post(f"{url}/refunds", json={"order": order, "amount": amount}, headers=headers, timeout=10.0)
    return str(response.raise_for_status().json()["id"])
