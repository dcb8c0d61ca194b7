"""The sqlite3 seam: every durable change of a SQLite file is announced before it happens.

Every connection the process opens gets a trace callback, which SQLite calls at the start of each statement,
whoever issued it: `commit()`, `with connection`, an explicit COMMIT, `executescript`, aiosqlite's thread,
SQLAlchemy. Only what makes a change durable is announced: the COMMIT (or outermost RELEASE) of a transaction
that wrote something, and outside of transactions each writing statement. An autocommitting `... RETURNING` is
announced again before its rows are fetched, because SQLite commits it when the last row has been taken.

Connections also get
- `PRAGMA synchronous=OFF`: a crash here is the death of the process, not of the machine;
- date and time functions that follow the virtual clock (sqlite_time).

Not seen: `sqlite3.Connection(...)` called directly, and the commit of a `Blob` closed later than its
`blobopen()`, which is what is announced.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import traceback
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_once import clock
from pytest_once.boundaries import announce
from pytest_once.boundaries.rebinding import Reference, rebind
from pytest_once.boundaries.sqlite_faults import (
    RETURNED_FAULTS,
    RETURNING_FAULTS,
    STATEMENT_FAULTS,
    Failing,
    take_all,
)
from pytest_once.boundaries.sqlite_statements import (
    UNREFUSABLE,
    attached_file,
    ends_transaction,
    opening,
    returns_rows,
    savepoint,
    written_by,
)
from pytest_once.boundaries.sqlite_time import keep_virtual_time
from pytest_once.site import Site, call_site

_on_outside: Callable[[str, Site], None] = lambda path, site: None  # noqa: E731
outside: list[str] = []
"""Paths of SQLite files below no root that this process has opened; their changes are not in the world."""

EXIT_UNANNOUNCED = 70
"""Exit status of a process that could not announce a boundary and therefore must not pass it."""


@dataclass(slots=True)
class _Watch:
    """What the seam knows about one connection.

    file: how announcements name the database; None while nothing durable is attached. foreign: its path, if it is
    below no root. written: tables written since the transaction began, in that order. savepoint: the one that
    began it, if one did.
    returning: the statement that commits when its rows have been fetched. executing: inside one `execute()`;
    announced: that call's statement has been announced (triggers make SQLite trace it again). failing: how changes
    that are ordered to fail do so.
    """

    roots: tuple[str, ...]
    file: str | None = None
    foreign: str | None = None
    written: dict[str, None] = field(default_factory=dict)
    savepoint: str | None = None
    returning: str | None = None
    executing: bool = False
    announced: bool = False
    users_trace: Callable[[str], object] | None = None
    failing: Failing = field(default_factory=Failing)

    def attach(self, path: str) -> None:
        if path and self.file is None:
            self.file = _shown(path, self.roots)
            self.foreign = path if path in outside else None

    def changes(self, what: str, faults: tuple[str, ...] = ()) -> str | None:
        """Announce that the file is about to change; `what` completes the sentence. Returns the fault ordered."""
        if self.foreign is not None:
            _on_outside(self.foreign, call_site())
        return announce("sqlite", f"{self.file} {what}", faults=self.failing.offer(faults)).fault

    def statement_begins(self, connection: sqlite3.Connection, text: str) -> None:
        verb, sql = opening(text)
        if verb in ("SELECT", ""):
            return  # without a verb it is SQLite's own, which it traces as a comment
        self.failing.stop(connection, verb, text)
        in_transaction = connection.in_transaction
        if verb in ("COMMIT", "END"):
            if in_transaction:
                self._commits(connection, "COMMIT", text)
        elif verb == "RELEASE":
            if in_transaction and self.savepoint is not None and savepoint(sql) == self.savepoint:
                self._commits(connection, "RELEASE", text)
        elif verb in ("BEGIN", "SAVEPOINT"):
            if not in_transaction:
                self.written.clear()
                self.savepoint = savepoint(sql)
        elif verb == "ROLLBACK":
            if ends_transaction(sql):
                self.written.clear()
        elif verb == "ATTACH":
            self.attach(attached_file(sql))
        elif self.file is not None and (written := written_by(verb, sql)):
            statement, what = written
            if in_transaction:
                self.written[what] = None
            elif not (self.executing and self.announced):
                self.announced = True
                faults = STATEMENT_FAULTS
                if returns_rows(sql):
                    self.returning, faults = statement, RETURNING_FAULTS
                elif statement in UNREFUSABLE:
                    faults = ()
                if fault := self.changes(statement, faults):
                    self.failing.fail_change(connection, fault, text)

    def _commits(self, connection: sqlite3.Connection, verb: str, text: str) -> None:
        # Without writes the commit changes nothing. A failed COMMIT comes again, so the tables are kept.
        if self.file is not None and self.written:
            fault = self.changes(f"{verb} ({', '.join(self.written)})", STATEMENT_FAULTS)
            if fault is not None:
                self.failing.fail_commit(connection, fault, text)


class _WatchedCursor(sqlite3.Cursor):
    """A cursor that announces an autocommitting RETURNING statement before its rows are taken."""

    _once_returning: str | None = None

    def execute(self, *arguments: Any) -> Any:
        self._once_before_commit()
        watch = _watch_of(self)
        if watch is None:
            return super().execute(*arguments)
        watch.executing, watch.announced, watch.returning = True, False, None
        try:
            with watch.failing.call(self.connection):
                result = super().execute(*arguments)
                if watch.failing.ordered is not None:
                    watch.returning = None
                    take_all(self)
                return result
        finally:
            watch.executing = False
            self._once_returning, watch.returning = watch.returning, None

    def executemany(self, *arguments: Any) -> Any:
        self._once_before_commit()
        with _failing(self.connection):
            return super().executemany(*arguments)

    def executescript(self, *arguments: Any) -> Any:
        self._once_before_commit()
        with _failing(self.connection):
            return super().executescript(*arguments)

    # SQLite commits when the last row has been taken, and nobody knows beforehand which one that is.

    def fetchone(self) -> Any:
        if self._once_returning is None:
            return super().fetchone()
        with self._once_taking():
            row = super().fetchone()
            self._once_taken(row is None)
        return row

    def fetchmany(self, *arguments: Any, **named: Any) -> Any:
        if self._once_returning is None:
            return super().fetchmany(*arguments, **named)
        with self._once_taking():
            rows = super().fetchmany(*arguments, **named)
            self._once_taken(not rows)
        return rows

    def fetchall(self) -> Any:
        if self._once_returning is None:
            return super().fetchall()
        with self._once_taking():
            rows = super().fetchall()
            self._once_taken(True)
        return rows

    def __next__(self) -> Any:
        if self._once_returning is None:
            return super().__next__()
        with self._once_taking():
            row = self._once_next()
            self._once_taken(row is _NO_ROW)
        if row is _NO_ROW:
            raise StopIteration
        return row

    def _once_next(self) -> Any:
        # A context manager made of a generator cannot let StopIteration through.
        try:
            return super().__next__()
        except StopIteration:
            return _NO_ROW

    @contextmanager
    def _once_taking(self) -> Iterator[None]:
        """Around taking rows, which may commit the statement that returns them."""
        watch = _watch_of(self)
        if watch is None or self.connection.in_transaction:
            yield
            return
        with watch.failing.call(self.connection):
            what = f"{self._once_returning} (returned)"
            if fault := watch.changes(what, RETURNED_FAULTS):
                watch.failing.fail_change(self.connection, fault, what)
            yield
            if fault is not None:
                self._once_returning = None
                take_all(self)

    def _once_taken(self, exhausted: bool) -> None:
        # The number of rows is known once the statement has run to its end.
        if exhausted or self.rowcount > 0:
            self._once_returning = None

    def close(self) -> None:
        self._once_before_commit()
        super().close()

    def __del__(self) -> None:
        self._once_before_commit()

    def _once_before_commit(self) -> None:
        statement = self._once_returning
        if statement is not None:
            watch = _watch_of(self)
            if watch is not None and not self.connection.in_transaction:
                watch.changes(f"{statement} (returned)")


def _watch_of(cursor: sqlite3.Cursor) -> _Watch | None:
    return getattr(cursor.connection, "_once_watch", None)


_NO_ROW = object()


def _failing(connection: sqlite3.Connection) -> AbstractContextManager[None]:
    """A call on the connection that raises what is ordered meanwhile."""
    watch: _Watch | None = getattr(connection, "_once_watch", None)
    return nullcontext() if watch is None else watch.failing.call(connection)


_roots: tuple[str, ...] = ()


class _WatchedConnection(sqlite3.Connection):
    """What every connection of an incarnation is, besides what the user's `factory` makes of it."""

    _once_watch: _Watch | None = None

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._once_begin_watching()

    def _once_begin_watching(self) -> None:
        # Also reached from the user's own __init__, which may already write.
        if self._once_watch is None:
            self._once_watch = watch = _Watch(_roots)
            _prepare(self, watch)
            sqlite3.Connection.set_trace_callback(self, _tracer(weakref.ref(self), watch))

    def cursor(self, factory: Any = None) -> Any:
        self._once_begin_watching()
        if factory is None:
            return super().cursor(_WatchedCursor)
        if isinstance(factory, type) and issubclass(factory, sqlite3.Cursor):
            return super().cursor(_subclass(_WatchedCursor, factory))
        return super().cursor(factory)

    def commit(self) -> None:
        with _failing(self):
            super().commit()

    def __exit__(self, *raised: Any) -> Any:
        with _failing(self):
            return super().__exit__(*raised)

    # The C versions of these three make a plain cursor without asking cursor().

    def execute(self, *arguments: Any) -> Any:
        return self.cursor().execute(*arguments)

    def executemany(self, *arguments: Any) -> Any:
        return self.cursor().executemany(*arguments)

    def executescript(self, *arguments: Any) -> Any:
        return self.cursor().executescript(*arguments)

    def set_trace_callback(self, trace_callback: Callable[[str], object] | None) -> None:
        self._once_begin_watching()
        if self._once_watch is not None:
            self._once_watch.users_trace = trace_callback

    def backup(self, target: sqlite3.Connection, **named: Any) -> None:
        watch = getattr(target, "_once_watch", None)
        if watch is not None and watch.file is not None:
            watch.changes("backup")
        super().backup(target, **named)

    def blobopen(self, table: str, *arguments: Any, **named: Any) -> Any:
        watch = self._once_watch
        if watch is not None and watch.file is not None and not named.get("readonly", False):
            if self.in_transaction:
                watch.written[table] = None
            else:
                watch.changes(f"blob in {table}")
        return super().blobopen(table, *arguments, **named)


