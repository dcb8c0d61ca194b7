"""What the providers did: a SQLite file of arrivals, effects, receipts, and what callers were told.

The file is part of the world: the controller restores it between incarnations, while a forked child, a server
process and the controller itself use it. So nobody keeps it open: every operation opens and closes it.
"""

from __future__ import annotations

import json
import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from math import isfinite
from os import PathLike
from pathlib import Path, PurePath
from typing import Any
from uuid import UUID

# The sqlite seam later replaces sqlite3.connect, also where a module holds it by name, not inside a tuple.
_UNPATCHED = (sqlite3.connect,)
_BUSY_TIMEOUT_S = 5.0

_SCHEMA = """
CREATE TABLE providers(
    name TEXT PRIMARY KEY, contract TEXT NOT NULL, key_field TEXT, endpoint TEXT
) WITHOUT ROWID;
CREATE TABLE arrivals(
    id INTEGER PRIMARY KEY, provider TEXT NOT NULL, operation TEXT NOT NULL, key TEXT, payload TEXT NOT NULL,
    incarnation INTEGER NOT NULL, outcome TEXT NOT NULL, status INTEGER NOT NULL
);
CREATE TABLE effects(
    id INTEGER PRIMARY KEY, provider TEXT NOT NULL, operation TEXT NOT NULL, logical_key TEXT,
    payload TEXT NOT NULL, arrival INTEGER NOT NULL
);
CREATE TABLE receipts(
    provider TEXT NOT NULL, key TEXT NOT NULL, fingerprint TEXT NOT NULL, status INTEGER NOT NULL,
    body TEXT NOT NULL, effect INTEGER, PRIMARY KEY(provider, key)
) WITHOUT ROWID;
CREATE TABLE in_flight(arrival INTEGER PRIMARY KEY);
CREATE TABLE told(
    id INTEGER PRIMARY KEY, arrival INTEGER, provider TEXT NOT NULL, operation TEXT NOT NULL,
    incarnation INTEGER NOT NULL, what TEXT NOT NULL
);
CREATE TABLE intents(key TEXT PRIMARY KEY, count INTEGER NOT NULL, provider TEXT) WITHOUT ROWID;
CREATE TABLE counters(name TEXT PRIMARY KEY, path TEXT NOT NULL, sql TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE memory(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE meta(name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES ('incarnation', 1);
"""

_INCARNATION = "(SELECT value FROM meta WHERE name = 'incarnation')"
_ARRIVAL = "id, provider, operation, key, payload, incarnation, outcome, status"
_EFFECT = "id, provider, operation, logical_key, payload, arrival"
_RECEIPT = "provider, key, fingerprint, status, body, effect"

# In order of execution within a provider, not of values: random ones are later renamed by first occurrence.
_STATE = (
    ("effects", "SELECT provider, operation, logical_key, payload FROM effects ORDER BY provider, id"),
    (
        "receipts",
        "SELECT provider, key, fingerprint, status, body FROM receipts ORDER BY provider, effect, key",
    ),
    (
        "in_flight",
        "SELECT provider, operation, key, payload FROM in_flight JOIN arrivals ON arrivals.id = arrival"
        " ORDER BY arrival",
    ),
    ("memory", "SELECT name, value FROM memory ORDER BY name"),
)


@dataclass(frozen=True, slots=True)
class Declared:
    """A provider of the test. contract: JSON; key_field: where a payload carries the logical key, or None."""

    name: str
    contract: str
    key_field: str | None
    endpoint: str | None


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request that reached a provider.

    key: the client's idempotency key, if any; payload: canonical JSON; incarnation: 1-based life of the
    process; outcome: executed, replayed, refused or in_flight; status: HTTP status of the answer.
    """

    id: int
    provider: str
    operation: str
    key: str | None
    payload: str
    incarnation: int
    outcome: str
    status: int


@dataclass(frozen=True, slots=True)
class Effect:
    """Something a provider did. logical_key: None if the payload names none; payload: canonical JSON."""

    id: int
    provider: str
    operation: str
    logical_key: str | None
    payload: str
    arrival: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """A provider's memory of a request it answered. body: JSON; effect: id, or None when there was none."""

    provider: str
    key: str
    fingerprint: str
    status: int
    body: str
    effect: int | None


@dataclass(frozen=True, slots=True)
class Told:
    """What a caller saw: a status ("200") or an exception's name. arrival: None if nothing arrived."""

    id: int
    arrival: int | None
    provider: str
    operation: str
    incarnation: int
    what: str


@dataclass(frozen=True, slots=True)
class Intent:
    """How many effects a logical key should end with; provider: None means any."""

    key: str
    count: int
    provider: str | None


@dataclass(frozen=True, slots=True)
class Counter:
    """Effects counted in the user's own SQLite file: path, and the query that counts."""

    name: str
    path: str
    sql: str


class LedgerReader(ABC):
    """The questions one may ask a ledger, whether it is a file or a picture of one."""

    @abstractmethod
    def _open(self) -> AbstractContextManager[sqlite3.Connection]: ...

    def _rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with self._open() as connection:
            return connection.execute(sql, values).fetchall()

    def providers(self) -> list[Declared]:
        """The declared providers by name."""
        rows = self._rows("SELECT name, contract, key_field, endpoint FROM providers ORDER BY name")
        return [Declared(*row) for row in rows]

    def provider(self, name: str) -> Declared | None:
        """The provider of that name, or None if none is declared."""
        with self._open() as connection:
            return find_provider(connection, name)

    def arrivals(self) -> list[Arrival]:
        """All requests that reached a provider, in order."""
        return [Arrival(*row) for row in self._rows(f"SELECT {_ARRIVAL} FROM arrivals ORDER BY id")]

    def effects(self) -> list[Effect]:
        """All effects, in order."""
        return [Effect(*row) for row in self._rows(f"SELECT {_EFFECT} FROM effects ORDER BY id")]

    def receipts(self) -> list[Receipt]:
        """All receipts by provider and key."""
        rows = self._rows(f"SELECT {_RECEIPT} FROM receipts ORDER BY provider, key")
        return [Receipt(*row) for row in rows]

    def in_flight(self) -> list[Arrival]:
        """Arrivals begun and not answered yet, in order."""
        sql = f"SELECT {_ARRIVAL} FROM arrivals WHERE id IN (SELECT arrival FROM in_flight) ORDER BY id"
        return [Arrival(*row) for row in self._rows(sql)]

    def told(self) -> list[Told]:
        """What callers were told, in order."""
        sql = "SELECT id, arrival, provider, operation, incarnation, what FROM told ORDER BY id"
        return [Told(*row) for row in self._rows(sql)]

    def intents(self) -> list[Intent]:
        """Declared intents by key."""
        return [Intent(*row) for row in self._rows("SELECT key, count, provider FROM intents ORDER BY key")]

    def counters(self) -> list[Counter]:
        """Declared counters by name."""
        return [Counter(*row) for row in self._rows("SELECT name, path, sql FROM counters ORDER BY name")]

    def recall(self, name: str, default: Any = None) -> Any:
        """The remembered value of that name, or `default`."""
        rows = self._rows("SELECT value FROM memory WHERE name = ?", name)
        return json.loads(rows[0][0]) if rows else default

    def incarnation(self) -> int:
        """The number of the current life, 1 for the first."""
        return int(self._rows(f"SELECT {_INCARNATION}")[0][0])

    def state_rows(self) -> list[tuple[str, tuple[Any, ...]]]:
        """The rows that are state, not evidence about its history, as (table, values) in a stable order."""
        with self._open() as connection:
            return [(table, row) for table, sql in _STATE for row in connection.execute(sql)]


