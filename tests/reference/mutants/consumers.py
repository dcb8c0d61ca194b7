"""Mistakes at the receiver's side: inbox, order, epochs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from pytest_once import Once, Verdict
from pytest_once.reference.answers import Answer, Applied, Forwarded
from pytest_once.reference.backlog import dead_letters
from pytest_once.reference.claims import Delivery
from pytest_once.reference.databases import Database, SQLite
from pytest_once.reference.inbox import Inbox
from pytest_once.reference.messages import Fact, Message
from pytest_once.reference.ordering import Order
from pytest_once.reference.relay import Relay, Send, into_inbox, one_by_one
from pytest_once.reference.steps import Statement, Steps
from tests.reference.mutants.outboxes import shown_once
from tests.reference.mutants.scenes import (
    DASHBOARD,
    FACTS,
    OUTBOX,
    Later,
    Mutant,
    count_shown,
    delivering,
    overwrite,
    report,
    save,
    show,
)

ESCALATED, DUPLICATE, OMISSION = Verdict.ESCALATED, Verdict.DUPLICATE, Verdict.OMISSION


def _nothing(_: Message) -> Steps[None]:
    yield from ()


def _mark_then_act(theirs: Database) -> Send:
    def call(delivery: Delivery) -> Answer:
        if theirs.transact(DASHBOARD.look_up(delivery.event_id)) is None:
            theirs.transact(DASHBOARD.receive(delivery.message, delivery.epoch, _nothing, now=time.time()))
            theirs.transact(show(delivery.message))  # type: ignore[arg-type]
        return Applied("shown")

    return one_by_one(call)


def _act_then_mark(theirs: Database) -> Send:
    def call(delivery: Delivery) -> Answer:
        if theirs.transact(DASHBOARD.look_up(delivery.event_id)) is None:
            theirs.transact(show(delivery.message))  # type: ignore[arg-type]
            theirs.transact(DASHBOARD.receive(delivery.message, delivery.epoch, _nothing, now=time.time()))
        return Applied("shown")

    return one_by_one(call)


def _by_content(theirs: Database) -> Send:
    """Known is what looks the same."""

    def known(fact: Fact) -> Steps[bool]:
        return bool((yield Statement("SELECT 1 FROM work WHERE id = ?", (str(fact.payload),))))

    def take(fact: Fact) -> Steps[None]:
        if not (yield from known(fact)):
            yield Statement("INSERT INTO work VALUES (?, 'taken')", (str(fact.payload),))
            yield from show(fact)

    def call(delivery: Delivery) -> Answer:
        theirs.transact(take(delivery.message))  # type: ignore[arg-type]
        return Applied("shown")

    return one_by_one(call)


ALIKE = (report(1), report(1, object_id="report-18", event_id="acme:report-18:v1"))
"""Two messages that say the same of two reports."""


# -- order ---------------------------------------------------------------------------------------------------


def _snapshots(once: Once, files: Path, order: Order) -> None:
    """The dashboard shows the object as it is. Another relay may be faster with the newer version."""
    directory = once.track(files)
    once.count(directory / "dashboard.db", "SELECT 'newest', COUNT(*) FROM shown WHERE version = 2")
    with closing(SQLite(directory / "agent.db")) as ours, closing(SQLite(directory / "dashboard.db")) as theirs:
        take = into_inbox(theirs, Inbox("dashboard", order), overwrite)

        def send(claimed: Sequence[Delivery]) -> Mapping[str, Answer]:
            order_of_arrival = once.choose("the relays", ("arrive in order", "overtake each other"))
            return take(claimed if order_of_arrival == "arrive in order" else claimed[::-1])

        ours.transact(save(report(1), report(2)))
        Relay(ours, send, _UNORDERED).drain()


_UNORDERED = type(FACTS)(kind=Fact, name="relay", in_order=False)


def _deltas(once: Once, files: Path, order: Order) -> None:
    """Each message is a change. The broker may lose the first one after it has taken it."""
    directory = count_shown(once, files)
    with closing(SQLite(directory / "agent.db")) as ours, closing(SQLite(directory / "dashboard.db")) as theirs:
        take = into_inbox(theirs, Inbox("dashboard", order), show)

        def send(claimed: Sequence[Delivery]) -> Mapping[str, Answer]:
            answers: dict[str, Answer] = {}
            for delivery in claimed:
                if delivery.message.version == 1 and once.choose("the broker", ("delivers", "loses it")) == "loses it":
                    answers[delivery.event_id] = Forwarded("taken by the broker")
                else:
                    answers.update(take([delivery]))
            return answers

        ours.transact(save(report(1), report(2)))
        if not Relay(ours, send, FACTS).drain(rounds=2):
            raise Later


# -- what is forgotten ---------------------------------------------------------------------------------------


def _forgetting(wrong: Callable[[Inbox, int], Steps[Any]]) -> Callable[[Once, Path], None]:
    """Each start begins with the consumer forgetting what it has taken of the epoch that has ended."""

    def tidy() -> Steps[None]:
        if (yield Statement("SELECT 1 FROM inbox")):
            yield from wrong(DASHBOARD, 2)

    def body(once: Once, files: Path) -> None:
        directory = count_shown(once, files)
        with closing(SQLite(directory / "agent.db")) as ours, closing(SQLite(directory / "dashboard.db")) as theirs:
            theirs.transact(tidy())
            ours.transact(save(report()))
            Relay(ours, into_inbox(theirs, DASHBOARD, show), FACTS).drain()
            if ours.transact(dead_letters()):
                once.claim("unknown")

    return body


def _only_deletes(inbox: Inbox, epoch: int) -> Steps[None]:
    yield Statement("DELETE FROM inbox WHERE consumer = ? AND epoch < ?", (inbox.consumer, epoch))


MUTANTS = (
    Mutant("inbox-mark-then-act", "The inbox row commits, and the consumer's change after it.", OMISSION,
           delivering(consumer=_mark_then_act), shown_once, OUTBOX),
    Mutant("inbox-act-then-mark", "The consumer's change commits, and the inbox row after it.", DUPLICATE,
           delivering(consumer=_act_then_mark), shown_once, OUTBOX),
    Mutant("deduplicated-by-content", "A message that looks like one before is taken for it.", OMISSION,
           delivering(consumer=_by_content, facts=ALIKE), delivering(facts=ALIKE),
           {**OUTBOX, "keys": ("report-17 v1", "report-18 v1")}),
    Mutant("stale-version-applied", "A consumer of snapshots applies whatever comes last.", OMISSION,
           lambda once, files: _snapshots(once, files, Order.NONE),
           lambda once, files: _snapshots(once, files, Order.SNAPSHOT), {**OUTBOX, "redeliver": 0}),
    Mutant("delta-gap-ignored", "A consumer of changes applies the second without the first.", OMISSION,
           lambda once, files: _deltas(once, files, Order.NONE),
           lambda once, files: _deltas(once, files, Order.DELTA), {**OUTBOX, "redeliver": 0}),
    Mutant("epoch-not-checked", "Old inbox rows are deleted, and old messages still accepted.", DUPLICATE,
           _forgetting(_only_deletes), _forgetting(Inbox.close_epochs_before),
           {**OUTBOX, "blocked": ("unknown",)}, ESCALATED),
)  # fmt: skip
