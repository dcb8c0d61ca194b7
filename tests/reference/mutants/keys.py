"""Mistakes in the identity: too many names for one action, or one name for several."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Any

from once_fakes import CLIENT_KEY, CLIENT_KEY_24H, Contract, Provider
from pytest_once import Once, Verdict
from pytest_once.reference.databases import SQLite
from pytest_once.reference.gate import Conflict, Gate, Unknown
from pytest_once.reference.identity import Effect, intent_id, once_id, uuid7
from pytest_once.reference.planning import Planned, plan
from pytest_once.reference.promise import Promise
from pytest_once.reference.transitions import Attempt, Request
from tests.reference.mutants.scenes import (
    BLIND,
    FOR_EVER,
    LEASE_S,
    PAYLOAD,
    REFUND,
    RETRIED,
    Mutant,
    keyed,
    refunding,
    replaced,
)

DUPLICATE, OMISSION = Verdict.DUPLICATE, Verdict.OMISSION

with_keys = refunding(contract=CLIENT_KEY, promise=FOR_EVER, escalates=False)
"""The intent's id is the provider's key, on every attempt and after every restart."""


# -- several names for one action ----------------------------------------------------------------------------


def _key_per_attempt(pay: Provider, attempt: Attempt) -> Any:
    key = f"{attempt.key}:{attempt.number}"
    return pay.call("refund", PAYLOAD, key=key).raise_for_status().body["id"]


def _dated_request() -> Request:
    return Request(f"refund-{time.time():.0f}", REFUND.tool, PAYLOAD)


def _planned(once: Once, files: Path, stored: bool) -> None:
    pay = once.provider("pay", contract="client_key")
    step = Planned("pay", Effect("refund", bearing=("client_ref", "amount")), PAYLOAD)
    with closing(SQLite(once.track(files) / "agent.db")) as database:
        (intent,) = database.transact(plan("shop", "t1", "refund", [step], now=time.time(), new_id=uuid7))
        key = intent.intent_id if stored else uuid7()
        pay.call("refund", dict(intent.payload), key=key).raise_for_status()


def _asked_by_a_model(once: Once, files: Path, identity: str) -> None:
    """A model calls a tool again in its own words; the tool names the intent."""
    pay = once.provider("pay")
    with closing(SQLite(once.track(files) / "agent.db")) as database:
        door = Gate(database, lease_s=LEASE_S, history=1)

        def refund(note: str, call_id: str) -> Any:
            names = {"arguments": once_id(["refund", "order_1", note]), "call": call_id, "plan": REFUND.id}
            request = Request(names[identity], "refund", PAYLOAD)
            return door.call(request, lambda attempt: keyed(pay, attempt)).result

        try:
            once.agent(refund, call_id="call_id", reworded={"note": "as asked"})(note="")
        except Unknown:
            once.claim("unknown")


def _asked_by_the_plan(once: Once, files: Path) -> None:
    _asked_by_a_model(once, files, "plan")


# -- one name for several actions ----------------------------------------------------------------------------

TENANTS = ("acme", "umbrella")


def _two_tenants(once: Once, files: Path, named: bool) -> None:
    """Two tenants, each with an account of its own, have an order of the same number."""
    pay = once.provider("pay", contract=CLIENT_KEY)
    with closing(SQLite(once.track(files) / "agent.db")) as database:
        door = Gate(database, promises={"refund": FOR_EVER}, lease_s=LEASE_S, history=1)
        for tenant in TENANTS:

            def act(attempt: Attempt, tenant: str = tenant) -> Any:
                key = f"{tenant}/{attempt.key}"  # the credentials tell the provider whose key it is
                return pay.call("refund", {"account": tenant, **PAYLOAD}, key=key).raise_for_status().body["id"]

            identity = intent_id(tenant if named else "shop", "order_1", "refund", "pay")
            door.call(Request(identity, "refund", PAYLOAD), act)


def _two_amounts(once: Once, files: Path, *mistakes: Any) -> None:
    """The model asks for two refunds of one order, and calls both by one name; a conflict gets a name of its own."""
    pay = once.provider("pay", contract=CLIENT_KEY)
    with closing(SQLite(once.track(files) / "agent.db")) as database, replaced(*mistakes):
        door = Gate(database, promises={"refund": FOR_EVER}, lease_s=LEASE_S, history=1)
        for part, amount in enumerate((5, 7)):
            payload = {"part": f"part_{part}", "amount": amount}

            def act(attempt: Attempt, payload: dict[str, Any] = payload) -> Any:
                return pay.call("refund", payload, key=attempt.key).raise_for_status().body["id"]

            try:
                door.call(Request(REFUND.id, "refund", payload), act)
            except Conflict:
                door.call(Request(f"{REFUND.id}-{part}", "refund", payload), act)


def _every_payload_is_the_same(self: Request, id: str, tool: str, payload: Any, fingerprint: str | None = None) -> None:
    _init(self, id, tool, payload, "unchecked")


_init = Request.__init__


REPLAYS = Contract(name="replays", on_mismatch="replay")


def _reread_amount(once: Once, files: Path, *mistakes: Any) -> None:
    """The amount is read again at each start, and may have changed since the first request was sent."""
    pay = once.provider("pay", contract=REPLAYS)
    amount = once.choose("the amount", ("5", "7"))
    with closing(SQLite(once.track(files) / "agent.db")) as database, replaced(*mistakes):
        door = Gate(database, promises={"refund": FOR_EVER}, lease_s=LEASE_S, history=1)

        def act(given: str) -> Any:
            payload = {"client_ref": "order_1", "amount": given}
            return lambda attempt: pay.call("refund", payload, key=attempt.key).raise_for_status().body["id"]

        def request(given: str) -> Request:
            return Request(REFUND.id, "refund", {"client_ref": "order_1", "amount": given})

        try:
            door.call(request(amount), act(amount))
        except Conflict:
            other = "7" if amount == "5" else "5"
            door.call(request(other), act(other))


# -- one name, forgotten -------------------------------------------------------------------------------------

KEPT_A_DAY = Promise(key_retention_s=86400.0, request_lifetime_s=3600.0)

MUTANTS = (
    Mutant("key-per-attempt", "Each attempt sends a key of its own.", DUPLICATE,
           refunding(contract=CLIENT_KEY, promise=FOR_EVER, act=_key_per_attempt, escalates=False), with_keys, RETRIED),
    Mutant("key-from-the-clock", "The intent is named after the time of the call.", DUPLICATE,
           refunding(contract=CLIENT_KEY, promise=FOR_EVER, request=_dated_request, escalates=False), with_keys,
           RETRIED),
    Mutant("key-made-in-recovery", "The random key is made when sending, not stored when planning.", DUPLICATE,
           lambda once, files: _planned(once, files, False), lambda once, files: _planned(once, files, True),
           {"key": "order_1", "profile": "crash"}),
    Mutant("key-from-arguments", "The intent is named after the arguments, and the model says it in other words.",
           DUPLICATE, lambda once, files: _asked_by_a_model(once, files, "arguments"),
           _asked_by_the_plan, BLIND, Verdict.ESCALATED),
    Mutant("key-from-the-call-id", "The intent is named after the tool call, and the model calls again.",
           DUPLICATE, lambda once, files: _asked_by_a_model(once, files, "call"),
           _asked_by_the_plan, BLIND, Verdict.ESCALATED),
    Mutant("key-without-tenant", "Two tenants' orders of one number share a name.", OMISSION,
           lambda once, files: _two_tenants(once, files, False), lambda once, files: _two_tenants(once, files, True),
           {**RETRIED, "redeliver": 0, "key": None, "keys": TENANTS}),
    Mutant("no-payload-check", "A known name gets its receipt, whatever is asked for under it.", OMISSION,
           lambda once, files: _two_amounts(once, files, (Request, "__init__", _every_payload_is_the_same)),
           _two_amounts, {**RETRIED, "redeliver": 0, "key": None, "keys": ("part_0", "part_1")}),
    Mutant("conflict-replayed", "A resend carries another payload under the old key; the provider replays.",
           Verdict.CONFLICT_MISSED,
           lambda once, files: _reread_amount(once, files, (Request, "__init__", _every_payload_is_the_same)),
           _reread_amount, {**RETRIED, "redeliver": 0}),
    Mutant("retention-shorter-than-retries", "Keys are kept for a day; the resend comes after 25 hours.", DUPLICATE,
           refunding(contract=CLIENT_KEY_24H, promise=FOR_EVER),
           refunding(contract=CLIENT_KEY_24H, promise=KEPT_A_DAY),
           {**BLIND, "ignore": RETRIED["ignore"], "restart_after": ("31s", "25h")}, Verdict.ESCALATED),
)  # fmt: skip
