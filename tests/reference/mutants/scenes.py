"""What mutants and their correct twins have in common: a world, and bodies with one place for the mistake."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from unittest import mock

from once_fakes import NONE, Contract, Provider
from pytest_once import Once, Verdict
from pytest_once.reference import outbox
from pytest_once.reference.databases import Database, SQLite
from pytest_once.reference.gate import Gate, Unknown
from pytest_once.reference.inbox import Inbox
from pytest_once.reference.messages import Fact
from pytest_once.reference.promise import NOTHING, Promise
from pytest_once.reference.reconciler import Found, Lookup, Reconciler, Sought
from pytest_once.reference.relay import Relay, Send, Terms, into_inbox
from pytest_once.reference.steps import Statement, Steps
from pytest_once.reference.transitions import Attempt, Request

Body: TypeAlias = Callable[[Once, Path], None]
"""One life of a worker. The path is a directory with the two databases of `world`."""

Replacement: TypeAlias = tuple[Any, str, Any]
"""A module or class of the reference, the name of what is replaced in it, and the mistaken thing instead."""


@dataclass(frozen=True)
class Mutant:
    """A mistake, and the same code without it.

    what: the mistake in a sentence. wrong, right: bodies that differ in it only. how: arguments of `explore`.
    right_verdict: what becomes of the correct twin: exactly once, or escalated where no code could do better.
    wrong_how: arguments for the mistake alone; without any, its search ends early and leaves nothing out of the state.
    """

    name: str
    what: str
    verdict: Verdict
    wrong: Body
    right: Body
    how: Mapping[str, Any] = field(default_factory=dict)
    right_verdict: Verdict = Verdict.EXACTLY_ONCE
    wrong_how: Mapping[str, Any] = field(default_factory=dict)


def world(directory: Path) -> None:
    """The databases of the worker and of its consumer, migrated and empty, as a deployment leaves them."""
    for name in ("agent.db", "dashboard.db"):
        with closing(SQLite(directory / name)) as database:
            database.migrate()
            database.transact(_create())


def _create() -> Steps[None]:
    yield Statement("CREATE TABLE shown (report TEXT NOT NULL, version BIGINT NOT NULL)")
    yield Statement("CREATE TABLE work (id TEXT PRIMARY KEY, state TEXT NOT NULL)")


@contextmanager
def replaced(*replacements: Replacement) -> Iterator[None]:
    """The mistake is in force inside."""
    with ExitStack() as stack:
        for where, name, wrong in replacements:
            stack.enter_context(mock.patch.object(where, name, wrong))
        yield


# -- the gate ------------------------------------------------------------------------------------------------

REFUND = Request("shop:order_1:refund:pay", "refund", {"client_ref": "order_1", "amount": 5})
PAYLOAD = {"client_ref": "order_1", "amount": 5}
LEASE_S = 30.0

FOR_EVER = Promise(key_retention_s=math.inf)
AT_ONCE = Promise(request_lifetime_s=0.0, visibility_lag_s=0.0)
SEEN = Contract(name="seen", dedup="none", lookup="by_client_ref")

NOT_IN_THE_STATE = ("gate_intents.attempts", "*.attempt", "*.reason", "gate_*.*_at")
GATED: Mapping[str, Any] = {"key": "order_1", "profile": "crash", "restart_after": ("31s",)}
BLIND: Mapping[str, Any] = {**GATED, "blocked": ("unknown",)}
RETRIED: Mapping[str, Any] = {**GATED, "ignore": NOT_IN_THE_STATE}
"""Where attempts may go on for ever, their number must not be part of the state."""

Act: TypeAlias = Callable[[Provider, Attempt], Any]


def keyed(pay: Provider, attempt: Attempt) -> Any:
    """The correct call: under the intent's own key, and an answer that is no success is raised."""
    return pay.call("refund", PAYLOAD, key=attempt.key).raise_for_status().body["id"]


