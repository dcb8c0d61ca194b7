"""Failing bookkeeping in SQLite: a change that is refused, or applied although an error is reported.

Orders come while SQLite is already at work, in the trace callback, whose exceptions sqlite3 swallows. So SQLite
itself is made to refuse. A COMMIT fails as busy while another writing statement of the connection is unfinished,
and its transaction stays open; it fails for good once the transaction has been rolled back. A statement outside of
transactions is put into one, which is rolled back afterwards. The call under way then raises what the stdlib would.

What a real database leaves behind is left behind: after SQLITE_BUSY at COMMIT the transaction is open and may be
committed again, after any other error it has been rolled back; `with connection` rolls back in either case; a
transaction that 3.12's `autocommit=False` keeps open is not begun anew by a commit that failed.

A file that has become read-only would refuse the first write of a transaction already. Here it refuses the commit:
what the code does in between, it does in either case with nothing durable changed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pytest_once.faults import COMMIT_UNKNOWN, STORE_BUSY, STORE_FAULTS, STORE_FULL, STORE_READONLY

STATEMENT_FAULTS = STORE_FAULTS
"""Faults of a COMMIT, and of a statement that commits by itself."""
RETURNING_FAULTS = (STORE_BUSY, STORE_FULL, STORE_READONLY)
"""Faults of a statement whose rows must be taken before it commits."""
RETURNED_FAULTS = (STORE_FULL, COMMIT_UNKNOWN)
"""Faults of taking these rows."""

_ERRORS = {
    STORE_BUSY: ("database is locked", "SQLITE_BUSY"),
    STORE_FULL: ("database or disk is full", "SQLITE_FULL"),
    STORE_READONLY: ("attempt to write a readonly database", "SQLITE_READONLY"),
    COMMIT_UNKNOWN: ("disk I/O error", "SQLITE_IOERR"),
}


def store_error(fault: str) -> sqlite3.OperationalError:
    """What sqlite3 raises in such a case, with the error code and its name."""
    message, name = _ERRORS[fault]
    error = sqlite3.OperationalError(message)
    error.sqlite_errorcode = getattr(sqlite3, name)
    error.sqlite_errorname = name
    return error


class Failing:
    """One connection's orders to fail. They are given inside a `call()`, which carries them out.

    ordered: the fault ordered in the call under way. at_work: SQLite is running a statement of this object's own.
    """

    def __init__(self) -> None:
        self.ordered: str | None = None
        self.at_work = False
        self._possible = False
        self._passed: str | None = None
        self._stopped = False
        self._unfinished: sqlite3.Cursor | None = None

    def offer(self, faults: tuple[str, ...]) -> tuple[str, ...]:
        """Those of the faults that can be performed now: none outside of calls, and one in each."""
        return faults if self._possible and self.ordered is None else ()

    @contextmanager
    def call(self, connection: sqlite3.Connection) -> Iterator[None]:
        """A call of sqlite3 that raises if a fault is ordered meanwhile. The innermost one does."""
        outer = self._possible, self.ordered, self._passed, self._stopped
        self._possible, self.ordered, self._passed, self._stopped = True, None, None, False
        try:
            yield
        except sqlite3.Error:
            if not self._to_be_told(failed=True):
                raise
            raise store_error(str(self.ordered)) from None
        else:
            if self._to_be_told(failed=False):
                raise store_error(str(self.ordered))
        finally:
            self._clean_up(connection)
            self._possible, self.ordered, self._passed, self._stopped = outer

    def _to_be_told(self, failed: bool) -> bool:
        """Whether the call raises what was ordered. failed: SQLite has refused something."""
        if self.ordered is None:
            return False
        # A change that failed by itself is not one that was applied: its own error is the right one.
        return self.ordered != COMMIT_UNKNOWN or self._stopped or not failed

    def fail_commit(self, connection: sqlite3.Connection, fault: str, text: str) -> None:
        """Before a COMMIT or an outermost RELEASE: let it fail, or pass and be reported as failed."""
        self.ordered = fault
        if fault == COMMIT_UNKNOWN:
            self._passed = text
        elif fault == STORE_BUSY:
            # Only asks, but counts as writing, and is unfinished until its row has been taken.
            self._unfinished = self._run(connection, "PRAGMA journal_mode")
        else:
            self._run(connection, "ROLLBACK")

    def fail_change(self, connection: sqlite3.Connection, fault: str, text: str) -> None:
        """The same before, or in the midst of, a statement that commits by itself."""
        self.ordered, self._passed = fault, text
        if fault != COMMIT_UNKNOWN:
            self._run(connection, "BEGIN")

    def stop(self, connection: sqlite3.Connection, verb: str, text: str) -> None:
        """Before each further statement of the call: what a script or many rows would have done after the failure.

        It is done in a transaction that is rolled back at the end of the call.
        """
        # Triggers make SQLite trace their statement once more, which must not be taken for the next one.
        if self._passed is None or text == self._passed or verb == "ROLLBACK":
            return
        self._stopped = True
        if verb in ("COMMIT", "END", "RELEASE"):
            if connection.in_transaction:
                self._run(connection, "ROLLBACK")
        elif not connection.in_transaction:
            self._run(connection, "BEGIN")

    def _clean_up(self, connection: sqlite3.Connection) -> None:
        if self._unfinished is not None:
            self._unfinished.close()
            self._unfinished = None
        if self._passed is not None and connection.in_transaction:
            self._run(connection, "ROLLBACK")

    def _run(self, connection: sqlite3.Connection, sql: str) -> sqlite3.Cursor:
        # Neither the user's factory nor the user's trace callback has a part in it.
        self.at_work = True
        try:
            return sqlite3.Cursor(connection).execute(sql)
        finally:
            self.at_work = False


def take_all(cursor: sqlite3.Cursor) -> None:
    """Run a statement that returns rows to its end, so that nothing of it is under way any more."""
    with suppress(sqlite3.Error):  # it is about to be reported as failed anyway
        sqlite3.Cursor.fetchall(cursor)
