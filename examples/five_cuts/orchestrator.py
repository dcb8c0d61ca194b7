"""The sender's durable record of what it means to do."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from examples.five_cuts.intent import ConflictingArguments, Intent

State = Literal["pending", "done"]

SCHEMA = """
CREATE TABLE intents (
    key TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    action TEXT NOT NULL,
    part TEXT NOT NULL,
    quantity INTEGER NOT NULL,
    state TEXT NOT NULL,
    result TEXT
)
"""


class Orchestrator:
    def __init__(self, directory: Path) -> None:
        self.conn = sqlite3.connect(directory / "orchestrator.db")
        if not self.conn.execute("SELECT 1 FROM sqlite_master WHERE name = 'intents'").fetchone():
            self.conn.execute(SCHEMA)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.conn.close()

    def record(self, intent: Intent, state: State) -> bool:
        """Commit the intent in that state; False if it was recorded before, in whatever state."""
        recorded = self._find(intent.key)
        if recorded is not None:
            if recorded != intent:
                raise ConflictingArguments(f"{intent.key} is already recorded with other arguments")
            return False
        with self.conn:
            self.conn.execute(
                "INSERT INTO intents (key, tenant, action, part, quantity, state) VALUES (?, ?, ?, ?, ?, ?)",
                (intent.key, intent.tenant, intent.action, intent.part, intent.quantity, state),
            )
        return True

    def pending(self) -> list[Intent]:
        rows = self.conn.execute(
            "SELECT tenant, action, part, quantity FROM intents WHERE state = 'pending' ORDER BY key"
        ).fetchall()
        return [Intent(*row) for row in rows]

    def mark_done(self, key: str, result: str) -> None:
        with self.conn:
            self.conn.execute("UPDATE intents SET state = 'done', result = ? WHERE key = ?", (result, key))

    def state(self, key: str) -> State | None:
        row = self.conn.execute("SELECT state FROM intents WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def _find(self, key: str) -> Intent | None:
        row = self.conn.execute("SELECT tenant, action, part, quantity FROM intents WHERE key = ?", (key,)).fetchone()
        return None if row is None else Intent(*row)
