"""The adapter of the reference implementation: nothing but calls of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from pytest_once.reference import answers as reference
from pytest_once.reference import backlog, outbox
from pytest_once.reference.claims import Delivery
from pytest_once.reference.databases import SQLite
from pytest_once.reference.inbox import Inbox
from pytest_once.reference.messages import Command, Fact, Kind
from pytest_once.reference.ordering import Order
from pytest_once.reference.relay import Relay, Terms
from pytest_once.reference.steps import Row, Statement, Steps
from pytest_once.review import Answer, Evidence, Send, Sent

DASHBOARD = Inbox("dashboard", Order.DELTA)
LEASE_S = 30.0

SAID: Mapping[Answer, reference.Answer] = {
    Answer.APPLIED: reference.Applied("the consumer said so"),
    Answer.FORWARDED: reference.Forwarded("the broker has it"),
    Answer.REFUSED: reference.Refused("the consumer said no"),
    Answer.FAILED: reference.Failed("no answer"),
}


def event_id(number: int) -> str:
    return f"acme:report-17:v{number}"


def message(number: int, kind: Kind) -> Fact | Command:
    return kind(
        event_id=event_id(number),
        event_type="report.saved",
        tenant="acme",
        object_id="report-17" if kind is Fact else "mail",
        version=number if kind is Fact else 1,
        payload={"version": number},
    )


def ask_rows(sql: str, *values: object) -> Steps[list[Row]]:
    return (yield Statement(sql, values))


class Outbox:
    """An outbox in one database, its consumer's inbox in another."""

    lease_s = LEASE_S
    order = "delta"

    def __init__(self, directory: Path) -> None:
        self.ours = SQLite(directory / "agent.db", busy_timeout_s=0.1)
        self.theirs = SQLite(directory / "dashboard.db", busy_timeout_s=0.1)

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()

    def put(self, number: int, before_commit: Callable[[], None]) -> None:
        def save() -> Steps[None]:
            yield Statement("INSERT INTO reports VALUES (?) ON CONFLICT DO NOTHING", (number,))
            yield from outbox.put(message(number, Fact), now=time.time(), allowed=None)
            before_commit()

        self.ours.transact(save())

    def ask(self, number: int) -> None:
        self.ours.transact(outbox.put(message(number, Command), now=time.time(), allowed=None))

    def relay(self, send: Send, name: str) -> None:
        def translated(claimed: Sequence[Delivery]) -> Mapping[str, reference.Answer]:
            batch = [Sent(one.event_id, int(one.event_id.rpartition("v")[2]), one) for one in claimed]
            return {event: SAID[answer] for event, answer in send(batch).items()}

        for kind in (Fact, Command):
            Relay(self.ours, translated, Terms(kind=kind, name=name, lease_s=LEASE_S)).round()

    def consume(self, message: Sent) -> None:
        def show(fact: Fact | Command) -> Steps[None]:
            yield Statement("INSERT INTO shown VALUES (?)", (fact.version,))

        delivery: Delivery = message.content
        received = DASHBOARD.receive(delivery.message, delivery.epoch, show, now=time.time())
        self.theirs.transact(received)

    def changed(self, number: int) -> bool:
        return bool(self.ours.transact(ask_rows("SELECT 1 FROM reports WHERE version = ?", number)))

    def stored(self, number: int) -> bool:
        return self.ours.transact(outbox.look_up(event_id(number))) is not None

    def pending(self) -> int:
        return self.ours.transact(backlog.backlog(now=time.time())).waiting

    def applied(self, number: int) -> int:
        ((times,),) = self.theirs.transact(ask_rows("SELECT count(*) FROM shown WHERE version = ?", number))
        return int(times)

    def kind(self, number: int) -> str:
        found = self.ours.transact(outbox.look_up(event_id(number)))
        return "" if found is None else found.message.kind

    def dead_letters(self) -> list[int]:
        return [dead.message.version for dead in self.ours.transact(backlog.dead_letters())]

    def put_back(self, number: int) -> None:
        def without_limit() -> Steps[None]:
            yield from backlog.put_back(event_id(number), because="reviewed", now=time.time())
            yield Statement("UPDATE outbox SET allowed = NULL WHERE event_id = ?", (event_id(number),))

        self.ours.transact(without_limit())

    def purge(self, older_than_s: float) -> None:
        self.ours.transact(backlog.purge(before=time.time() - older_than_s))

    def oldest_waiting_s(self) -> float | None:
        return self.ours.transact(backlog.backlog(now=time.time())).oldest_waiting_s

    def evidence(self, number: int) -> Evidence:
        found = self.ours.transact(outbox.look_up(event_id(number)))
        taken = self.theirs.transact(DASHBOARD.look_up(event_id(number)))
        forwarded = found is not None and found.forwarded_at is not None
        return Evidence(found is not None, forwarded, taken is not None)


class Adapter:
    """For the review."""

    ignore = ("outbox.attempts", "outbox.reason")
    """They grow with every try, and decide nothing where tries are not limited."""

    def prepare(self, directory: Path) -> None:
        tables = {"agent.db": "reports (version BIGINT PRIMARY KEY)", "dashboard.db": "shown (version BIGINT)"}
        for name, table in tables.items():
            with closing(SQLite(directory / name)) as database:
                database.migrate()
                database.transact(ask_rows(f"CREATE TABLE {table}"))

    def open(self, directory: Path, *_: str) -> Outbox:
        return Outbox(directory)


ADAPTER = Adapter()