def exact(pay: Provider) -> dict[str, Lookup]:
    def look(sought: Sought) -> list[Found]:
        reply = pay.find(sought.payload["client_ref"])
        return [] if reply.status == 404 else [Found(reply.raise_for_status().body["id"])]

    return {"refund": Lookup(exact=look)}


def refunding(
    *mistakes: Replacement,
    contract: Contract = NONE,
    promise: Promise = NOTHING,
    act: Act = keyed,
    request: Callable[[], Request] = lambda: REFUND,
    escalates: bool = True,
    **gate: Any,
) -> Body:
    """A worker that reconciles, where it can ask, and then refunds once through the gate.

    escalates: UNKNOWN is its last word; else it is started again until more is known.
    """

    def body(once: Once, files: Path) -> None:
        pay = once.provider("pay", contract=contract)
        with closing(SQLite(once.track(files) / "agent.db")) as database, replaced(*mistakes):
            promises = {"refund": promise}
            try:
                if contract.lookup != "none":
                    Reconciler(database, exact(pay), promises=promises, patience_s=math.inf).run()
                door = Gate(database, **{"promises": promises, "lease_s": LEASE_S, "history": 1, **gate})
                door.call(request(), lambda attempt: act(pay, attempt))
            except Unknown:
                if not escalates:
                    raise
                once.claim("unknown")

    return body


# -- outbox and inbox ----------------------------------------------------------------------------------------

DASHBOARD = Inbox("dashboard")
FACTS = Terms(kind=Fact, name="relay")
OUTBOX: Mapping[str, Any] = {"profile": "crash", "ignore": ("outbox.attempts", "outbox.reason")}


def report(version: int = 1, **given: Any) -> Fact:
    """The news that a report was saved."""
    values: dict[str, Any] = {
        "event_id": f"acme:report-17:v{version}",
        "event_type": "report.saved",
        "tenant": "acme",
        "object_id": "report-17",
        "version": version,
        "payload": {"title": "Q3"},
    }
    return Fact(**{**values, **given})


def save(*facts: Fact, allowed: int | None = None) -> Steps[None]:
    """The change, and with it its news."""
    yield Statement("INSERT INTO work VALUES ('report-17', 'saved') ON CONFLICT DO NOTHING")
    for fact in facts:
        yield from outbox.put(fact, now=time.time(), allowed=allowed)


def show(fact: Fact) -> Steps[None]:
    """The consumer's change: one more line on the dashboard."""
    yield Statement("INSERT INTO shown VALUES (?, ?)", (fact.object_id, fact.version))


def overwrite(fact: Fact) -> Steps[None]:
    """The change of a consumer that shows the object as it is now."""
    yield Statement("DELETE FROM shown")
    yield from show(fact)


COUNT_SHOWN = "SELECT report || ' v' || version, COUNT(*) FROM shown GROUP BY report, version"


class Later(Exception):
    """The worker has tried for long enough, and is started again."""


def count_shown(once: Once, files: Path) -> Path:
    """The directory, tracked; each line on the dashboard is an effect."""
    directory = once.track(files)
    once.count(directory / "dashboard.db", COUNT_SHOWN)
    return directory


Consumer: TypeAlias = Callable[[Database], Send]


def into_dashboard(theirs: Database) -> Send:
    """The correct consumer."""
    return into_inbox(theirs, DASHBOARD, show)


def delivering(
    *,
    consumer: Consumer = into_dashboard,
    facts: Sequence[Fact] = (),
    relay: type[Relay] = Relay,
) -> Body:
    """A worker that saves a report, and relays the news of it to a dashboard with a database of its own."""

    def body(once: Once, files: Path) -> None:
        directory = count_shown(once, files)
        with closing(SQLite(directory / "agent.db")) as ours, closing(SQLite(directory / "dashboard.db")) as theirs:
            ours.transact(save(*(facts or [report()])))
            relay(ours, consumer(theirs), FACTS).drain()

    return body


@contextmanager
def plain(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection for code without the reference; each statement commits."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection
