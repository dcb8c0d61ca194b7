"""A PostgreSQL database as a store: a copy of the named one, made for one exploration and dropped after it.

The parent reads it while the process under test is stopped, and puts it back when that process is gone: rows are
deleted and copied in again, table by table where they differ. A picture with another schema (the code created a table)
is put back in another copy, which then takes the name.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

from pytest_once.canonical import Row
from pytest_once.clock import WINDOW_S
from pytest_once.scanning import Cell
from pytest_once.stores import Exchanged, Ignored, Other, StoreError
from pytest_once.stores.instants import ServerClock
from pytest_once.stores.schemas import VERSION, Schema, Table, quoted, read, shown

if TYPE_CHECKING:
    import psycopg

    _Connection = psycopg.Connection[tuple[Any, ...]]

MOST_ROWS = 100_000
"""More rows than this would make every step of a search slow; a test needs few."""

GONE_S = 10.0
"""Seconds within which the server must have ended a dead process's sessions."""

LOCKED_S = 5.0
"""Seconds a picture waits for a table that the stopped process has locked against reading."""

_LONGEST_S = 86400.0
_BEFORE = datetime.fromtimestamp(WINDOW_S[0] + 3600, UTC).isoformat()
_NAME = re.compile(r"(once_\d+_[0-9a-f]{8})(?:_\d+)?")
_INSTANTS = frozenset({"timestamptz", "timestamp"})
_WHOLE = frozenset({"int2", "int4", "int8", "oid"})
_FLOATING = frozenset({"float4", "float8"})
_SETTINGS = (
    "-c TimeZone=UTC -c DateStyle=ISO -c IntervalStyle=iso_8601 -c bytea_output=hex -c extra_float_digits=1 "
    f"-c synchronous_commit=off -c statement_timeout=0 -c lock_timeout={int(LOCKED_S * 1000)}"
)

_STEP = 1_000_003
_SMALL_STEP = 10_007
"""What is added to small integers; primes, so that no two values become the same."""

_Cells = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class PostgreSQLSnapshot:
    """schema: key of the schema. tables: the rows of each table, sorted; sequences: (last value, given out).

    ahead_s: by how much virtual time was ahead of the server's, which is no part of what the content is.
    """

    schema: str
    tables: tuple[tuple[_Cells, ...], ...]
    sequences: tuple[tuple[int, bool], ...]
    key: bytes
    ahead_s: float | None = None


