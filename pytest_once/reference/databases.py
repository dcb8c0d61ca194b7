"""Transactions on SQLite (sqlite3, aiosqlite) and PostgreSQL (psycopg): `database.transact(steps)`.

One connection is kept for each thread (event loop) of each process: opening one costs more than a transaction. A forked
child opens its own and leaves its parent's alone, since closing a SQLite file would drop the parent's locks.

Nothing is ever tried again here. Only the caller knows whether what it did around the transaction may be repeated.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import Any, Protocol, TypeVar

from pytest_once.reference import migrations
from pytest_once.reference.schema import Dialect
from pytest_once.reference.steps import Steps, run, run_async

T = TypeVar("T")


class NotCommitted(Exception):
    """Nothing was committed: the database was busy, or refused to serialize. The whole transaction may be repeated."""


class CommitUnknown(Exception):
    """The connection failed while it committed: both is possible. Look at what is stored before repeating anything."""


class Database(Protocol):
    """What the synchronous stores have in common."""

    def transact(self, steps: Steps[T]) -> T: ...
    def migrate(self) -> list[int]: ...
    def close(self) -> None: ...


class AsyncDatabase(Protocol):
    """What an asynchronous store offers."""

    async def transact(self, steps: Steps[T]) -> T: ...
    async def migrate(self) -> list[int]: ...
    async def close(self) -> None: ...


class SQLite:
    """A SQLite file through the sqlite3 module; in WAL mode once `migrate` has run.

    busy_timeout_s: how long to wait for another process's transaction before NotCommitted is raised. power_loss:
    whether what is committed survives that of the machine too; then each commit waits for the disk, which takes
    milliseconds. Without, a process may still be killed at any point, but after a power failure or a crash of the
    system the last commits may be gone, and their effects happen again (https://www.sqlite.org/pragma.html, synchronous
    = NORMAL in WAL mode).
    """

    dialect = Dialect.SQLITE

    def __init__(self, path: str | PathLike[str], *, busy_timeout_s: float = 5.0, power_loss: bool = True) -> None:
        self.path = os.fspath(path)
        self.busy_timeout_s = busy_timeout_s
        self.power_loss = power_loss
        self._connections: dict[tuple[int, int], sqlite3.Connection] = {}

    def transact(self, steps: Steps[T]) -> T:
        """Perform steps as one transaction, rolled back on any error. Raises NotCommitted and CommitUnknown."""
        connection = self._connection()
        with _sqlite_errors(connection):
            connection.execute("BEGIN IMMEDIATE")
        try:
            result = run(connection, steps)
            with _sqlite_errors(connection, committing=True):
                connection.execute("COMMIT")
        except BaseException:
            connection.rollback()
            raise
        return result

    def migrate(self) -> list[int]:
        """Make the tables that are missing; returns the numbers of the migrations applied now."""
        connection = self._connection()
        deadline = time.monotonic() + self.busy_timeout_s
        while connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
            try:
                connection.execute("PRAGMA journal_mode = wal")
            except sqlite3.OperationalError as error:
                # SQLite does not wait here for the others that change the mode as well.
                if time.monotonic() > deadline:
                    raise NotCommitted(f"the database was busy: {error}") from error
                time.sleep(0.01)
        return self.transact(migrations.migrate(self.dialect))

    def close(self) -> None:
        """Close this process's connections; no other thread may be using one."""
        own = os.getpid()
        for key in [key for key in self._connections if key[0] == own]:
            self._connections.pop(key).close()

    def _connection(self) -> sqlite3.Connection:
        # A thread that has ended leaves its connection to the next one with its number.
        key = (os.getpid(), threading.get_ident())
        known = self._connections.get(key)
        if known is None:
            known = sqlite3.connect(
                self.path, timeout=self.busy_timeout_s, isolation_level=None, check_same_thread=False
            )
            known.execute(f"PRAGMA synchronous = {'full' if self.power_loss else 'normal'}")
            known.execute("PRAGMA foreign_keys = on")
            self._connections[key] = known
        return known


