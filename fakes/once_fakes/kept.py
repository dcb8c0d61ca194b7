"""A ledger whose file a process keeps open between requests, as a server must that is asked a thousand times a second.

Opening SQLite and reading its schema anew costs more than all that a contract does. At rest the kept connection holds
no lock and no journal, so whoever copies or replaces the file meanwhile finds it whole.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from os import PathLike

from pytest_once.ledger import Ledger

_Seen = tuple[int, int, int, int]


class KeptLedger(Ledger):
    """A ledger for one thread of one process. Notices before each operation that the file was replaced or rewritten.

    Close it at the end. Operations raise what those of Ledger raise.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        super().__init__(path)
        self._kept = ExitStack()
        self._connection: sqlite3.Connection | None = None
        self._left: _Seen | None = None

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        if self._connection is None or self._seen() != self._left:
            self.close()
            self._connection = self._kept.enter_context(super()._open())
        try:
            yield self._connection
        except BaseException:
            # A statement cut short may hold its lock for as long as somebody looks at the traceback.
            self.close()
            raise
        self._left = self._seen()

    def close(self) -> None:
        """Close the file. The next operation opens it again."""
        self._connection = None
        self._kept.close()

    def _seen(self) -> _Seen | None:
        """What tells that nobody else wrote the file, or put another in its place."""
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
