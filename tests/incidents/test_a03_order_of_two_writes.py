"""A03: "pending writes" and "next checkpoint" go to a thread pool without an order; a crash between them decides.

Both orders are explored here, one a test: a single recorded order would have passed. Reports:
langchain-ai/langgraph#8039, langchain-ai/langgraph#8234. The tool's effect and its result commit together, so that
only the order can harm.
"""

from __future__ import annotations

import sqlite3

from pytest_once import Once, Verdict, explore
from tests.incidents.models import convicted, database, exactly_once

TABLES = "saved(what TEXT PRIMARY KEY, result); ran(tool)"


def save(db: sqlite3.Connection, what: str) -> None:
    db.execute("INSERT OR REPLACE INTO saved VALUES (?, 'done')", (what,))


def node(once: Once, first: str, second: str) -> None:
    once.count("graph.db", "SELECT tool, count(*) FROM ran GROUP BY tool")
    with database(once, "graph", TABLES) as db:
        saved = {what for (what,) in db.execute("SELECT what FROM saved").fetchall()}
        if "next checkpoint" in saved and "pending writes" in saved:
            return
        if "pending writes" not in saved:
            # The tool runs; whichever write is ready first becomes durable together with its effect.
            db.execute("BEGIN")
            db.execute("INSERT INTO ran VALUES ('tool_1')")
            save(db, first)
            db.execute("COMMIT")
            save(db, second)
        else:
            save(db, "next checkpoint")


def test_checkpoint_first_runs_the_tool_again() -> None:
    report = explore(lambda once: node(once, "next checkpoint", "pending writes"), soft_faults=0)
    violation = convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="tool_1")
    assert violation.schedule.crashes == 1
    assert violation.story[0].ending == "killed before graph.db INSERT INTO saved"


def test_pending_writes_first_does_not() -> None:
    exactly_once(explore(lambda once: node(once, "pending writes", "next checkpoint"), soft_faults=0))
