"""A consumer with an inbox: which messages it has handled is committed together with what it did.

A message that comes again is in the inbox, so it is deleted and nothing else. Shipment and inbox are one transaction:
there is no crash between them.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from examples.queue_consumer.queue import Message, Queue


class Consumer:
    """hidden_s: for how long nobody else gets a message that is being handled."""

    def __init__(self, db: Path, queue: Queue, hidden_s: int = 30) -> None:
        self._db = db
        self._queue = queue
        self._hidden_s = hidden_s
        with closing(sqlite3.connect(db)) as conn, conn:
            conn.execute("CREATE TABLE IF NOT EXISTS shipments (order_id TEXT NOT NULL)")
            conn.execute("CREATE TABLE IF NOT EXISTS inbox (message_id TEXT PRIMARY KEY)")

    def drain(self) -> None:
        """Handle messages until there is none, nor one that somebody died with."""
        waited = False
        while True:
            message = self._queue.receive(self._hidden_s)
            if message is not None:
                self._handle(message)
                self._queue.delete(message)
            elif waited:
                return
            else:
                time.sleep(self._hidden_s)
            waited = message is None

    def _handle(self, message: Message) -> None:
        with closing(sqlite3.connect(self._db)) as conn, conn:
            taken = conn.execute("INSERT OR IGNORE INTO inbox VALUES (?)", (message.id,)).rowcount
            if taken:
                conn.execute("INSERT INTO shipments VALUES (?)", (message.body,))