class PostgreSQLStore:
    """A copy of the database that a URL names.

    address: the URL of the copy, which the code under test must use. Its database is an ordinary one; sessions in it
    are ended when the store is put back.
    """

    def __init__(self, target: str) -> None:
        """target: postgresql://user@host:port/database; a driver as SQLAlchemy names it (postgresql+asyncpg) stays.

        Raises StoreError if the server cannot be reached or the database not be copied.
        """
        self._url = urlsplit(target)
        self._template = unquote(self._url.path.lstrip("/"))
        if not self._template:
            raise StoreError(f"{_safe(target)} names no database; write postgresql://host/database")
        self.name = f"postgresql/{self._template}"
        self._admin = self._connect("postgres")
        self._schemas: dict[str, Schema] = {}
        self._versions: dict[str, str] = {}
        self._kept: dict[str, str] = {}
        self._copies = 0
        self._connection: _Connection | None = None
        self._last: PostgreSQLSnapshot | None = None
        self._ahead_s: float | None = None
        try:
            _sweep(self._admin)
            self._database = f"once_{os.getpid()}_{secrets.token_hex(4)}"
            # Held until this process ends, however it ends: so a later run knows what has been left behind.
            self._admin.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", (self._database,))
            self._create(self._template)
            ((since,),) = self._admin.execute("SELECT floor(extract(epoch FROM clock_timestamp()))::float8").fetchall()
        except BaseException:
            self.close()
            raise
        self._clock = ServerClock(since, since + _LONGEST_S)
        self.address = urlunsplit(self._url._replace(path=f"/{self._database}"))

    def close(self) -> None:
        """Drop what was made."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if not self._admin.closed:
            with _suppressing_errors():
                _drop(self._admin, getattr(self, "_database", ""))
            self._admin.close()

    # -- pictures ------------------------------------------------------------------------------------

    def snapshot(self) -> PostgreSQLSnapshot:
        """What another process would find committed. Raises StoreError."""
        import psycopg

        try:
            return self._read(self._session())
        except psycopg.errors.LockNotAvailable as error:
            raise StoreError(
                f"a table of {self.name} is locked against reading by an open transaction (ALTER TABLE, TRUNCATE) "
                f"while the process stands at a boundary, so nobody can see what is committed ({error}). "
                "Make the schema before the test (in the database that is named), or change it outside of transactions"
            ) from error
        except psycopg.OperationalError as error:
            raise StoreError(f"{self.name} cannot be read ({error}); is the server still running?") from error

    def _read(self, session: _Connection) -> PostgreSQLSnapshot:
        # The schema is mostly the one that was read last, and then one question to the server does for everything.
        if self._last is not None:
            found = self._read_as(session, self._schemas[self._last.schema])
            if found is not None:
                return found
        found = self._read_as(session, self._schema(session))
        if found is not None:
            return found
        raise StoreError(
            f"the schema of {self.name} keeps changing while the process under test is stopped: another client is at "
            "work in it; stop it"
        )

    def _read_as(self, session: _Connection, schema: Schema) -> PostgreSQLSnapshot | None:
        """The content, if the schema is this one."""
        import psycopg

        queries = [VERSION]
        if schema.tables:
            queries.append(f"{schema.rows_query} LIMIT {MOST_ROWS + 1}")
        if schema.sequences:
            queries.append(schema.sequences_query)
        begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        try:
            cursor = session.execute("; ".join((begin, *queries, "COMMIT")).encode(), prepare=False)
        except psycopg.Error as error:
            session.rollback()
            if isinstance(error, psycopg.ProgrammingError) and not isinstance(
                error, psycopg.errors.InsufficientPrivilege
            ):
                return None
            raise
        answers = [cursor.fetchall() for _ in queries if cursor.nextset()]
        if self._versions.get(str(answers.pop(0)[0][0])) != schema.key:
            return None
        rows = answers.pop(0) if schema.tables else []
        if len(rows) > MOST_ROWS:
            raise StoreError(
                f"{self.name} has more than {MOST_ROWS} rows, and a picture of it is taken at every boundary; name a "
                "database that holds what the test needs"
            )
        tables: list[list[_Cells]] = [[] for _ in schema.tables]
        for number, cells in rows:
            tables[number].append(tuple(cells))
        sequences = tuple((int(value), bool(given)) for _, value, given in sorted(answers[0])) if answers else ()
        # PostgreSQL returns rows in no order that means anything.
        content = tuple(tuple(sorted(found, key=_sorting)) for found in tables)
        last = self._last
        if last is not None and (last.schema, last.tables, last.sequences) == (schema.key, content, sequences):
            if last.ahead_s != self._ahead_s:
                self._last = replace(last, ahead_s=self._ahead_s)
            return self._last or last
        key = hashlib.blake2b(repr((schema.key, content, sequences)).encode(), digest_size=16).digest()
        self._last = PostgreSQLSnapshot(schema.key, content, sequences, key, self._ahead_s)
        return self._last

    def _schema(self, session: _Connection) -> Schema:
        ((version,),) = session.execute(VERSION.encode()).fetchall()
        key = self._versions.get(str(version))
        if key is None:
            schema = read(session)
            key = self._versions[str(version)] = schema.key
            self._schemas.setdefault(key, schema)
        return self._schemas[key]

    def rows(self, snapshot: PostgreSQLSnapshot) -> list[Row]:
        """The tables' rows; the schema as one row; of a sequence, whether its next value is a new one."""
        schema = self._schemas[snapshot.schema]
        places = {self._place(table): _columns_of(table, _INSTANTS) for table in schema.tables}
        found = list(self._rows(snapshot))
        ordered = self._clock.ordered(found, places)
        if ordered != found:
            # An instant that has passed: without one nobody would ask what the code makes of a later restart.
            ordered.append(Row(f"{self._template}/now()", ("began",), (_BEFORE,)))
        return ordered

    def _place(self, table: Table) -> str:
        return f"{self._template}/{shown(table.schema, table.name)}"

    def _rows(self, snapshot: PostgreSQLSnapshot) -> Iterator[Row]:
        schema = self._schemas[snapshot.schema]
        tables = ", ".join(shown(table.schema, table.name) for table in schema.tables)
        yield Row(f"{self._template}/schema", ("tables", "definitions"), (tables, schema.key))
        for table, rows in zip(schema.tables, snapshot.tables, strict=True):
            place = self._place(table)
            for cells in rows:
                yield Row(place, table.columns, tuple(map(_cell, cells, table.types)), False)
        highest = dict(self._highest(schema, snapshot))
        for sequence, (value, given) in zip(schema.sequences, snapshot.sequences, strict=True):
            # Where it stands exactly is no state: every transaction that fails moves it on, for ever.
            following = value + sequence.increment if given else value
            top = highest.get(sequence.owner) if sequence.owner is not None else None
            if top is not None and (following <= top if sequence.increment > 0 else following >= top):
                yield Row(f"{self._template}/{shown(sequence.schema, sequence.name)}", ("next",), ("taken already",))

    @staticmethod
    def _highest(schema: Schema, snapshot: PostgreSQLSnapshot) -> Iterator[tuple[tuple[str, str, str], int]]:
        """The value furthest on in each column that a sequence makes."""
        owned = {sequence.owner: sequence.increment for sequence in schema.sequences if sequence.owner}
        for table, rows in zip(schema.tables, snapshot.tables, strict=True):
            for number, column in enumerate(table.columns):
                owner = (table.schema, table.name, column)
                values = [int(cell) for cells in rows if (cell := cells[number]) is not None] if owner in owned else []
                if values:
                    yield owner, max(values) if owned[owner] > 0 else min(values)

    def exchanged(self, snapshot: PostgreSQLSnapshot, ignored: Ignored, other: Other) -> Exchanged:
        """The picture with other values in the ignored columns, as far as the database's constraints admit them.

        Raises StoreError.
        """
        import psycopg

        schema = self._schemas[snapshot.schema]
        wanted = [
            (number, column)
            for number, (table, rows) in enumerate(zip(schema.tables, snapshot.tables, strict=True))
            for column, name in enumerate(table.columns)
            if ignored(self._place(table), name) and any(cells[column] is not None for cells in rows)
        ]
        if not wanted:
            return Exchanged(snapshot, ())
        self.restore(snapshot)
        changed: list[str] = []
        left: list[str] = []
        for number, column in wanted:
            current = self._read(self._session())
            table = schema.tables[number]
            label = f"{self._place(table)}.{table.columns[column]}"
            tables = list(current.tables)
            tables[number] = tuple(
                (*cells[:column], _other(cells[column], table.types[column], other), *cells[column + 1 :])
                for cells in current.tables[number]
            )
            try:
                self._write(current, replace(current, tables=tuple(tables)))
            except (psycopg.IntegrityError, psycopg.DataError) as error:
                left.append(f"{label} ({str(error).splitlines()[0]})")
            else:
                changed.append(label)
        return Exchanged(self._read(self._session()), tuple(changed), tuple(left))

    # -- putting back --------------------------------------------------------------------------------

    def restore(self, snapshot: PostgreSQLSnapshot) -> None:
        """Make the database what the picture shows, once all other sessions in it have ended. Raises StoreError."""
        import psycopg

        try:
            self._end_sessions(self._database)
            self._ahead_s = snapshot.ahead_s
            current = self._read(self._session())
            if current.key == snapshot.key:
                return
            if current.schema != snapshot.schema:
                self._change_schema(current.schema, snapshot.schema)
                current = self._read(self._session())
            self._write(current, snapshot)
            found = self._read(self._session())
        except psycopg.Error as error:
            raise StoreError(f"{self.name} cannot be put back: {str(error).strip()}") from error
        if found.key != snapshot.key:
            raise StoreError(
                f"{self.name} was put back and is not what it was: a rule, an ALWAYS trigger or another client changes "
                "rows as they are written; leave such things out of the test's database"
            )

    def began(self, now_s: float) -> None:
        """A life begins at a virtual time: what the server's clock has made grows as old as virtual time says.

        So a lease that the server dates runs out when restarts come late, and not because a search takes long.
        """
        session = self._session()
        ((server_s,),) = session.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchall()
        before, self._ahead_s = self._ahead_s, now_s - float(server_s)
        if before is None:
            return
        later = timedelta(seconds=before - self._ahead_s)
        current = self._read(session)
        tables = self._schemas[current.schema].tables
        moved = tuple(
            tuple(sorted((self._moved(cells, table, later) for cells in rows), key=_sorting))
            for table, rows in zip(tables, current.tables, strict=True)
        )
        if moved != current.tables:
            self._write(current, replace(current, tables=moved))

    def _moved(self, cells: _Cells, table: Table, later: timedelta) -> _Cells:
        return tuple(
            self._moved_cell(cell, kind, later) if cell is not None and kind in _INSTANTS else cell
            for cell, kind in zip(cells, table.types, strict=True)
        )

    def _moved_cell(self, cell: str, kind: str, later: timedelta) -> str:
        made = self._clock.made(cell)
        if made is None:
            return cell
        return f"{made + later:%Y-%m-%d %H:%M:%S.%f}{'+00' if kind == 'timestamptz' else ''}"

    def _write(self, current: PostgreSQLSnapshot, wanted: PostgreSQLSnapshot) -> None:
        import psycopg

        schema = self._schemas[wanted.schema]
        session = self._session()
        with session.transaction(), session.cursor() as cursor:
            try:
                # Neither triggers nor foreign keys may object to, or add to, what was there before.
                cursor.execute("SET LOCAL session_replication_role = replica")
            except psycopg.errors.InsufficientPrivilege as error:
                raise StoreError(
                    f"{self.name}: putting rows back needs the right to set session_replication_role. Use a superuser "
                    "of a test server, or: GRANT SET ON PARAMETER session_replication_role TO your_role"
                ) from error
            for table, was, rows in zip(schema.tables, current.tables, wanted.tables, strict=True):
                if was != rows:
                    name = quoted(table.schema, table.name)
                    if was:
                        cursor.execute(f"DELETE FROM ONLY {name}".encode())
                    if rows:
                        columns = ", ".join(map(quoted, table.columns))
                        with cursor.copy(f"COPY {name} ({columns}) FROM STDIN".encode()) as copy:
                            copy.write("".join(map(_copied, rows)))
            for sequence, before, after in zip(schema.sequences, current.sequences, wanted.sequences, strict=True):
                if before != after:
                    name = quoted(sequence.schema, sequence.name)
                    cursor.execute("SELECT setval(%s::regclass, %s, %s)", (name, *after))

    def _change_schema(self, current: str, wanted: str) -> None:
        """Put the database aside under another name, and one with the wanted schema in its place."""
        import psycopg

        assert self._connection is not None
        self._connection.close()
        self._connection = None
        self._end_sessions(self._database)
        self._copies += 1
        aside = f"{self._database}_{self._copies}"
        self._rename(self._database, aside)
        if stale := self._kept.get(current):
            _drop_one(self._admin, stale)
        self._kept[current] = aside
        ready = self._kept.pop(wanted, None)
        if ready is not None:
            self._rename(ready, self._database)
            return
        definitions = self._schemas[wanted].drops.keys()
        # What lives made is at hand as they left it: drop what is too much. The named database comes first.
        richer = [key for key in self._kept if definitions <= self._schemas[key].drops.keys()]
        richer.sort(key=lambda key: len(self._schemas[key].drops))
        for source in (self._template, *(self._kept[key] for key in richer)):
            self._create(source)
            session = self._session()
            found = self._schema(session)
            excess = [drop for definition, drop in found.drops.items() if definition not in definitions]
            for drop in sorted(excess, key=_tables_first):
                # What cannot be dropped by itself may go with another; whether all is well is asked below.
                with suppress(psycopg.Error):
                    session.execute(drop.encode())
            if self._schema(session).key == wanted:
                return
            session.close()
            self._connection = None
            _drop_one(self._admin, self._database)
        self._rename(self._kept.pop(current), self._database)
        raise StoreError(
            f"{self.name} once had a schema that cannot be made again, because the code dropped or altered parts of it "
            "on its way. Make the schema before the test (in the database that is named), or in one transaction"
        )

    # -- sessions and databases ----------------------------------------------------------------------

    def _session(self) -> _Connection:
        if self._connection is None or self._connection.closed:
            self._connection = self._connect(self._database)
        return self._connection

    def _connect(self, database: str) -> _Connection:
        psycopg = _driver()
        url = self._url._replace(scheme="postgresql", path=f"/{database}")
        try:
            connection: _Connection = psycopg.connect(
                urlunsplit(url),
                autocommit=True,
                options=_SETTINGS,
                application_name="pytest-once",
                connect_timeout=int(GONE_S),
            )
        except psycopg.OperationalError as error:
            raise StoreError(
                f"PostgreSQL at {_safe(urlunsplit(self._url))} cannot be used: {str(error).strip()}. Start the server, "
                "or correct the URL"
            ) from error
        return connection

    def _create(self, source: str) -> None:
        import psycopg

        try:
            self._admin.execute(f"CREATE DATABASE {quoted(self._database)} TEMPLATE {quoted(source)}".encode())
        except psycopg.errors.ObjectInUse as error:
            raise StoreError(
                f"{self.name} cannot be copied while somebody is connected to it ({str(error).strip()}). Close what is "
                "open (an engine of a session fixture, a shell), or name a database that only serves as a template"
            ) from error
        except psycopg.Error as error:
            raise StoreError(f"{self.name} cannot be copied: {str(error).strip()}") from error
        # A crash here is the death of a process, not of the machine.
        self._admin.execute(f"ALTER DATABASE {quoted(self._database)} SET synchronous_commit = off".encode())

    def _rename(self, old: str, new: str) -> None:
        self._end_sessions(old)
        self._admin.execute(f"ALTER DATABASE {quoted(old)} RENAME TO {quoted(new)}".encode())

    def _end_sessions(self, database: str) -> None:
        """End every session in a database but ours, and wait until they are gone."""
        own = 0 if self._connection is None or self._connection.closed else self._connection.info.backend_pid
        _end_sessions(self._admin, database, own)


