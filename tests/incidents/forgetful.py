"""A provider that remembers a key and its reply for a while, also if the reply was a refusal (P07 and P09).

Effect and reply commit together. memory_s=None: it remembers for as long as anybody tries.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from pytest_once import Once
from tests.incidents.models import database

TABLES = "replies(key TEXT PRIMARY KEY, status, since_s REAL); done(what)"


class Forgetful:
    def __init__(self, once: Once, memory_s: float | None, refuses: Callable[[], bool] = lambda: False) -> None:
        self.once = once
        self.memory_s = memory_s
        self.refuses = refuses
        once.count("provider.db", "SELECT what, count(*) FROM done GROUP BY what")
        self.act = once.tool(self._act, name="act", counted=False)

    def _act(self, key: str, what: str, *, stores_refusals: bool = True) -> int:
        """The status: 200, or 402 for a refusal, be it new or remembered."""
        with database(self.once, "provider", TABLES) as db:
            row = db.execute("SELECT status, since_s FROM replies WHERE key = ?", (key,)).fetchone()
            if row is not None and (self.memory_s is None or time.time() < row[1] + self.memory_s):
                return int(row[0])
            status = 402 if self.refuses() else 200
            db.execute("BEGIN")
            if status == 200:
                db.execute("INSERT INTO done VALUES (?)", (what,))
            if status == 200 or stores_refusals:
                db.execute("INSERT OR REPLACE INTO replies VALUES (?, ?, ?)", (key, status, time.time()))
            db.execute("COMMIT")
            return status
