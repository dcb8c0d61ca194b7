"""D03: the flow fails; the engine waits in its process to retry it, the infrastructure starts a second pod for it.

Both go on with the same run, and both insert its rows. Report: PrefectHQ/prefect#12509.
"""

from __future__ import annotations

import asyncio
import sqlite3

from pytest_once import Once, Verdict, explore
from tests.incidents.models import cell, convicted, database, exactly_once

DELAY_S = 30.0


class FlowFailed(Exception):
    pass


def flow(once: Once, db: sqlite3.Connection, *, owned: bool) -> None:
    source = once.tool(lambda: "rows", name="read source", counted=False)
    try:
        source()
    except ConnectionRefusedError:
        raise FlowFailed from None
    if owned:
        db.execute("INSERT OR IGNORE INTO rows(run, line) VALUES ('run_1', 1)")
    else:
        db.execute("INSERT INTO rows(run, line) VALUES ('run_1', (SELECT count(*) + 1 FROM rows))")


async def pod(once: Once, db: sqlite3.Connection, failed: asyncio.Event, *, owned: bool) -> None:
    """The engine's own retry, in the process that has failed."""
    try:
        flow(once, db, owned=owned)
    except FlowFailed:
        failed.set()
        await asyncio.sleep(DELAY_S)
        flow(once, db, owned=owned)
    failed.set()


async def infrastructure(once: Once, *, owned: bool) -> None:
    once.count("flow.db", "SELECT run, count(*) FROM rows GROUP BY run")
    with database(once, "flow", "rows(run, line, UNIQUE(run, line)); runs(id, state)") as db:
        if db.execute("SELECT 1 FROM runs").fetchone():
            return
        failed = asyncio.Event()
        first = asyncio.create_task(pod(once, db, failed, owned=owned))
        await failed.wait()
        if not db.execute("SELECT 1 FROM rows").fetchone():
            await pod(once, db, asyncio.Event(), owned=owned)  # restart policy: the run is not done
        await first
        db.execute("INSERT INTO runs VALUES ('run_1', 'done')")


async def faulty(once: Once) -> None:
    await infrastructure(once, owned=False)


async def corrected(once: Once) -> None:
    await infrastructure(once, owned=True)


def test_both_layers_retry_the_run() -> None:
    report = explore(faulty, faults=("refused",))
    convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="run_1")
    assert cell(report, "refused", "read source") == "2x"


def test_rows_that_belong_to_their_run_are_inserted_once() -> None:
    exactly_once(explore(corrected, faults=("refused",)))
