"""The sqlite3 seam: every durable change of a SQLite file is announced before it happens.

Every connection the process opens gets a trace callback, which SQLite calls at the start of each statement,
whoever issued it: `commit()`, `with connection`, an explicit COMMIT, `executescript`, aiosqlite's thread,
SQLAlchemy. Only what makes a change durable is announced: the COMMIT (or outermost RELEASE) of a transaction
that wrote something, and outside of transactions each writing statement. An autocommitting `... RETURNING` is
announced again before its rows are fetched, because SQLite commits it when the last row has been taken.

Connections also get
- `PRAGMA synchronous=OFF`: a crash here is the death of the process, not of the machine;
- date and time functions that follow the virtual clock. They are registered as deterministic, like the
  built-in ones allowed in indexes and CHECK constraints: a schema with an index on `date(column)` could
  otherwise not be opened at all. The price: `date('now')` in an index, a CHECK constraint or a stored column, at
  which SQLite fails with the first row, is accepted.

Not seen: `sqlite3.Connection(...)` called directly, and the commit of a `Blob` closed later than its
`blobopen()`, which is what is announced.
"""

from __future__ import annotations

import os
import re
import sqlite3
import sys
import threading
import time
import traceback
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

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
from pytest_once.site import Site, call_site

_on_outside: Callable[[str, Site], None] = lambda path, site: None  # noqa: E731
outside: list[str] = []
"""Paths of SQLite files below no root that this process has opened; their changes are not in the world."""

EXIT_UNANNOUNCED = 70
"""Exit status of a process that could not announce a boundary and therefore must not pass it."""

