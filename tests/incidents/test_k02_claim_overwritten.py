"""K02: the claim is written with a plain set, so of two requests the later one overwrites it and both go on.

Reports: idempot-dev/idempot-js#182, idempot-dev/idempot-js#181. One order of the three store steps; the others wait for
two workers.
"""

from __future__ import annotations

import asyncio
import sqlite3

from pytest_once import Once, Verdict, explore
from tests.incidents.models import convicted_undisturbed, database, exactly_once

TABLES = "claims(key TEXT PRIMARY KEY, state); charges(order_id, key UNIQUE)"


async def handler(db: sqlite3.Connection, *, if_absent: bool) -> None:
    known = db.execute("SELECT state FROM claims WHERE key = 'order_1'").fetchone()
    if known:
        return
    await asyncio.sleep(1)  # the store is a network away
    db.execute("BEGIN")
    how = "INSERT OR IGNORE" if if_absent else "INSERT OR REPLACE"
    won = db.execute(f"{how} INTO claims VALUES ('order_1', 'charged')").rowcount
    if won:
        db.execute("INSERT INTO charges(order_id) VALUES ('order_1')")
    db.execute("COMMIT")


async def requests(once: Once, *, if_absent: bool) -> None:
    once.count("store.db", "SELECT order_id, count(*) FROM charges GROUP BY order_id")
    with database(once, "store", TABLES) as db:
        await asyncio.gather(handler(db, if_absent=if_absent), handler(db, if_absent=if_absent))


async def faulty(once: Once) -> None:
    await requests(once, if_absent=False)


async def corrected(once: Once) -> None:
    await requests(once, if_absent=True)


def test_both_claims_succeed() -> None:
    report = explore(faulty, soft_faults=0, keys=["order_1"])
    convicted_undisturbed(report, Verdict.DUPLICATE, expected=1, actual=2, key="order_1")


def test_a_claim_that_is_set_only_if_absent() -> None:
    exactly_once(explore(corrected, soft_faults=0, keys=["order_1"]))