def _tracer(connection: weakref.ref[sqlite3.Connection], watch: _Watch) -> Callable[[str], None]:
    # Weak, because what SQLite itself refers to must never keep a dropped connection, and its locks, alive.
    def trace(text: str) -> None:
        alive = connection()
        if watch.failing.at_work:
            return
        if alive is not None:
            try:
                watch.statement_begins(alive, text)
            except BaseException:
                # sqlite3 would swallow this and go on: the change would happen unannounced.
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(EXIT_UNANNOUNCED)
        if watch.users_trace is not None:
            watch.users_trace(text)

    return trace


def _prepare(connection: sqlite3.Connection, watch: _Watch) -> None:
    # Not connection.execute(): the user's factory may override it.
    cursor = sqlite3.Cursor(connection)
    row_factory, connection.row_factory = connection.row_factory, None
    try:
        row = cursor.execute("PRAGMA database_list").fetchone()
    finally:
        connection.row_factory = row_factory
    if row and row[2]:
        watch.attach(str(row[2]))
        _never_sync(connection, cursor)
    cursor.close()
    keep_virtual_time(connection)


def _never_sync(connection: sqlite3.Connection, cursor: sqlite3.Cursor) -> None:
    # The pragma reads the schema: it must neither wait for another connection's lock nor fail the connect.
    wait_ms = cursor.execute("PRAGMA busy_timeout").fetchone()[0]
    with suppress(sqlite3.DatabaseError):
        cursor.execute("PRAGMA busy_timeout=0")
        if not connection.in_transaction:
            cursor.execute("PRAGMA synchronous=OFF")
        else:
            # 3.12's autocommit=False has begun one already, in which the pragma is refused.
            begun: Any = connection
            begun.autocommit = True
            try:
                cursor.execute("PRAGMA synchronous=OFF")
            finally:
                begun.autocommit = False
    cursor.execute(f"PRAGMA busy_timeout={int(wait_ms)}")


