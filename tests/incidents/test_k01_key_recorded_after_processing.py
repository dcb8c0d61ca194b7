"""K01: the key is stored when the request has been processed, so a second one meanwhile finds nothing.

Both post. The plain case of look first, act later. Report: mastodon/mastodon#37879.
"""

from __future__ import annotations

import asyncio
import sqlite3

from pytest_once import Once, Verdict, explore
from tests.incidents.models import convicted_undisturbed, database, exactly_once

TABLES = "statuses(text, key UNIQUE); keys(key TEXT PRIMARY KEY)"


async def looks_first(db: sqlite3.Connection, starts_s: float) -> None:
    await asyncio.sleep(starts_s)
    if db.execute("SELECT 1 FROM keys WHERE key = 'post_1'").fetchone():
        return
    await asyncio.sleep(2)  # attachments are processed
    db.execute("INSERT INTO statuses(text) VALUES ('post_1')")
    db.execute("INSERT OR IGNORE INTO keys VALUES ('post_1')")


async def lets_the_store_decide(db: sqlite3.Connection, starts_s: float) -> None:
    await asyncio.sleep(starts_s + 2)
    db.execute("INSERT OR IGNORE INTO statuses VALUES ('post_1', 'post_1')")


async def two_requests(once: Once, *, store_decides: bool) -> None:
    once.count("server.db", "SELECT text, count(*) FROM statuses GROUP BY text")
    handler = lets_the_store_decide if store_decides else looks_first
    with database(once, "server", TABLES) as db:
        await asyncio.gather(handler(db, 0), handler(db, 1))


async def faulty(once: Once) -> None:
    await two_requests(once, store_decides=False)


async def corrected(once: Once) -> None:
    await two_requests(once, store_decides=True)


def test_the_second_request_finds_no_key_yet() -> None:
    report = explore(faulty, soft_faults=0, keys=["post_1"])
    convicted_undisturbed(report, Verdict.DUPLICATE, expected=1, actual=2, key="post_1")


def test_effect_and_key_are_one_row() -> None:
    exactly_once(explore(corrected, soft_faults=0, keys=["post_1"]))