_SKIP = re.compile(r"(?:\s+|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)
_WORD = r"""(?:"[^"]+"|\[[^\]]+\]|`[^`]+`|'[^']+'|[\w$]+)"""
_NAME = rf"({_WORD}(?:\s*\.\s*{_WORD})?)"
_FLAGS = re.IGNORECASE | re.DOTALL
_QUOTING = re.compile(r"[\"\[\]`'\s]")
_WRITES = (
    ("INSERT INTO", re.compile(rf"INSERT\s+(?:OR\s+\w+\s+)?INTO\s+{_NAME}", _FLAGS)),
    ("REPLACE INTO", re.compile(rf"REPLACE\s+INTO\s+{_NAME}", _FLAGS)),
    ("UPDATE", re.compile(rf"UPDATE\s+(?:OR\s+\w+\s+)?{_NAME}", _FLAGS)),
    ("DELETE FROM", re.compile(rf"DELETE\s+FROM\s+{_NAME}", _FLAGS)),
)
_SCHEMA = re.compile(
    r"(CREATE|DROP|ALTER)\s+(?:TEMP\s+|TEMPORARY\s+|UNIQUE\s+|VIRTUAL\s+)*(TABLE|INDEX|VIEW|TRIGGER)\s+"
    rf"(?:IF\s+(?:NOT\s+)?EXISTS\s+)?{_NAME}",
    _FLAGS,
)
_LITERAL = re.compile(r"'(?:[^']|'')*'")
_RETURNING = re.compile(r"\bRETURNING\b", re.IGNORECASE)
_RELEASE = re.compile(rf"RELEASE\s+(?:SAVEPOINT\s+)?{_NAME}", _FLAGS)
_SAVEPOINT = re.compile(rf"SAVEPOINT\s+{_NAME}", _FLAGS)
_ROLLBACK_TO = re.compile(r"ROLLBACK\s+(?:TRANSACTION\s+)?TO\b", re.IGNORECASE)
_ATTACH = re.compile(r"ATTACH\s+(?:DATABASE\s+)?'((?:[^']|'')+)'", _FLAGS)
_PRAGMA = re.compile(r"PRAGMA\s+(?:\w+\s*\.\s*)?(\w+)\s*([=(]?)", _FLAGS)
_DURABLE_PRAGMAS = frozenset(
    {"journal_mode", "user_version", "application_id", "schema_version", "auto_vacuum", "encoding"}
)
"""Pragmas whose value is stored in the file; all others set up the connection only."""
_ACTING_PRAGMAS = frozenset({"optimize", "incremental_vacuum"})
_UNREFUSABLE = frozenset({"PRAGMA journal_mode", "PRAGMA optimize", "PRAGMA incremental_vacuum"})
"""Statements that a transaction around them could not undo."""


def _plain_name(quoted: str) -> str:
    return _QUOTING.sub("", quoted)


def _written_by(verb: str, sql: str) -> tuple[str, str] | None:
    """(short statement, what it writes) if the statement may change the file, else None."""
    if verb in ("INSERT", "REPLACE", "UPDATE", "DELETE"):
        for words, pattern in _WRITES:
            if match := pattern.match(sql):
                table = _plain_name(match[1])
                return f"{words} {table}", table
        return verb, verb.lower()
    if verb == "WITH":
        unquoted = _LITERAL.sub("''", sql)
        for words, pattern in _WRITES:
            if match := pattern.search(unquoted):
                table = _plain_name(match[1])
                return f"WITH {words} {table}", table
        return None
    if verb in ("CREATE", "DROP", "ALTER"):
        if match := _SCHEMA.match(sql):
            table = _plain_name(match[3])
            return f"{verb} {match[2].upper()} {table}", table
        return verb, "schema"
    if verb in ("VACUUM", "REINDEX", "ANALYZE"):
        return verb, verb.lower()
    if verb == "PRAGMA" and (match := _PRAGMA.match(sql)):
        name = match[1].lower()
        if name in _ACTING_PRAGMAS or (match[2] and name in _DURABLE_PRAGMAS):
            return f"PRAGMA {name}", name
    return None


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
        sql = text[_SKIP.match(text).end() :]  # type: ignore[union-attr]  # matches the empty string
        verb = sql[:12].partition(" ")[0].partition("\n")[0].partition(";")[0].upper()
        if verb in ("SELECT", ""):
            return  # without a verb it is SQLite's own, which it traces as a comment
        self.failing.stop(connection, verb, text)
        in_transaction = connection.in_transaction
        if verb in ("COMMIT", "END"):
            if in_transaction:
                self._commits(connection, "COMMIT", text)
        elif verb == "RELEASE":
            match = _RELEASE.match(sql)
            outermost = match is not None and _plain_name(match[1]).casefold() == self.savepoint
            if in_transaction and outermost:
                self._commits(connection, "RELEASE", text)
        elif verb in ("BEGIN", "SAVEPOINT"):
            if not in_transaction:
                self.written.clear()
                match = _SAVEPOINT.match(sql)
                self.savepoint = _plain_name(match[1]).casefold() if match else None
        elif verb == "ROLLBACK":
            if not _ROLLBACK_TO.match(sql):
                self.written.clear()
        elif verb == "ATTACH":
            if match := _ATTACH.match(sql):
                self.attach(_path_of(match[1].replace("''", "'")))
        elif self.file is not None and (written := _written_by(verb, sql)):
            statement, what = written
            if in_transaction:
                self.written[what] = None
            elif not (self.executing and self.announced):
                self.announced = True
                faults = STATEMENT_FAULTS
                if _RETURNING.search(sql):
                    self.returning, faults = statement, RETURNING_FAULTS
                elif statement in _UNREFUSABLE:
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
    create = partial(sqlite3.Connection.create_function, connection, deterministic=True)
    for name, function in _TIME_FUNCTIONS:
        create(name, -1, function)
    for name, function in _TIME_KEYWORDS:
        create(name, 0, function)


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


def _path_of(name: str) -> str:
    """The file an ATTACH names, "" for memory and temporary databases."""
    if name.startswith("file:"):
        name, _, query = name[5:].partition("?")
        if "mode=memory" in query:
            return ""
        name = unquote(name.removeprefix("//"))
    return "" if name in ("", ":memory:") else os.path.realpath(name)


def _shown(path: str, roots: Iterable[str]) -> str:
    # SQLite has resolved symbolic links already.
    for root in roots:
        if path.startswith(root):
            return path[len(root) :]
    if path not in outside:
        outside.append(path)
    return os.path.basename(path)


# Virtual time inside SQL.

_built_in: sqlite3.Connection | None = None
_built_in_lock = threading.Lock()


def _ask_built_in(name: str, arguments: tuple[Any, ...]) -> Any:
    """What SQLite's own date function answers, asked on a connection without overrides."""
    global _built_in
    with _built_in_lock:
        if _built_in is None:
            _built_in = _original_connect(":memory:", check_same_thread=False, isolation_level=None)
        marks = ",".join("?" * len(arguments))
        return _built_in.execute(f"SELECT {name}({marks})", arguments).fetchone()[0]


def _now() -> str:
    # Whole milliseconds, which is what SQLite's own 'now' has.
    seconds, milliseconds = divmod(int(time.time() * 1000), 1000)
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(seconds))}.{milliseconds:03}"


