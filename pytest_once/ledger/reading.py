"""The questions one may ask a ledger, whether it is a file or a picture of one."""

from __future__ import annotations

import json
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any

from pytest_once.ledger.records import Arrival, Counter, Declared, Effect, Event, Held, Intent, Receipt, Told
from pytest_once.ledger.schema import ARRIVAL, EFFECT, EVENT, HELD, INCARNATION, RECEIPT, STATE
from pytest_once.ledger.within import find_provider, held_from, now_within

# The sqlite seam later replaces sqlite3.connect, also where a module holds it by name, not inside a tuple.
UNPATCHED = (sqlite3.connect,)


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
        return [Arrival(*row) for row in self._rows(f"SELECT {ARRIVAL} FROM arrivals ORDER BY id")]

    def effects(self) -> list[Effect]:
        """All effects that are done, in order."""
        return [effect for effect in self.begun() if effect.state == "done"]

    def begun(self) -> list[Effect]:
        """All effects, in order, pending and failed ones too."""
        return [Effect(*row) for row in self._rows(f"SELECT {EFFECT} FROM effects ORDER BY id")]

    def events(self) -> list[Event]:
        """The webhooks of all providers, in the order of what they tell."""
        rows = self._rows(f"SELECT {EVENT} FROM events ORDER BY id")
        return [Event(row[0], row[1], row[2], row[3], row[4], bool(row[5])) for row in rows]

    def receipts(self) -> list[Receipt]:
        """All receipts by provider and key."""
        rows = self._rows(f"SELECT {RECEIPT} FROM receipts ORDER BY provider, key")
        return [Receipt(*row) for row in rows]

    def in_flight(self) -> list[Held]:
        """Requests on their way, the oldest first."""
        return [held_from(row) for row in self._rows(f"SELECT {HELD} FROM in_flight ORDER BY id")]

    def told(self) -> list[Told]:
        """What callers were told, in order."""
        sql = "SELECT id, arrival, provider, operation, incarnation, what FROM told ORDER BY id"
        return [Told(*row) for row in self._rows(sql)]

    def asked(self) -> frozenset[str]:
        """The providers that were asked what they did: a question leaves no arrival."""
        sql = (
            "SELECT DISTINCT provider FROM told WHERE arrival IS NULL AND (operation IN ('find', 'list')"
            " OR operation LIKE 'GET %' OR operation LIKE 'HEAD %' OR what IN ('200', 'status 200'))"
        )
        return frozenset(provider for (provider,) in self._rows(sql))

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
        return int(self._rows(f"SELECT {INCARNATION}")[0][0])

    def now_s(self) -> float:
        """The providers' time, in Unix seconds: what `Ledger.set_now` said last, else the machine's."""
        with self._open() as connection:
            return now_within(connection)

    def state_rows(self) -> list[tuple[str, tuple[Any, ...]]]:
        """The rows that are state, not evidence about its history, as (table, values) in a stable order."""
        with self._open() as connection:
            return [(table, row) for table, sql in STATE for row in connection.execute(sql)]


class LedgerSnapshot(LedgerReader):
    """A picture of a ledger: the bytes of its file, read in memory and never written."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @contextmanager
    def at(self, now_s: float) -> Iterator[sqlite3.Connection]:
        """A copy in memory in which the providers' time is `now_s` (Unix seconds): to try what would happen."""
        with self._open() as connection:
            connection.execute("INSERT OR REPLACE INTO meta VALUES ('now_s', ?)", (float(now_s),))
            yield connection

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(UNPATCHED[0](":memory:", isolation_level=None)) as connection:
            connection.deserialize(self._data)
            yield connection
