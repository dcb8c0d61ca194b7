"""Several real relay processes on one outbox, some of them killed: each message is applied once, in order."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from pytest_once.reference import outbox
from pytest_once.reference.answers import Answer
from pytest_once.reference.backlog import backlog
from pytest_once.reference.claims import Delivery
from pytest_once.reference.databases import AsyncSQLite, Database, PostgreSQL, SQLite
from pytest_once.reference.inbox import Inbox
from pytest_once.reference.messages import Fact
from pytest_once.reference.ordering import Order
from pytest_once.reference.relay import AsyncRelay, Relay, Terms, into_inbox, into_inbox_async
from pytest_once.reference.steps import Statement, Steps
from tests.reference.messages import report, rows

FORK = get_context("fork")
OBJECTS, VERSIONS = 24, 3

Where = tuple[str, str, str]
"""Which store, and where its producer's and its consumer's databases are."""


def opened(kind: str, where: str) -> Database:
    return PostgreSQL(where) if kind == "psycopg" else SQLite(where)


def create() -> Steps[None]:
    yield Statement("CREATE TABLE shown (event TEXT NOT NULL, at BIGINT NOT NULL)")


def show(fact: Fact) -> Steps[None]:
    yield Statement("INSERT INTO shown VALUES (?, (SELECT count(*) FROM shown))", (fact.event_id,))


def save_all() -> Steps[None]:
    for number in range(OBJECTS):
        for version in range(1, VERSIONS + 1):
            yield from outbox.put(report(version, about=f"report-{number:02}"), now=0.0)


def dying(moment: str, deliver: Callable[[Sequence[Delivery]], Any]) -> Callable[[Sequence[Delivery]], Any]:
    """Kill this process before it sends, or after it has sent and before it can note it."""

    def die(batch: Sequence[Delivery]) -> Any:
        if moment == "after":
            deliver(batch)
        os.kill(os.getpid(), signal.SIGKILL)

    return die if moment else deliver


def relaying(where: Where, moment: str = "") -> None:
    """One relay process."""
    kind, ours, theirs = where
    inbox = Inbox("dashboard", Order.DELTA)
    terms = Terms(kind=Fact, name=f"relay-{os.getpid()}", lease_s=1.0, batch=4)
    if kind != "aiosqlite":
        send = into_inbox(opened(kind, theirs), inbox, show)
        Relay(opened(kind, ours), dying(moment, send), terms).drain()
        return

    async def body() -> None:
        consumer, producer = AsyncSQLite(theirs), AsyncSQLite(ours)
        send = into_inbox_async(consumer, inbox, show)

        async def send_or_die(batch: Sequence[Delivery]) -> dict[str, Answer]:
            if moment == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            answers = dict(await send(batch))
            if moment == "after":
                os.kill(os.getpid(), signal.SIGKILL)
            return answers

        await AsyncRelay(producer, send_or_die, terms).drain()
        await producer.close()
        await consumer.close()

    asyncio.run(body())


def run_together(where: Where, *moments: str) -> list[int | None]:
    processes = [FORK.Process(target=relaying, args=(where, moment)) for moment in moments]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
        process.join()
    return codes


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite3", "aiosqlite", "psycopg"])
def test_each_message_is_applied_once_whoever_is_killed(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """S2.3, S2.4, S2.6, S2.9: four relays are killed around their sending, then two finish; nothing is lost, repeated
    or out of order, and the sender knows of each message that it was applied."""
    if kind == "psycopg":
        new_schema = request.getfixturevalue("new_schema")
        where = (kind, new_schema(), new_schema())
    else:
        where = (kind, str(tmp_path / "agent.db"), str(tmp_path / "dashboard.db"))
    ours, theirs = opened(kind, where[1]), opened(kind, where[2])
    ours.migrate()
    theirs.migrate()
    ours.transact(save_all())
    theirs.transact(create())

    assert run_together(where, "before", "after", "after", "before") == [-signal.SIGKILL] * 4
    assert len(theirs.transact(rows("shown"))) == 8
    assert run_together(where, "", "") == [0, 0]

    shown = [event for _, event in sorted(theirs.transact(rows("shown", "at, event")))]
    assert len(shown) == len(set(shown)) == OBJECTS * VERSIONS
    for number in range(OBJECTS):
        about = f"acme:report-{number:02}:"
        assert [event for event in shown if event.startswith(about)] == [f"{about}v{n}" for n in (1, 2, 3)]
    counts = ours.transact(backlog(now=0.0))
    assert (counts.waiting, counts.dead, counts.unconfirmed) == (0, 0, 0)
    assert ours.transact(rows("outbox", "applied_evidence")) == [("inbox of dashboard: applied",)] * len(shown)
    ours.close()
    theirs.close()
