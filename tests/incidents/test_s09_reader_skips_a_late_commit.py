"""S09: two transactions draw ids 1 and 2, the second commits first, the reader notes 2, and id 1 is never read.

No fault, only an order: one of them is shown here. Report: kamu-data/kamu-cli#1398.
"""

from __future__ import annotations

import asyncio
import sqlite3

import pytest

from pytest_once import Once, Verdict, explore
from tests.incidents.models import convicted_undisturbed, database, exactly_once

TABLES = "sequence(last); outbox(id INTEGER PRIMARY KEY, event, published); mark(id)"


def draw(db: sqlite3.Connection) -> int:
    """Ids are drawn outside the transaction that uses them, as sequences are."""
    return int(db.execute("UPDATE sequence SET last = last + 1 RETURNING last").fetchone()[0])


async def write(db: sqlite3.Connection, event: str, takes_s: float) -> None:
    if db.execute("SELECT 1 FROM outbox WHERE event = ?", (event,)).fetchone():
        return
    number = draw(db)
    await asyncio.sleep(takes_s)
    db.execute("INSERT INTO outbox VALUES (?, ?, 0)", (number, event))


def above_the_mark(db: sqlite3.Connection) -> list[tuple[int, str]]:
    mark = db.execute("SELECT max(id) FROM mark").fetchone()[0] or 0
    return db.execute("SELECT id, event FROM outbox WHERE id > ? ORDER BY id", (mark,)).fetchall()


def not_published(db: sqlite3.Connection) -> list[tuple[int, str]]:
    return db.execute("SELECT id, event FROM outbox WHERE NOT published ORDER BY id").fetchall()


async def read(once: Once, db: sqlite3.Connection, *, by_mark: bool) -> None:
    """Polls each second, for five seconds."""
    topic = once.provider("topic", contract="client_key")
    for _ in range(5):
        await asyncio.sleep(1)
        for number, event in above_the_mark(db) if by_mark else not_published(db):
            topic.call("publish", {"event": event}, key=event)
            db.execute("UPDATE outbox SET published = 1 WHERE id = ?", (number,))
            db.execute("INSERT OR REPLACE INTO mark(rowid, id) VALUES (1, ?)", (number,))


async def program(once: Once, *, by_mark: bool) -> None:
    with database(once, "app", TABLES) as db:
        if not db.execute("SELECT 1 FROM sequence").fetchone():
            db.execute("INSERT INTO sequence VALUES (0)")
        await asyncio.gather(write(db, "event_a", 3.5), write(db, "event_b", 0.5), read(once, db, by_mark=by_mark))


async def faulty(once: Once) -> None:
    await program(once, by_mark=True)


async def corrected(once: Once) -> None:
    await program(once, by_mark=False)


EVENTS = ("event_a", "event_b")


def test_the_mark_has_passed_the_row_when_it_commits() -> None:
    report = explore(faulty, soft_faults=0, keys=EVENTS)
    convicted_undisturbed(report, Verdict.OMISSION, expected=1, actual=0, key="event_a")


@pytest.mark.slow
def test_a_reader_that_asks_each_row() -> None:
    """The sequence grows with every crash between draw and insert, and decides nothing."""
    exactly_once(explore(corrected, soft_faults=0, keys=EVENTS, ignore=["sequence.last", "outbox.id", "mark.id"]))
