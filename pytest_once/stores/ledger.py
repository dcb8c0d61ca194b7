"""The providers' ledger as a part of the world: its file as a whole, and of its rows only what is state."""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from pytest_once.canonical import Row
from pytest_once.ledger import LedgerSnapshot
from pytest_once.stores import StoreError

_KEPT_SNAPSHOTS = 256
_COLUMNS = {
    "effects": ("provider", "operation", "logical_key", "payload", "reference", "visible_s", "state", "due_s"),
    "receipts": ("provider", "key", "fingerprint", "status", "body", "expires_s", "promised_s"),
    "in_flight": ("provider", "operation", "key", "payload", "expires_s", "accepted"),
    "events": ("provider", "kind", "body", "acknowledged"),
    "positions": ("provider", "name", "value"),
    "decisions": ("provider", "parameter", "value"),
    "memory": ("name", "value"),
}


@dataclass(frozen=True, slots=True)
class LedgerPicture:
    """The bytes of a ledger file, and a hash of them."""

    data: bytes
    key: bytes


class LedgerStore:
    """The ledger at a path. Its writers open it anew for each operation, so a restore replaces the file."""

    def __init__(self, path: Path, name: str = "ledger") -> None:
        self.name = name
        self._path = path
        self._rows: OrderedDict[bytes, tuple[Row, ...]] = OrderedDict()
        self._last: LedgerPicture | None = None

    def snapshot(self) -> LedgerPicture:
        """Raises StoreError if the file is missing, or somebody is in the middle of a transaction."""
        for suffix in ("-journal", "-wal"):
            try:
                size = os.stat(f"{self._path}{suffix}").st_size
            except FileNotFoundError:
                continue
            if size:
                raise StoreError(
                    f"the ledger {self._path} has a {suffix[1:]}: a provider is writing it while the process "
                    "under test is stopped; let provider calls finish before the next boundary"
                )
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            message = f"the ledger {self._path} is missing; code under test must not touch it"
            raise StoreError(message) from None
        if self._last is None or self._last.data != data:
            self._last = LedgerPicture(data, hashlib.sha256(data).digest())
        return self._last

    def restore(self, snapshot: LedgerPicture) -> None:
        """Put a whole file in place at once, whoever looks."""
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
        temporary.write_bytes(snapshot.data)
        for suffix in ("-journal", "-wal", "-shm"):
            Path(f"{self._path}{suffix}").unlink(missing_ok=True)
        os.replace(temporary, self._path)

    def rows(self, snapshot: LedgerPicture) -> list[Row]:
        """What a contract or a lookup reads; the history of arrivals is evidence, not state."""
        known = self._rows.get(snapshot.key)
        if known is None:
            known = tuple(
                Row(f"ledger/{table}", _COLUMNS.get(table, tuple(map(str, range(len(cells))))), tuple(cells))
                for table, cells in LedgerSnapshot(snapshot.data).state_rows()
            )
            self._rows[snapshot.key] = known
            if len(self._rows) > _KEPT_SNAPSHOTS:
                self._rows.popitem(last=False)
        return list(known)
