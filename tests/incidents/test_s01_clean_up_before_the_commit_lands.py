"""S01: the commit call fails while the server still works on it; the status says "not committed", the file is deleted.

Then the commit lands and points at the deleted file. "Not there" means "unknown" as long as the call can still land.
The server's work goes on in the same process here, in one order of events. Report: apache/iceberg#3717.
"""

from __future__ import annotations

import asyncio
import sqlite3

from pytest_once import Once, Verdict, explore
from tests.incidents.models import by_fault_alone, cell, convicted, database, exactly_once

TABLES = "accepted(version TEXT PRIMARY KEY); versions(version TEXT PRIMARY KEY); files(version TEXT PRIMARY KEY)"
SERVER_S = 60.0


async def server(db: sqlite3.Connection) -> None:
    """Commits what it has accepted, a minute later."""
    await asyncio.sleep(SERVER_S)
    db.execute("INSERT OR IGNORE INTO versions SELECT version FROM accepted")


async def client(once: Once, db: sqlite3.Connection, *, patience_s: float) -> None:
    def accept() -> None:
        db.execute("INSERT OR IGNORE INTO accepted VALUES ('version_1')")

    db.execute("INSERT OR IGNORE INTO files VALUES ('version_1')")
    try:
        once.tool(accept, name="commit", counted=False)()
    except ConnectionResetError:
        await asyncio.sleep(patience_s)
        if not db.execute("SELECT 1 FROM versions").fetchone():
            db.execute("DELETE FROM files")


async def table(once: Once, *, patience_s: float) -> None:
    """What counts is a version that can be read."""
    once.count("catalog.db", "SELECT version, count(*) FROM versions JOIN files USING (version) GROUP BY version")
    with database(once, "catalog", TABLES) as db:
        await asyncio.gather(server(db), client(once, db, patience_s=patience_s))


async def faulty(once: Once) -> None:
    await table(once, patience_s=1)


async def corrected(once: Once) -> None:
    """No clean-up before the call can no longer land."""
    await table(once, patience_s=2 * SERVER_S)


def test_a_truthful_no_and_then_the_commit() -> None:
    report = explore(faulty, faults=("reset-response",), redeliver=0)
    convicted(report, Verdict.OMISSION, expected=1, actual=0, key="version_1")
    assert by_fault_alone(report)[0].startswith("rr@")
    assert cell(report, "reset-response", "commit") == "0x"


def test_the_clean_up_waits_until_the_call_cannot_land() -> None:
    exactly_once(explore(corrected, faults=("reset-response",)))