class Ledger(LedgerReader):
    """A ledger file. Any number of processes and threads may use it at once; none keeps it open.

    Every operation raises FileNotFoundError if there is no file, sqlite3.OperationalError if it stays locked
    for 5 s.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self._uri = self.path.as_uri() + "?mode=rw"

    @classmethod
    def create(cls, path: str | PathLike[str]) -> Ledger:
        """Make an empty ledger. Raises FileExistsError if the path exists."""
        ledger = cls(path)
        ledger.path.touch(exist_ok=False)
        with ledger._open() as connection:
            # Small pages: the file is copied at every boundary.
            connection.executescript(f"PRAGMA page_size = 1024; BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
        return ledger

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            connection = _UNPATCHED[0](self._uri, uri=True, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
        except sqlite3.OperationalError as error:
            if self.path.exists():
                raise
            raise FileNotFoundError(f"no ledger at {self.path}; Ledger.create() makes one") from error
        with closing(connection):
            connection.execute("PRAGMA synchronous = OFF")
            yield connection

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One atomic change: committed at the end of the block, undone if it raises."""
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.rollback()
                raise
            connection.execute("COMMIT")

    def record_provider(self, name: str, contract: str, key_field: str | None, endpoint: str | None) -> None:
        """Declare a provider; every incarnation does it again.

        Raises ValueError if the name is declared with another contract or key field.
        """
        with self.transaction() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO providers VALUES (?, ?, ?, ?)", (name, contract, key_field, endpoint)
            )
            known = find_provider(connection, name)
        assert known is not None
        if (known.contract, known.key_field) != (contract, key_field):
            raise ValueError(
                f"provider {name!r} is already declared with contract {known.contract} and key field"
                f" {known.key_field!r}; use another name for one with contract {contract} and key field"
                f" {key_field!r}"
            )

    def declare_intent(self, key: str, count: int = 1, provider: str | None = None) -> None:
        """Say how many effects a logical key should end with; saying it again is fine.

        Raises ValueError for a negative count, or when the key is declared differently.
        """
        if count < 0:
            raise ValueError(f"the intended count of {key!r} must be 0 or more, not {count}")
        self._declare("intents", ("key", "count", "provider"), (key, count, provider))

    def declare_counter(self, name: str, path: str, sql: str) -> None:
        """Say where else effects are counted. Raises ValueError when the name is declared differently."""
        self._declare("counters", ("name", "path", "sql"), (name, path, sql))

    def _declare(self, table: str, columns: tuple[str, ...], row: tuple[object, ...]) -> None:
        with self.transaction() as connection:
            connection.execute(f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(row))})", row)
            known = connection.execute(
                f"SELECT {', '.join(columns)} FROM {table} WHERE {columns[0]} = ?", row[:1]
            ).fetchone()
        if known != row:
            before, now = (
                ", ".join(f"{column}={value!r}" for column, value in list(zip(columns, values, strict=True))[1:])
                for values in (known, row)
            )
            raise ValueError(f"{row[0]!r} is already declared in {table} with {before}, now with {now}")

    def remember(self, name: str, value: Any) -> None:
        """Keep a JSON value beyond the process's life; it is part of the world's state."""
        text = json.dumps(value, sort_keys=True, separators=(",", ":"))
        with self.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO memory VALUES (?, ?)", (name, text))

    def record_told(self, arrival: int | None, provider: str, operation: str, what: str) -> None:
        """Note what the caller saw: a status or an exception's name."""
        with self.transaction() as connection:
            connection.execute(
                "INSERT INTO told(arrival, provider, operation, incarnation, what)"
                f" VALUES (?, ?, ?, {_INCARNATION}, ?)",
                (arrival, provider, operation, what),
            )

    def hold(self, provider: str, operation: str, request: Mapping[str, Any]) -> None:
        """Keep a request on its way to a provider."""
        raise NotImplementedError("this ledger holds no requests yet; leave the faults late and late-copy out")

    def begin_incarnation(self, number: int) -> None:
        """Note that life `number` (1-based) begins; what is recorded from now on belongs to it."""
        with self.transaction() as connection:
            connection.execute("UPDATE meta SET value = ? WHERE name = 'incarnation'", (number,))

    def record_call(self, provider: str, operation: str, logical_key: str | None, payload: str) -> Effect:
        """Record the effect of a plain callable, which has no contract: each call is an effect.

        payload: canonical JSON.
        """
        with self.transaction() as connection:
            arrival = insert_arrival(
                connection, provider, operation, key=None, payload=payload, outcome="executed", status=200
            )
            return insert_effect(connection, provider, operation, logical_key, payload, arrival)