def _shown(path: str, roots: Iterable[str]) -> str:
    # SQLite has resolved symbolic links already.
    for root in roots:
        if path.startswith(root):
            return path[len(root) :]
    if path not in outside:
        outside.append(path)
    return os.path.basename(path)


# Taking over the ways to a connection.

_original_connect: Callable[..., sqlite3.Connection] = sqlite3.connect
_subclasses: dict[tuple[type, type], type] = {}


def _subclass(watched: type, users: type) -> type:
    """A subclass of the user's class whose super() calls reach our methods first; it keeps the user's name."""
    if issubclass(users, watched):
        return users
    made = _subclasses.get((watched, users))
    if made is None:
        named = {"__module__": users.__module__, "__qualname__": users.__qualname__, "__doc__": users.__doc__}
        bases = (watched,) if users in (sqlite3.Connection, sqlite3.Cursor) else (users, watched)
        made = types.new_class(users.__name__, bases, {}, lambda namespace: namespace.update(named))
        _subclasses[watched, users] = made
    return made


# Made here, in the parent, so that not every child has to.
_subclass(_WatchedConnection, sqlite3.Connection)

_FACTORY_POSITION = 5


def _connect(*arguments: Any, **named: Any) -> Any:
    """sqlite3.connect, but whatever connection it makes is watched."""
    positional = len(arguments) > _FACTORY_POSITION
    factory = arguments[_FACTORY_POSITION] if positional else named.get("factory", sqlite3.Connection)
    if not (isinstance(factory, type) and issubclass(factory, sqlite3.Connection)):
        return _watch_foreign(_original_connect(*arguments, **named))
    watched = _subclass(_WatchedConnection, factory)
    if positional:
        arguments = (*arguments[:_FACTORY_POSITION], watched, *arguments[_FACTORY_POSITION + 1 :])
    else:
        named["factory"] = watched
    return _original_connect(*arguments, **named)


