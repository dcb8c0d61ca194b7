"""An outbox as it is often written first, and its adapter. Nearly every question finds something."""

from __future__ import annotations

import sqlite3
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from pytest_once.review import Answer, Send, Sent

WEEK_S = 7 * 86400.0


class Outbox:
    """One row for each message, with a flag "done"."""

    lease_s = None  # claims are for ever, or rather there are none
    order = "snapshot"

    def __init__(self, directory: Path) -> None:
        self.ours = sqlite3.connect(directory / "agent.db", isolation_level=None, timeout=0.1)
        self.theirs = sqlite3.connect(directory / "dashboard.db", isolation_level=None, timeout=0.1)

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()

    def put(self, number: int, before_commit: Callable[[], None]) -> None:
        if self.changed(number):
            return
        self.ours.execute("BEGIN IMMEDIATE")
        self.ours.execute("INSERT INTO reports VALUES (?)", (number,))
        before_commit()
        self.ours.execute("COMMIT")
        self.ours.execute("INSERT INTO outbox VALUES (?, 0, ?)", (number, time.time()))

    def relay(self, send: Send, name: str) -> None:
        numbers = [number for (number,) in self.ours.execute("SELECT number FROM outbox WHERE done = 0")]
        if not numbers:
            return
        # The batch was sent if nothing was raised; what fails is tried again.
        answers = send([Sent(str(uuid.uuid4()), number) for number in numbers])
        if Answer.FAILED not in answers.values():
            self.ours.execute("UPDATE outbox SET done = 1")

    def consume(self, message: Sent) -> None:
        try:
            self.theirs.execute("INSERT INTO seen VALUES (?)", (message.event_id,))
        except sqlite3.IntegrityError:
            return
        self.theirs.execute("INSERT INTO shown VALUES (?)", (message.number,))

    def changed(self, number: int) -> bool:
        return bool(self.ours.execute("SELECT 1 FROM reports WHERE version = ?", (number,)).fetchall())

    def stored(self, number: int) -> bool:
        return bool(self.ours.execute("SELECT 1 FROM outbox WHERE number = ?", (number,)).fetchall())

    def pending(self) -> int:
        return int(self.ours.execute("SELECT count(*) FROM outbox WHERE done = 0").fetchone()[0])

    def applied(self, number: int) -> int:
        return int(self.theirs.execute("SELECT count(*) FROM shown WHERE version = ?", (number,)).fetchone()[0])

    def shown(self) -> int | None:
        found = self.theirs.execute("SELECT version FROM shown ORDER BY rowid DESC LIMIT 1").fetchone()
        return None if found is None else int(found[0])

    def purge(self, older_than_s: float) -> None:
        self.ours.execute("DELETE FROM outbox WHERE put_at < ?", (time.time() - older_than_s,))

    def oldest_waiting_s(self) -> float | None:
        (since,) = self.ours.execute("SELECT min(put_at) FROM outbox WHERE done = 0").fetchone()
        return None if since is None else time.time() - float(since)


class Adapter:
    """For the review."""

    def prepare(self, directory: Path) -> None:
        with sqlite3.connect(directory / "agent.db") as ours:
            ours.execute("CREATE TABLE reports (version INTEGER PRIMARY KEY)")
            ours.execute("CREATE TABLE outbox (number INTEGER PRIMARY KEY, done INTEGER, put_at REAL)")
        ours.close()
        with sqlite3.connect(directory / "dashboard.db") as theirs:
            theirs.execute("CREATE TABLE seen (event_id TEXT PRIMARY KEY)")
            theirs.execute("CREATE TABLE shown (version INTEGER)")
        theirs.close()

    def open(self, directory: Path, *_: str) -> Outbox:
        return Outbox(directory)


ADAPTER = Adapter()
