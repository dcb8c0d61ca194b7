"""The receiver: four warehouses which differ in what they remember about a request, and when."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import TracebackType
from typing import Self

from examples.five_cuts.intent import ConflictingArguments, Intent

# One transaction, so that a crash leaves both tables or none.
SCHEMA = """
BEGIN;
CREATE TABLE reservations (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL, part TEXT NOT NULL, quantity INTEGER NOT NULL
);
CREATE TABLE receipts (key TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, result TEXT NOT NULL);
COMMIT;
"""


class Warehouse:
    """Treats every arrival as a new request."""

    def __init__(self, directory: Path) -> None:
        self.conn = sqlite3.connect(directory / "warehouse.db")
        if not self.conn.execute("SELECT 1 FROM sqlite_master WHERE name = 'receipts'").fetchone():
            self.conn.executescript(SCHEMA)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.conn.close()

    def reserve(self, intent: Intent) -> str:
        """Reserve the part and say so."""
        with self.conn:
            self._insert_reservation(intent)
        return _result(intent)

    def reservations(self, key: str) -> int:
        """How often the key took effect."""
        row = self.conn.execute("SELECT count(*) FROM reservations WHERE key = ?", (key,)).fetchone()
        return int(row[0])

    def forget_receipt(self, key: str) -> None:
        """Delete a receipt, as a retention period does."""
        with self.conn:
            self.conn.execute("DELETE FROM receipts WHERE key = ?", (key,))

    def _insert_reservation(self, intent: Intent) -> None:
        self.conn.execute(
            "INSERT INTO reservations (key, part, quantity) VALUES (?, ?, ?)",
            (intent.key, intent.part, intent.quantity),
        )

    def _insert_receipt(self, intent: Intent) -> None:
        self.conn.execute(
            "INSERT INTO receipts (key, fingerprint, result) VALUES (?, ?, ?)",
            (intent.key, intent.fingerprint, _result(intent)),
        )

    def _stored_result(self, intent: Intent) -> str | None:
        row = self.conn.execute("SELECT fingerprint, result FROM receipts WHERE key = ?", (intent.key,)).fetchone()
        if row is None:
            return None
        fingerprint, result = row
        if fingerprint != intent.fingerprint:
            raise ConflictingArguments(f"{intent.key} is already used for another reservation")
        return str(result)


class WarehouseWithReceipts(Warehouse):
    """Stores the receipt in the transaction of the effect and answers a known key from it."""

    def reserve(self, intent: Intent) -> str:
        with self.conn:
            # Takes the write lock before looking, so that two arrivals cannot both find no receipt.
            self.conn.execute("BEGIN IMMEDIATE")
            stored = self._stored_result(intent)
            if stored is not None:
                return stored
            self._insert_reservation(intent)
            self._insert_receipt(intent)
        return _result(intent)


class ReceiptAfterEffect(Warehouse):
    """Broken: a crash between the two transactions leaves an effect without receipt, and it is repeated."""

    def reserve(self, intent: Intent) -> str:
        stored = self._stored_result(intent)
        if stored is not None:
            return stored
        with self.conn:
            self._insert_reservation(intent)
        with self.conn:
            self._insert_receipt(intent)
        return _result(intent)


class ReceiptBeforeEffect(Warehouse):
    """Broken: a crash between the two transactions leaves a receipt for an effect that never comes."""

    def reserve(self, intent: Intent) -> str:
        stored = self._stored_result(intent)
        if stored is not None:
            return stored
        with self.conn:
            self._insert_receipt(intent)
        with self.conn:
            self._insert_reservation(intent)
        return _result(intent)


def _result(intent: Intent) -> str:
    return f"{intent.quantity} x {intent.part} reserved"
