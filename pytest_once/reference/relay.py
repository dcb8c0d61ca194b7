"""The relay: sends what is committed in the outbox, and notes for each message what became of it.

It may send a message twice (it died between sending and noting, or its claim ran out); it never makes a message anew.
Any number of relays may serve one outbox.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pytest_once.reference.answers import Answer, Applied, Failed, Gap, Refused
from pytest_once.reference.claims import Backoff, Delivery, claim, next_due, settle
from pytest_once.reference.databases import AsyncDatabase, Database
from pytest_once.reference.identity import EffectConflict
from pytest_once.reference.inbox import Inbox
from pytest_once.reference.messages import Kind
from pytest_once.reference.steps import Steps

Send: TypeAlias = Callable[[Sequence[Delivery]], Mapping[str, Answer]]
"""Sends a batch; the answer for each event id. What is left out counts as `Failed`: a batch that "succeeded" says
nothing about the items it does not name."""

SendAsync: TypeAlias = Callable[[Sequence[Delivery]], Awaitable[Mapping[str, Answer]]]


@dataclass(frozen=True, slots=True)
class Round:
    """What one round did. answers: how many of each kind were noted. late: reports refused, as the claim had ended."""

    claimed: int
    answers: Mapping[str, int]
    late: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a relay works. name: who claims; unlike any other live relay's. lease_s: longer than sending a batch takes.

    in_order: an object's messages one after the other, where a dead letter holds up those behind it.
    """

    kind: Kind
    name: str
    lease_s: float = 30.0
    batch: int = 20
    in_order: bool = True
    backoff: Backoff = field(default_factory=Backoff)
    clock: Callable[[], float] = time.time

    def claim(self) -> Steps[list[Delivery]]:
        return claim(
            self.kind,
            relay=self.name,
            now=self.clock(),
            lease_s=self.lease_s,
            limit=self.batch,
            in_order=self.in_order,
        )

    def note(self, deliveries: Sequence[Delivery], answers: Mapping[str, Answer]) -> Steps[Round]:
        """Note each item's answer by itself."""
        noted: Counter[str] = Counter()
        late = 0
        for delivery in deliveries:
            answer = answers.get(delivery.event_id, Failed("the answer to the batch does not name it"))
            if (yield from settle(delivery, answer, now=self.clock(), backoff=self.backoff)):
                noted[type(answer).__name__.lower()] += 1
            else:
                late += 1
        return Round(len(deliveries), dict(noted), late)

    def wait_s(self) -> Steps[float | None]:
        """Seconds until something may be claimed; None: nothing is left that can be sent."""
        due_at = yield from next_due(self.kind, in_order=self.in_order)
        return None if due_at is None else max(0.0, due_at - self.clock())


class Relay:
    """Between an outbox and a `send`."""

    def __init__(self, database: Database, send: Send, terms: Terms) -> None:
        self._database = database
        self._send = send
        self._terms = terms

    def round(self) -> Round:
        """Claim what is due, send it, note the answers. An exception of `send` means that nothing is known."""
        claimed = self._database.transact(self._terms.claim())
        if not claimed:
            return Round(0, {}, 0)
        try:
            answers = self._send(claimed)
        except Exception as error:
            answers = _unknown(claimed, error)
        return self._database.transact(self._terms.note(claimed, answers))

    def drain(self, rounds: int | None = None) -> bool:
        """Rounds until nothing is left that can be sent, sleeping until claims end and retries are due.

        False: something was left after so many rounds. None: go on while it takes, which may be for ever.
        """
        while (wait_s := self._database.transact(self._terms.wait_s())) is not None:
            if rounds == 0:
                return False
            rounds = None if rounds is None else rounds - 1
            if wait_s:
                time.sleep(wait_s)
            self.round()
        return True


class AsyncRelay:
    """As Relay, on an event loop."""

    def __init__(self, database: AsyncDatabase, send: SendAsync, terms: Terms) -> None:
        self._database = database
        self._send = send
        self._terms = terms

    async def round(self) -> Round:
        """Claim what is due, send it, note the answers. An exception of `send` means that nothing is known."""
        claimed = await self._database.transact(self._terms.claim())
        if not claimed:
            return Round(0, {}, 0)
        try:
            answers = await self._send(claimed)
        except Exception as error:
            answers = _unknown(claimed, error)
        return await self._database.transact(self._terms.note(claimed, answers))

    async def drain(self, rounds: int | None = None) -> bool:
        """As `Relay.drain`."""
        while (wait_s := await self._database.transact(self._terms.wait_s())) is not None:
            if rounds == 0:
                return False
            rounds = None if rounds is None else rounds - 1
            if wait_s:
                await asyncio.sleep(wait_s)
            await self.round()
        return True


def _unknown(claimed: Sequence[Delivery], error: Exception) -> dict[str, Answer]:
    return {delivery.event_id: Failed(f"{type(error).__name__}: {error}") for delivery in claimed}


def one_by_one(call: Callable[[Delivery], Answer], clock: Callable[[], float] = time.time) -> Send:
    """Send each message by itself: an exception leaves only its own item unknown.

    A message whose claim has ended while it waited for its turn is not sent: another relay may be sending it. For a
    service of somebody else, pass `delivery.event_id` as its idempotency key. Without one, or for longer than it keeps
    keys, a lost answer cannot be told from a lost request: send such commands through the gate.
    """

    def send(claimed: Sequence[Delivery]) -> Mapping[str, Answer]:
        answers: dict[str, Answer] = {}
        for delivery in claimed:
            if clock() >= delivery.until:
                continue
            try:
                answers[delivery.event_id] = call(delivery)
            except Exception as error:
                answers.update(_unknown([delivery], error))
        return answers

    return send


def one_by_one_async(
    call: Callable[[Delivery], Awaitable[Answer]], clock: Callable[[], float] = time.time
) -> SendAsync:
    """As `one_by_one`, awaiting each call."""

    async def send(claimed: Sequence[Delivery]) -> Mapping[str, Answer]:
        answers: dict[str, Answer] = {}
        for delivery in claimed:
            if clock() >= delivery.until:
                continue
            try:
                answers[delivery.event_id] = await call(delivery)
            except Exception as error:
                answers.update(_unknown([delivery], error))
        return answers

    return send


def into_inbox(
    database: Database, inbox: Inbox, apply: Callable[[Any], Steps[Any]], clock: Callable[[], float] = time.time
) -> Send:
    """Hand messages to a consumer with a database of its own, one transaction each."""

    def call(delivery: Delivery) -> Answer:
        return database.transact(_received(inbox, delivery, apply, clock))

    return one_by_one(_conflicts_refused(call), clock)


def into_inbox_async(
    database: AsyncDatabase, inbox: Inbox, apply: Callable[[Any], Steps[Any]], clock: Callable[[], float] = time.time
) -> SendAsync:
    """As `into_inbox`, for a consumer on an event loop."""

    async def call(delivery: Delivery) -> Answer:
        try:
            return await database.transact(_received(inbox, delivery, apply, clock))
        except EffectConflict as error:
            return Refused(str(error))

    return one_by_one_async(call, clock)


def _received(
    inbox: Inbox, delivery: Delivery, apply: Callable[[Any], Steps[Any]], clock: Callable[[], float]
) -> Steps[Applied | Refused | Gap]:
    return inbox.receive(delivery.message, delivery.epoch, apply, now=clock())


def _conflicts_refused(call: Callable[[Delivery], Answer]) -> Callable[[Delivery], Answer]:
    def careful(delivery: Delivery) -> Answer:
        try:
            return call(delivery)
        except EffectConflict as error:
            return Refused(str(error))

    return careful