def _driver() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise StoreError(
            "tracking a PostgreSQL database needs psycopg, also if the code under test uses another driver: "
            "pip install 'pytest-once-chaos[postgresql]'"
        ) from error
    return psycopg


def _end_sessions(admin: _Connection, database: str, own: int = 0) -> None:
    query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> %s"
    deadline = time.monotonic() + GONE_S
    while admin.execute(query, (database, own)).fetchall():
        if time.monotonic() > deadline:
            raise StoreError(
                f"sessions in the database {database} do not end within {GONE_S:g}s although they were told to; see "
                "pg_stat_activity for what they do"
            )
        time.sleep(0.0005)


def _drop_one(admin: _Connection, database: str) -> None:
    _end_sessions(admin, database)
    admin.execute(f"DROP DATABASE IF EXISTS {quoted(database)}".encode())


def _drop(admin: _Connection, base: str) -> None:
    """Drop a database made here, with all its copies."""
    for (name,) in admin.execute("SELECT datname FROM pg_database WHERE datname LIKE 'once\\_%'").fetchall():
        match = _NAME.fullmatch(str(name))
        if match is not None and match[1] == base:
            _drop_one(admin, str(name))


def _sweep(admin: _Connection) -> None:
    """Drop what processes that have ended since left behind: nobody holds their lock any more."""
    names = [str(name) for (name,) in admin.execute("SELECT datname FROM pg_database").fetchall()]
    for base in sorted({match[1] for name in names if (match := _NAME.fullmatch(name))}):
        ((free,),) = admin.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", (base,)).fetchall()
        if free:
            try:
                _drop(admin, base)
            finally:
                admin.execute("SELECT pg_advisory_unlock(hashtextextended(%s, 0))", (base,))


