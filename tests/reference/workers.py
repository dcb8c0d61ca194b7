"""Workers built of the reference, one life each, for every test that explores them.

Each takes the databases it works on, so that the same worker runs on every store; what is not written for both kinds of
database (`Relay` and `AsyncRelay`) is here twice.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from once_fakes import CLIENT_KEY, NONE, Contract, Provider
from pytest_once import Once, Verdict
from pytest_once.reference import outbox
from pytest_once.reference.answers import Answer, Applied, Failed
from pytest_once.reference.backlog import dead_letters
from pytest_once.reference.claims import Delivery
from pytest_once.reference.databases import AsyncDatabase
from pytest_once.reference.gate import AsyncGate, Gate, Unknown
from pytest_once.reference.identity import Effect, uuid7
from pytest_once.reference.inbox import Inbox
from pytest_once.reference.messages import Command, Fact
from pytest_once.reference.planning import Planned, plan
from pytest_once.reference.promise import NOTHING, Promise
from pytest_once.reference.reconciler import AsyncReconciler, Found, Lookup, Reconciler, Sought
from pytest_once.reference.relay import AsyncRelay, Relay, Send, Terms, one_by_one
from pytest_once.reference.steps import Statement, Steps
from pytest_once.reference.transitions import Attempt, Request
from tests.reference.conftest import OnALoop, Store
from tests.reference.messages import report


class Later(Exception):
    """The worker has tried for long enough, and is started again."""


# -- planning ------------------------------------------------------------------------------------------------


def plan_and_pay(store: Store, pay: Provider, *, stored: bool) -> None:
    """Plan a refund under a random id, and pay under that id. stored: not under one that is made when it is sent."""
    refund = Planned("pay", Effect("refund", bearing=("order",)), {"order": "o1"})
    (intent,) = store.transact(plan("acme", "t1", "refund", [refund], now=time.time(), new_id=uuid7))
    pay.call("refund", dict(intent.payload), key=intent.intent_id if stored else uuid7()).raise_for_status()


# -- outbox, relay, inbox ------------------------------------------------------------------------------------

FACT = report(1)
DASHBOARD = Inbox("dashboard")
FACTS = Terms(kind=Fact, name="relay")
COMMANDS = Terms(kind=Command, name="relay")


def save(allowed: int | None = None) -> Steps[None]:
    """The report is saved, and with it the news, under the id that the report's version has."""
    yield Statement("INSERT INTO tasks VALUES ('acme', 'report-17', 'v1', 1) ON CONFLICT DO NOTHING")
    yield from outbox.put(FACT, now=time.time(), allowed=allowed)


def ask(allowed: int | None = None) -> Steps[None]:
    """A refund is asked for."""
    command = Command(
        event_id="acme:t1:pay:refund",
        event_type="refund",
        tenant="acme",
        object_id="o1",
        version=1,
        payload={"amount": 5},
    )
    yield from outbox.put(command, now=time.time(), allowed=allowed)


def show(fact: Fact) -> Steps[None]:
    """The consumer's change: one more line on the dashboard."""
    yield Statement("INSERT INTO shown VALUES (?)", (fact.event_id,))


def what_is_shown() -> Steps[list[str]]:
    return [str(event) for (event,) in (yield Statement("SELECT event FROM shown"))]


def publish_change(store: Store, site: Provider) -> None:
    """Save a report and its news, and publish what is in the outbox; without a relay: the change and nothing else."""
    store.transact(save())
    waiting = store.transact(outbox.look_up(FACT.event_id))
    assert waiting is not None, "the change has committed, and its news with it"
    if waiting.applied_at is None:
        site.call("publish", dict(waiting.message.payload), key=waiting.message.event_id).raise_for_status()
        store.transact(outbox.applied(FACT.event_id, evidence="published", now=time.time()))


def take_and_publish(store: Store, inbox: Callable[[], Steps[Answer]], site: Provider) -> None:
    """Take a delivery, and publish the dashboard under its content: showing it twice is another effect than once."""
    store.transact(inbox())
    shown = store.transact(what_is_shown())
    site.call("publish", {"shown": shown}, key=",".join(shown)).raise_for_status()


def taken() -> Steps[Answer]:
    """The delivery, through the inbox."""
    return (yield from DASHBOARD.receive(FACT, 1, show, now=time.time()))


def taken_without_inbox() -> Steps[Answer]:
    """The known-bad twin of `taken`."""
    yield from show(FACT)
    return Applied("shown")


