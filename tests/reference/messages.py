"""The messages these tests send, and what they ask the tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_once.reference import outbox
from pytest_once.reference.answers import Answer, Applied
from pytest_once.reference.claims import Delivery
from pytest_once.reference.messages import Command, Fact, Kind
from pytest_once.reference.relay import Send, Terms
from pytest_once.reference.steps import Statement, Steps
from tests.reference.conftest import Clock, Store


def report(
    version: int = 3, *, event_id: str = "", tenant: str = "acme", about: str = "report-17", **payload: Any
) -> Fact:
    """The news that a report was saved."""
    return Fact(
        event_id=event_id or f"{tenant}:{about}:v{version}",
        event_type="report.saved",
        tenant=tenant,
        object_id=about,
        version=version,
        payload=payload or {"title": "Q3"},
    )


def mail(event_id: str = "acme:t1:tell:mail", version: int = 1) -> Command:
    return Command(
        event_id=event_id,
        event_type="mail.send",
        tenant="acme",
        object_id=event_id,
        version=version,
        payload={"to": "a@example.org"},
    )


def put(store: Store, *messages: Fact | Command, now: float = 1_000_000.0, allowed: int | None = 20) -> None:
    for message in messages:
        assert store.transact(outbox.put(message, now=now, allowed=allowed))


def state(store: Store, event_id: str) -> str:
    found = store.transact(outbox.look_up(event_id))
    return "" if found is None else found.state


def terms(clock: Clock, kind: Kind = Fact, **given: Any) -> Terms:
    return Terms(**{"kind": kind, "name": "relay", "lease_s": 30.0, "clock": clock, **given})


def answering(answer: Answer, seen: list[Delivery] | None = None) -> Send:
    """A receiver that gives one answer to everything."""

    def send(batch: Sequence[Delivery]) -> dict[str, Answer]:
        if seen is not None:
            seen.extend(batch)
        return {delivery.event_id: answer for delivery in batch}

    return send


ACCEPT = Applied("the receiver says so")


def rows(table: str, columns: str = "*") -> Steps[list[tuple[Any, ...]]]:
    return (yield Statement(f"SELECT {columns} FROM {table} ORDER BY 1"))
