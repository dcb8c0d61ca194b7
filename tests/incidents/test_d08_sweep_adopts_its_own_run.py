"""D08: the start-up sweep takes "created no later than now" for "left by a dead process", and adopts a new run.

The stamp has milliseconds, and launch and start fall into the same one. Reports: dbos-inc/dbos-transact-java#491,
dbos-inc/dbos-transact-java#493.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time

from pytest_once import Once, Verdict, explore
from tests.incidents.models import convicted, convicted_undisturbed, database, exactly_once


async def workflow(once: Once, db: sqlite3.Connection, *, keyed: bool) -> None:
    shop = once.provider("shop", contract="client_key")
    await asyncio.sleep(1)
    shop.call("ship", {"order": "order_1"}, key="order_1" if keyed else None)
    db.execute("UPDATE runs SET state = 'success'")


async def program(once: Once, *, spares_own: bool, keyed: bool) -> None:
    with database(once, "dbos", "runs(id TEXT PRIMARY KEY, state, created_ms)") as db:
        cutoff_ms = int(time.time() * 1000)
        own = db.execute("INSERT OR IGNORE INTO runs VALUES ('order_1', 'pending', ?)", (int(time.time() * 1000),))
        running = [workflow(once, db, keyed=keyed)] if own.rowcount else []
        pending = "SELECT 1 FROM runs WHERE state = 'pending' AND created_ms <= ?"
        found = db.execute(pending, (cutoff_ms,)).fetchone()
        if found and not (running and spares_own):
            running.append(workflow(once, db, keyed=keyed))
        await asyncio.gather(*running)


async def faulty(once: Once) -> None:
    await program(once, spares_own=False, keyed=False)


async def spares_its_own(once: Once) -> None:
    await program(once, spares_own=True, keyed=False)


async def spares_its_own_and_has_a_key(once: Once) -> None:
    await program(once, spares_own=True, keyed=True)


def test_the_body_runs_twice_in_one_process() -> None:
    report = explore(faulty, soft_faults=0, keys=["order_1"], max_states=20)
    convicted_undisturbed(report, Verdict.DUPLICATE, expected=1, actual=2, key="order_1")


def test_sparing_its_own_runs_leaves_the_crash() -> None:
    report = explore(spares_its_own, soft_faults=0, keys=["order_1"])
    violation = convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="order_1")
    assert violation.schedule.crashes == 1


def test_sparing_its_own_runs_with_a_key_for_the_step() -> None:
    exactly_once(explore(spares_its_own_and_has_a_key, soft_faults=0, keys=["order_1"]))