def _suppressing_errors() -> suppress:
    """A server that is gone has nothing to be dropped; the next run sweeps what one that hangs has kept."""
    import psycopg

    return suppress(psycopg.Error, StoreError)


def _tables_first(drop: str) -> int:
    """Tables first, then columns: their indexes and sequences go with them."""
    return 0 if drop.startswith("DROP TABLE") else 1 if " DROP COLUMN " in drop else 2


def _safe(url: str) -> str:
    """A URL without its password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=re.sub(r":[^:@/]*@", ":***@", parts.netloc)))


def _columns_of(table: Table, kinds: frozenset[str]) -> frozenset[str]:
    return frozenset(column for column, kind in zip(table.columns, table.types, strict=True) if kind in kinds)


def _sorting(cells: _Cells) -> list[tuple[bool, str]]:
    return [(cell is not None, cell or "") for cell in cells]


def _copied(cells: _Cells) -> str:
    """A row in COPY's text format."""
    return "\t".join("\\N" if cell is None else cell.translate(_ESCAPES) for cell in cells) + "\n"


_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def _cell(text: str | None, kind: str) -> Cell:
    if text is None:
        return None
    if kind in _WHOLE:
        return int(text)
    if kind in _FLOATING:
        return float(text)
    return bytes.fromhex(text[2:]) if kind == "bytea" else text


def _other(text: str | None, kind: str, other: Other) -> str | None:
    """Another value of the type, in text."""
    if text is None:
        return None
    if kind == "bool":
        return "false" if text == "true" else "true"
    if kind == "int2":
        return str(int(text) + (_SMALL_STEP if int(text) < 0 else -_SMALL_STEP))
    if kind == "int4":
        return str(int(text) + (_STEP if int(text) < 0x7FFFFFFF - _STEP else -_STEP))
    if kind == "numeric":
        return str(Decimal(text) + _STEP)
    value = other(_cell(text, kind))
    return f"\\x{value.hex()}" if isinstance(value, bytes) else str(value)
