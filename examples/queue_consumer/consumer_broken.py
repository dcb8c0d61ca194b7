"""A consumer that acts, and then deletes the message.

It must fail: a crash between the two, or an answer to the deletion that is lost, hands the message out again, and the
order is shipped a second time. The queue's own deduplication does not help, since it is about sending.
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
        with closing(sqlite3.connect(db)) as conn:
            conn.execute("CREATE TABLE IF NOT EXISTS shipments (order_id TEXT NOT NULL)")

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
            conn.execute("INSERT INTO shipments VALUES (?)", (message.body,))