class LedgerSnapshot(LedgerReader):
    """A picture of a ledger: the bytes of its file, read in memory and never written."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(_UNPATCHED[0](":memory:", isolation_level=None)) as connection:
            connection.deserialize(self._data)
            yield connection


def find_provider(connection: sqlite3.Connection, name: str) -> Declared | None:
    """The declared provider of that name, or None."""
    row = connection.execute(
        "SELECT name, contract, key_field, endpoint FROM providers WHERE name = ?", (name,)
    ).fetchone()
    return None if row is None else Declared(*row)


def insert_arrival(
    connection: sqlite3.Connection,
    provider: str,
    operation: str,
    *,
    key: str | None,
    payload: str,
    outcome: str,
    status: int,
) -> int:
    """Add an arrival of the current incarnation inside a transaction; returns its id."""
    cursor = connection.execute(
        "INSERT INTO arrivals(provider, operation, key, payload, incarnation, outcome, status)"
        f" VALUES (?, ?, ?, ?, {_INCARNATION}, ?, ?)",
        (provider, operation, key, payload, outcome, status),
    )
    return _new_id(cursor)


def insert_effect(
    connection: sqlite3.Connection,
    provider: str,
    operation: str,
    logical_key: str | None,
    payload: str,
    arrival: int,
) -> Effect:
    """Add an effect inside a transaction."""
    cursor = connection.execute(
        "INSERT INTO effects(provider, operation, logical_key, payload, arrival) VALUES (?, ?, ?, ?, ?)",
        (provider, operation, logical_key, payload, arrival),
    )
    return Effect(_new_id(cursor), provider, operation, logical_key, payload, arrival)


def effect_count(connection: sqlite3.Connection, provider: str) -> int:
    """How many effects the provider has had."""
    row = connection.execute("SELECT count(*) FROM effects WHERE provider = ?", (provider,)).fetchone()
    return int(row[0])


def find_receipt(connection: sqlite3.Connection, provider: str, key: str) -> Receipt | None:
    """The provider's receipt for an idempotency key, or None."""
    row = connection.execute(
        f"SELECT {_RECEIPT} FROM receipts WHERE provider = ? AND key = ?", (provider, key)
    ).fetchone()
    return None if row is None else Receipt(*row)


def store_receipt(connection: sqlite3.Connection, receipt: Receipt) -> None:
    """Keep a receipt inside a transaction, in place of an older one for the same key."""
    connection.execute(
        f"INSERT OR REPLACE INTO receipts({_RECEIPT}) VALUES (?, ?, ?, ?, ?, ?)",
        (
            receipt.provider,
            receipt.key,
            receipt.fingerprint,
            receipt.status,
            receipt.body,
            receipt.effect,
        ),
    )


def _new_id(cursor: sqlite3.Cursor) -> int:
    assert cursor.lastrowid is not None
    return cursor.lastrowid


_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")


def canonical_payload(value: object) -> str:
    """The value as JSON text that is equal for equal values: sorted keys, no spaces, no memory addresses.

    Bytes become {"bytes": hex}, paths, decimals, dates and UUIDs their text, any other object its repr.
    """
    text = json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    # A lone surrogate cannot be stored; as backslash escape it is the same JSON string.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _plain(value: object) -> object:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if isfinite(value) else {"float": repr(value)}
        case bytes() | bytearray() | memoryview():
            return {"bytes": value.hex()}
        case Mapping():
            return {key if isinstance(key, str) else _key(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case set() | frozenset():
            return sorted((_plain(item) for item in value), key=canonical_payload)
        case datetime() | date() | time():
            return value.isoformat()
        case PurePath() | Decimal() | UUID():
            return str(value)
    return _ADDRESS.sub("", repr(value))


def _key(value: object) -> str:
    plain = _plain(value)
    return plain if isinstance(plain, str) else canonical_payload(plain)
