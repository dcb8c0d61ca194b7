"""D04: the run completes while a renewal of its lease is on its way; the renewal finds no lease and says "crashed".

Crashed is written over Completed, and the automation runs it again. Reports: PrefectHQ/prefect#18942,
PrefectHQ/prefect#18839.
"""

from __future__ import annotations

import asyncio
import sqlite3

from pytest_once import Once, Verdict, explore
from tests.incidents.models import convicted_undisturbed, database, exactly_once


async def renewals(db: sqlite3.Connection, *, terminal_is_final: bool) -> None:
    await asyncio.sleep(10)
    if not db.execute("SELECT lease FROM runs").fetchone()[0]:
        return
    await asyncio.sleep(1)  # the request is on its way
    if not db.execute("SELECT lease FROM runs").fetchone()[0]:
        running = "WHERE state = 'running'" if terminal_is_final else ""
        db.execute(f"UPDATE runs SET state = 'crashed' {running}")  # 404: the slot is lost


async def run(once: Once, db: sqlite3.Connection) -> None:
    await asyncio.sleep(10.5)
    db.execute("BEGIN")
    db.execute("INSERT INTO results VALUES ('run_1')")
    db.execute("UPDATE runs SET state = 'completed', lease = 0")
    db.execute("COMMIT")


async def automation(once: Once, *, terminal_is_final: bool) -> None:
    """Runs whatever is not completed, at most twice."""
    once.count("server.db", "SELECT run, count(*) FROM results GROUP BY run")
    with database(once, "server", "runs(id TEXT PRIMARY KEY, state, lease); results(run)") as db:
        db.execute("INSERT OR IGNORE INTO runs VALUES ('run_1', 'running', 1)")
        for _ in range(2):
            if db.execute("SELECT 1 FROM runs WHERE state = 'completed'").fetchone():
                break
            db.execute("UPDATE runs SET state = 'running', lease = 1")
            await asyncio.gather(run(once, db), renewals(db, terminal_is_final=terminal_is_final))


async def faulty(once: Once) -> None:
    await automation(once, terminal_is_final=False)


async def corrected(once: Once) -> None:
    await automation(once, terminal_is_final=True)


def test_a_completed_run_is_run_again() -> None:
    report = explore(faulty, soft_faults=0, keys=["run_1"])
    convicted_undisturbed(report, Verdict.DUPLICATE, expected=1, actual=2, key="run_1")


def test_a_terminal_state_is_final() -> None:
    exactly_once(explore(corrected, soft_faults=0, keys=["run_1"]))