def refunding(pay: Provider, key: Callable[[Delivery], str | None]) -> Send:
    def call(delivery: Delivery) -> Answer:
        reply = pay.call("refund", dict(delivery.message.payload), key=key(delivery))
        return Applied(f"status {reply.status}") if reply.status < 400 else Failed(f"status {reply.status}")

    return one_by_one(call)


def own_id(delivery: Delivery) -> str:
    return delivery.event_id


def by_attempt(delivery: Delivery) -> str:
    return f"{delivery.event_id}:{delivery.token}"


def relay_to(
    store: Store,
    once: Once,
    contract: str,
    *,
    key: Callable[[Delivery], str | None] = own_id,
    rounds: int = 2,
    allowed: int | None = None,
) -> None:
    """Ask for a refund, and relay that to a provider. allowed: attempts; then a dead letter asks for a person."""
    send = refunding(once.provider("pay", contract=contract), key)
    store.transact(ask(allowed))
    if not _drained(store, send, rounds):
        raise Later
    if allowed is not None and store.transact(dead_letters()):
        once.claim("unknown")


def _drained(store: Store, send: Send, rounds: int) -> bool:
    if not isinstance(store, OnALoop):
        return Relay(store, send, COMMANDS).drain(rounds)

    async def send_async(batch: Sequence[Delivery]) -> Mapping[str, Answer]:
        return send(batch)

    return store.run(AsyncRelay(store.database, send_async, COMMANDS).drain(rounds))


# -- gate and reconciler -------------------------------------------------------------------------------------

REFUND = Request("shop:order_1:refund:pay", "refund", {"client_ref": "order_1", "amount": 5})
SEEN = Contract(name="seen", dedup="none", lookup="by_client_ref")
SEEN_AND_KEYED = Contract(name="seen_and_keyed", lookup="by_client_ref")
LEASE_S = 30.0

FOR_EVER = Promise(key_retention_s=math.inf)
ARRIVES_AT_ONCE = Promise(request_lifetime_s=0.0, visibility_lag_s=0.0)
"""What a look-up needs, and no provider can promise of the network: nothing is on its way when the lease has ended."""


@dataclass(frozen=True)
class Case:
    """A provider, what the gate believes of it, and what must come of that. escalates: Unknown is the last word."""

    name: str
    contract: Contract
    promise: Promise
    verdict: Verdict
    escalates: bool = False


KEYS = Case("keys", CLIENT_KEY, FOR_EVER, Verdict.EXACTLY_ONCE)
NEITHER = Case("neither", NONE, NOTHING, Verdict.ESCALATED, escalates=True)
LOOK_UP = Case("look-up", SEEN, ARRIVES_AT_ONCE, Verdict.EXACTLY_ONCE)
DOUBTED = Case("doubted look-up", SEEN, NOTHING, Verdict.ESCALATED, escalates=True)
LOOK_UP_AND_KEYS = Case("look-up and keys", SEEN_AND_KEYED, FOR_EVER, Verdict.EXACTLY_ONCE)


def _act(pay: Provider) -> Callable[[Attempt], Any]:
    def act(attempt: Attempt) -> Any:
        payload = {"client_ref": "order_1", "amount": 5}
        return pay.call("refund", payload, key=attempt.key).raise_for_status().body["id"]

    return act


def _lookups(pay: Provider) -> dict[str, Lookup]:
    def exact(sought: Sought) -> list[Found]:
        reply = pay.find(sought.payload["client_ref"])
        return [] if reply.status == 404 else [Found(reply.raise_for_status().body["id"])]

    return {"refund": Lookup(exact=exact)} if pay.contract.lookup != "none" else {}


def refund_on(store: Store, once: Once, case: Case, *, reconciles: bool = True) -> None:
    """Reconcile, and then refund once through the gate."""
    pay = once.provider("pay", contract=case.contract)
    promises = {"refund": case.promise}
    asking: dict[str, Any] = {"promises": promises, "patience_s": math.inf}
    gated: dict[str, Any] = {"promises": promises, "lease_s": LEASE_S, "history": 1}

    async def on_a_loop(database: AsyncDatabase) -> None:
        if reconciles:
            await AsyncReconciler(database, _lookups(pay), **asking).run()
        await AsyncGate(database, **gated).call(REFUND, _act(pay))

    try:
        if isinstance(store, OnALoop):
            store.run(on_a_loop(store.database))
            return
        if reconciles:
            Reconciler(store, _lookups(pay), **asking).run()
        Gate(store, **gated).call(REFUND, _act(pay))
    except Unknown:
        _escalate(once, case)


def _escalate(once: Once, case: Case) -> None:
    if not case.escalates:
        raise
    # Said without the reason, which the exploration leaves out of the state.
    once.claim("unknown")