def _virtual(name: str, first: int, *arguments: Any) -> Any:
    """The built-in function `name`, whose time value is argument number `first`, on the virtual clock."""
    if len(arguments) == first and (first == 0 or arguments):
        arguments = (*arguments, _now())
    elif len(arguments) > first and isinstance(value := arguments[first], str):
        word = value.lower()
        if word == "now":
            arguments = (*arguments[:first], _now(), *arguments[first + 1 :])
        elif word in ("subsec", "subsecond"):
            arguments = (*arguments[:first], _now(), *arguments[first:])
    return _ask_built_in(name, arguments)


def _virtual_difference(*arguments: Any) -> Any:
    """The built-in timediff, whose arguments are time values both, on the virtual clock."""
    values = (_now() if isinstance(value, str) and value.lower() == "now" else value for value in arguments)
    return _ask_built_in("timediff", tuple(values))


_TIME_FUNCTIONS: tuple[tuple[str, Callable[..., Any]], ...] = (
    *((name, partial(_virtual, name, 0)) for name in ("datetime", "date", "time", "julianday", "unixepoch")),
    ("strftime", partial(_virtual, "strftime", 1)),
    *((("timediff", _virtual_difference),) if sqlite3.sqlite_version_info >= (3, 43) else ()),
)
_TIME_KEYWORDS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("current_timestamp", partial(_virtual, "datetime", 0)),
    ("current_date", partial(_virtual, "date", 0)),
    ("current_time", partial(_virtual, "time", 0)),
)

# Taking over the ways to a connection.

_original_connect: Callable[..., sqlite3.Connection] = sqlite3.connect
_subclasses: dict[tuple[type, type], type] = {}


def _subclass(watched: type, users: type) -> type:
    """A subclass of the user's class with our methods first; it keeps the user's name."""
    if issubclass(users, watched):
        return users
    made = _subclasses.get((watched, users))
    if made is None:
        named = {"__module__": users.__module__, "__qualname__": users.__qualname__, "__doc__": users.__doc__}
        bases = (watched,) if users in (sqlite3.Connection, sqlite3.Cursor) else (watched, users)
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


# Connections from before the fork.


@dataclass(frozen=True, slots=True)
class Inherited:
    """A connection to a file that the parent had open at the fork. file: as SQLite names it."""

    connection: sqlite3.Connection
    file: str


def inherited_connections() -> list[Inherited]:
    """The parent's open connections to files, before the fork; databases in memory are harmless."""
    import gc

    kinds = _with_subclasses(sqlite3.Connection)
    found = []
    # What is frozen (the parent freezes all it has before it forks) is in no list.
    frozen = gc.get_freeze_count()
    gc.unfreeze()
    # type(), not isinstance(): lazy proxies must not be woken up.
    connections = [thing for thing in gc.get_objects() if type(thing) in kinds]
    if frozen:
        gc.freeze()
    for thing in connections:
        try:
            cursor = sqlite3.Cursor(thing)
            cursor.row_factory = None
            file = str(cursor.execute("PRAGMA database_list").fetchone()[2])
        except sqlite3.ProgrammingError as error:
            if "thread" not in str(error):
                continue  # closed
            file = "a database opened in another thread"
        if file:
            found.append(Inherited(thing, file))
    return found


def _with_subclasses(cls: type) -> set[type]:
    return {cls}.union(*map(_with_subclasses, cls.__subclasses__()))


def watch_inherited(inherited: Sequence[Inherited], report: Callable[[str, Site], None]) -> None:
    """In the child: call `report(file, site)` when one of the parent's connections is used.

    Such a connection shares locks and file offsets with the parent: what it does is not what a restarted
    process would do. `report` normally does not return.
    """
    by_connection = {id(one.connection): one.file for one in inherited}
    for one in inherited:

        def trace(_sql: str, file: str = one.file) -> None:
            report(file, call_site())

        # Another thread's connection refuses; its thread is gone too, and aiosqlite is caught below.
        with suppress(sqlite3.ProgrammingError):
            one.connection.set_trace_callback(trace)
    core = sys.modules.get("aiosqlite.core")
    execute = getattr(getattr(core, "Connection", None), "_execute", None)
    if core is None or execute is None or not inherited:
        return

    async def reporting_execute(self: Any, *arguments: Any, **named: Any) -> Any:
        file = by_connection.get(id(getattr(self, "_connection", None)))
        if file is not None:
            report(file, call_site())
        return await execute(self, *arguments, **named)

    core.Connection._execute = reporting_execute