class AsyncSQLite:
    """As SQLite, through aiosqlite. Transactions of tasks on one event loop wait for each other."""

    dialect = Dialect.SQLITE

    def __init__(self, path: str | PathLike[str], *, busy_timeout_s: float = 5.0, power_loss: bool = True) -> None:
        self.path = os.fspath(path)
        self.busy_timeout_s = busy_timeout_s
        self.power_loss = power_loss
        self._connections: dict[tuple[int, int], tuple[Any, asyncio.Lock]] = {}

    async def transact(self, steps: Steps[T]) -> T:
        """Perform steps as one transaction, rolled back on any error and on cancellation.

        Raises NotCommitted and CommitUnknown. Cancelled while it commits, it may have committed.
        """
        key, lock = self._mine()
        async with lock:
            connection = await self._connection(key, lock)
            try:
                with _sqlite_errors(connection):
                    await connection.execute("BEGIN IMMEDIATE")
                result = await run_async(connection, steps)
                with _sqlite_errors(connection, committing=True):
                    await connection.execute("COMMIT")
            except BaseException:
                # The connection's thread works in turn: this comes after whatever was cancelled, even if cancelled too.
                await connection.rollback()
                raise
            return result

    async def migrate(self) -> list[int]:
        """Make the tables that are missing; returns the numbers of the migrations applied now."""
        # The mode of the file is set through a connection of its own, once in the file's life.
        return await asyncio.to_thread(self._migrate)

    def _migrate(self) -> list[int]:
        blocking = SQLite(self.path, busy_timeout_s=self.busy_timeout_s)
        try:
            return blocking.migrate()
        finally:
            blocking.close()

    async def close(self) -> None:
        """Close the connection of this event loop."""
        held = self._connections.pop(self._mine()[0], None)
        if held is not None and held[0] is not None:
            await held[0].close()

    def _mine(self) -> tuple[tuple[int, int], asyncio.Lock]:
        key = (os.getpid(), id(asyncio.get_running_loop()))
        if key not in self._connections:
            self._connections[key] = (None, asyncio.Lock())
        return key, self._connections[key][1]

    async def _connection(self, key: tuple[int, int], lock: asyncio.Lock) -> Any:
        known = self._connections[key][0]
        if known is None:
            try:
                import aiosqlite
            except ImportError as error:
                raise ImportError("AsyncSQLite needs aiosqlite: pip install aiosqlite") from error

            known = await aiosqlite.connect(self.path, timeout=self.busy_timeout_s, isolation_level=None)
            await known.execute(f"PRAGMA synchronous = {'full' if self.power_loss else 'normal'}")
            await known.execute("PRAGMA foreign_keys = on")
            self._connections[key] = (known, lock)
        return known


@contextmanager
def _sqlite_errors(connection: Any, committing: bool = False) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        if committing and not connection.in_transaction:
            raise CommitUnknown(f"COMMIT failed with {error!r}, and no transaction is open any more") from error
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise NotCommitted(f"the database was busy: {error}") from error
        raise


class PostgreSQL:
    """A PostgreSQL database through psycopg 3, at its default isolation (READ COMMITTED) or a stricter one.

    url: as libpq takes it; `?options=-csearch_path%3Dname` chooses a schema.
    """

    dialect = Dialect.POSTGRESQL

    def __init__(self, url: str) -> None:
        self.url = url
        self._connections: dict[tuple[int, int], Any] = {}

    def transact(self, steps: Steps[T]) -> T:
        """Perform steps as one transaction, rolled back on any error. Raises NotCommitted and CommitUnknown."""
        connection = self._connection()
        try:
            with _postgresql_errors(connection):
                result = run(connection, steps)
            with _postgresql_errors(connection, committing=True):
                connection.commit()
        except BaseException:
            if not connection.closed:
                connection.rollback()
            raise
        return result

    def migrate(self) -> list[int]:
        """Make the tables that are missing; returns the numbers of the migrations applied now."""
        return self.transact(migrations.migrate(self.dialect))

    def close(self) -> None:
        """Close this process's connections; no other thread may be using one."""
        own = os.getpid()
        for key in [key for key in self._connections if key[0] == own]:
            self._connections.pop(key).close()

    def _connection(self) -> Any:
        key = (os.getpid(), threading.get_ident())
        known = self._connections.get(key)
        if known is None or known.closed:
            try:
                import psycopg
            except ImportError as error:
                raise ImportError("PostgreSQL needs psycopg 3: pip install 'psycopg[binary]'") from error

            known = self._connections[key] = psycopg.connect(self.url)
        return known


@contextmanager
def _postgresql_errors(connection: Any, committing: bool = False) -> Iterator[None]:
    import psycopg

    try:
        yield
    except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected) as error:
        raise NotCommitted(f"the database refused: {error}") from error
    except psycopg.OperationalError as error:
        if committing and connection.closed:
            raise CommitUnknown(f"the connection was lost while it committed: {error}") from error
        raise
