"""D11: a hook for something else wakes the run, the replay finds a step unfinished and dispatches it again.

Both bodies finish, the journal shows one attempt, the second effect lands after "completed". Reports:
vercel/workflow#2780, vercel/workflow#3553.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

from pytest_once import Once, Verdict, explore, replay
from tests.incidents.models import convicted_undisturbed, database, exactly_once


async def step(once: Once, db: sqlite3.Connection, takes_s: float, *, keyed: bool) -> None:
    mail = once.provider("mail", contract="client_key")
    await asyncio.sleep(takes_s)
    mail.call("send", {"step": "step_1"}, key="step_1" if keyed else None)
    db.execute("INSERT OR IGNORE INTO journal VALUES ('step_1', 'completed')")


async def orchestrator(once: Once, *, keyed: bool) -> None:
    with database(once, "journal", "journal(step TEXT PRIMARY KEY, state)") as db:

        async def dispatch(at_s: float) -> None:
            await asyncio.sleep(at_s)
            if not db.execute("SELECT 1 FROM journal").fetchone():
                await step(once, db, 60, keyed=keyed)

        # The run starts, and half a minute later an event for another key arrives.
        await asyncio.gather(dispatch(0), dispatch(30))


async def faulty(once: Once) -> None:
    await orchestrator(once, keyed=False)


async def corrected(once: Once) -> None:
    await orchestrator(once, keyed=True)


def test_the_journal_shows_one_attempt_and_the_ledger_two(tmp_path: Path) -> None:
    report = explore(faulty, soft_faults=0, keys=["step_1"], max_states=20)
    convicted_undisturbed(report, Verdict.DUPLICATE, expected=1, actual=2, key="step_1")
    replay(faulty, ".", keep=tmp_path, keys=["step_1"])
    with closing(sqlite3.connect(tmp_path / "journal.db")) as db:
        assert db.execute("SELECT count(*) FROM journal").fetchone() == (1,)


def test_one_key_a_step() -> None:
    exactly_once(explore(corrected, soft_faults=0, keys=["step_1"]))
