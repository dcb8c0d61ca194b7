"""A01: a tool runs for minutes without yielding, its run looks stale, and another worker calls the tool again.

What the first worker remembers does not help the second. Reports: langchain-ai/langgraph#7417,
langchain-ai/langgraph#7213, vercel/workflow#925.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time

from pytest_once import Once, Verdict, explore
from tests.incidents.models import convicted_undisturbed, database, exactly_once

STALE_S = 180.0
TOOL_S = 300.0


async def worker(once: Once, db: sqlite3.Connection, starts_s: float, *, keyed: bool) -> None:
    """Resumes a run whose heartbeat is stale. The held loop cannot beat while the tool runs."""
    await asyncio.sleep(starts_s)
    if not db.execute("SELECT 1 FROM runs WHERE NOT done AND beat_s < ?", (time.time() - STALE_S,)).fetchone():
        return
    db.execute("UPDATE runs SET beat_s = ?", (time.time(),))
    await asyncio.sleep(TOOL_S)
    key = "run_1/call_1" if keyed else None
    once.provider("tickets", contract="client_key").call("open", {"ticket": "ticket_1"}, key=key)
    db.execute("UPDATE runs SET done = 1")


async def platform(once: Once, *, keyed: bool) -> None:
    with database(once, "checkpoints", "runs(id TEXT PRIMARY KEY, beat_s REAL, done)") as db:
        db.execute("INSERT OR IGNORE INTO runs VALUES ('run_1', ?, 0)", (time.time() - 1000,))
        await asyncio.gather(worker(once, db, 0, keyed=keyed), worker(once, db, STALE_S + 10, keyed=keyed))
        if db.execute("SELECT 1 FROM runs WHERE NOT done").fetchone():
            once.claim("in_progress")


async def faulty(once: Once) -> None:
    await platform(once, keyed=False)


async def corrected(once: Once) -> None:
    await platform(once, keyed=True)


def test_two_workers_call_the_tool() -> None:
    report = explore(faulty, soft_faults=0, keys=["ticket_1"])
    convicted_undisturbed(report, Verdict.DUPLICATE, expected=1, actual=2, key="ticket_1")


def test_a_key_for_the_call_in_its_run() -> None:
    exactly_once(explore(corrected, soft_faults=0, keys=["ticket_1"], restart_after=("0s", "1h")))
