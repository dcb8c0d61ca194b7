"""The ledger's file.

It is part of the world: the controller restores it between incarnations, while a forked child, a server process and
the controller itself use it. So every operation opens and closes it; the
loopback server keeps it open, and opens it anew when the file was replaced or rewritten.
"""

from __future__ import annotations

import base64
import json
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from pytest_once.ledger.account import ACCOUNT_HEADER, REGION_HEADER, account_of, region_of
from pytest_once.ledger.payload import canonical_payload
from pytest_once.ledger.reading import UNPATCHED, LedgerReader
from pytest_once.ledger.records import Effect
from pytest_once.ledger.schema import INCARNATION, SCHEMA
from pytest_once.ledger.within import find_provider, insert_arrival, insert_effect, now_within

_BUSY_TIMEOUT_S = 5.0

# What a request is recognised by must be kept, whoever may read the ledger; these are for the provider's eyes only.
_SECRET_HEADER = re.compile("authorization|cookie|api-?key|token|secret|password|signature")


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
            connection.executescript(f"PRAGMA page_size = 1024; BEGIN IMMEDIATE; {SCHEMA} COMMIT;")
        return ledger

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            connection = UNPATCHED[0](self._uri, uri=True, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
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
                "INSERT OR IGNORE INTO providers(name, contract, key_field, endpoint) VALUES (?, ?, ?, ?)",
                (name, contract, key_field, endpoint),
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
                f"INSERT INTO told(arrival, provider, operation, incarnation, what) VALUES (?, ?, ?, {INCARNATION}, ?)",
                (arrival, provider, operation, what),
            )

    def begin_incarnation(self, number: int) -> None:
        """Note that life `number` (1-based) begins; what is recorded from now on belongs to it."""
        with self.transaction() as connection:
            connection.execute("UPDATE meta SET value = ? WHERE name = 'incarnation'", (number,))

    def set_now(self, seconds: float) -> None:
        """Tell the providers the time, in Unix seconds: that of the process that is about to call one."""
        with self.transaction() as connection:
            # The same time again must not change the file: its pictures are recognised by their bytes.
            connection.execute(
                "INSERT INTO meta VALUES ('now_s', ?)"
                " ON CONFLICT(name) DO UPDATE SET value = excluded.value WHERE value <> excluded.value",
                (float(seconds),),
            )

    def hold(self, provider: str, operation: str, request: Mapping[str, Any]) -> None:
        """Keep a request on its way to the provider; `once_fakes.provider.deliver` lets it arrive.

        request: of an HTTP request "method", "path" (below the provider's address, percent-encoded, with its query),
        "headers" (name to value) and "body" (bytes); of a plain call "payload" (canonical JSON) and "key" (text or
        None). Headers that carry credentials are not kept, but a digest of them. Raises LookupError if the provider
        is not declared.
        """
        with self.transaction() as connection:
            declared = find_provider(connection, provider)
            if declared is None:
                raise LookupError(f"no provider {provider!r} is declared in {self}")
            contract = json.loads(declared.contract)
            if "payload" in request:
                key, payload, kept = request["key"] or None, request["payload"], dict(request)
            else:
                key, payload, kept = _on_the_wire(request, contract.get("key_header", ""))
            lifetime_s = contract.get("request_lifetime_s")
            connection.execute(
                "INSERT INTO in_flight(provider, operation, key, payload, request, incarnation, expires_s)"
                f" VALUES (?, ?, ?, ?, ?, {INCARNATION}, ?)",
                (
                    provider,
                    operation,
                    key,
                    payload,
                    json.dumps(kept, sort_keys=True),
                    None if lifetime_s is None else now_within(connection) + lifetime_s,
                ),
            )

    def record_call(self, provider: str, operation: str, logical_key: str | None, payload: str) -> Effect:
        """Record the effect of a plain callable, which has no contract: each call is an effect.

        payload: canonical JSON.
        """
        with self.transaction() as connection:
            arrival = insert_arrival(
                connection, provider, operation, key=None, payload=payload, outcome="executed", status=200
            )
            return insert_effect(connection, provider, operation, logical_key, payload, arrival)


def _on_the_wire(request: Mapping[str, Any], key_header: str) -> tuple[str | None, str, dict[str, Any]]:
    """A held HTTP request's idempotency key, what distinguishes it from others, and what is kept of it as JSON."""
    headers = {name.lower(): value for name, value in request["headers"].items()}
    body: bytes = request["body"]
    try:
        shown: object = body.decode()
    except UnicodeDecodeError:
        shown = body
    # Of the headers only what a contract reads: times and trace ids would make every attempt a state of its own.
    seen = {"path": request["path"], "content-type": headers.get("content-type", ""), "body": shown}
    kept = {
        name: value for name, value in headers.items() if name == key_header.lower() or not _SECRET_HEADER.search(name)
    }
    for name, value in ((ACCOUNT_HEADER, account_of(headers)), (REGION_HEADER, region_of(headers))):
        if value:
            kept[name] = value
    encoded = base64.b64encode(body).decode("ascii")
    return (
        headers.get(key_header.lower()) or None,
        canonical_payload(seen),
        {"method": request["method"], "path": request["path"], "headers": kept, "body": encoded},
    )