def _watch_foreign(made: Any) -> Any:
    """Watch what a factory that is not a class returned, as far as that works without a subclass."""
    if isinstance(made, sqlite3.Connection) and not isinstance(made, _WatchedConnection):
        watch = _Watch(_roots)
        _prepare(made, watch)
        alive: Any = lambda: made  # noqa: E731 - plain connections take no weak references
        made.set_trace_callback(_tracer(alive, watch))
    return made


def originals() -> tuple[object, ...]:
    """What `install()` replaces: the parent looks for early references to these."""
    return (_original_connect,)


def install(
    roots: Sequence[Path],
    early: Sequence[Reference] = (),
    on_outside: Callable[[str, Site], None] = lambda path, site: None,
) -> None:
    """Watch every SQLite connection this process opens from now on; for a forked child only.

    roots: tracked directories; files are named relative to the one that contains them. on_outside: called with the
    path before a file below no root changes; need not return.
    """
    global _roots, _on_outside
    _on_outside = on_outside
    _roots = ()
    for root in roots:
        add_root(root)
    outside.clear()
    rebind(early, _original_connect, _connect)
    connect: Any = _connect
    sqlite3.connect = connect
    sqlite3.dbapi2.connect = connect
    _hold_clock_for_aiosqlite()


def add_root(directory: Path) -> None:
    """Track one more directory: connections opened from now on name their files relative to it."""
    global _roots
    _roots = (*_roots, os.path.join(os.path.realpath(directory), ""))


def _hold_clock_for_aiosqlite() -> None:
    # Its thread is real work: other coroutines' virtual sleeps must not run on while it lasts.
    core = sys.modules.get("aiosqlite.core")
    execute = getattr(getattr(core, "Connection", None), "_execute", None)
    if core is None or execute is None:
        return

    async def held_execute(self: Any, *arguments: Any, **named: Any) -> Any:
        with clock.held():
            return await execute(self, *arguments, **named)

    core.Connection._execute = held_execute
