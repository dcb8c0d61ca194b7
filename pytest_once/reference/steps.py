"""What to ask a database, apart from how: the logic yields statements and is sent their rows.

So it is written once for sqlite3, aiosqlite and psycopg, and it runs in whatever transaction its caller has open: an
outbox row commits together with the business change because it is written there.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

Row: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL that SQLite and PostgreSQL both understand, with "?" for each value; no "?" and no "%" in its literals.

    lock: the rows it reads stay as they are until the transaction ends (on SQLite they do so anyway).
    """

    sql: str
    values: tuple[object, ...] = ()
    lock: bool = False


Steps: TypeAlias = Generator[Statement, list[Row], T]
"""Yields a statement, is sent its rows (an empty list if it has none), returns T."""


class NoTransaction(Exception):
    """The connection commits every statement by itself, so nothing could be atomic with anything."""


def run(connection: Any, steps: Steps[T]) -> T:
    """Perform steps in the transaction that `connection` (sqlite3 or psycopg) has open; committing is the caller's.

    Raises NoTransaction if the connection is in autocommit mode and no transaction was begun.
    """
    _in_transaction(connection)
    execute = _psycopg(connection) if _is_psycopg(connection) else _sqlite(connection)
    try:
        statement = next(steps)
        while True:
            statement = steps.send(execute(statement))
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()


async def run_async(connection: Any, steps: Steps[T]) -> T:
    """As `run`, for connections of aiosqlite and psycopg.AsyncConnection."""
    _in_transaction(connection)
    execute = _async_psycopg(connection) if _is_psycopg(connection) else _aiosqlite(connection)
    try:
        statement = next(steps)
        while True:
            statement = steps.send(await execute(statement))
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()


def _is_psycopg(connection: Any) -> bool:
    return type(connection).__module__.partition(".")[0] == "psycopg"


def _in_transaction(connection: Any) -> None:
    if _is_psycopg(connection):
        begun = not connection.autocommit or connection.info.transaction_status.name != "IDLE"
    else:
        # The module's older mode (isolation_level is text) begins a transaction by itself before it writes.
        begun = connection.in_transaction or (
            connection.isolation_level is not None and getattr(connection, "autocommit", None) is not True
        )
    if not begun:
        raise NoTransaction(
            "the connection commits each statement by itself, so a crash could keep one and lose the next; "
            "execute BEGIN IMMEDIATE (SQLite), or open connection.transaction() (psycopg), around your change and this"
        )


def _sqlite(connection: sqlite3.Connection) -> Callable[[Statement], list[Row]]:
    def execute(statement: Statement) -> list[Row]:
        cursor = connection.cursor()
        cursor.row_factory = None
        return cursor.execute(statement.sql, statement.values).fetchall()

    return execute


def _aiosqlite(connection: Any) -> Callable[[Statement], Awaitable[list[Row]]]:
    async def execute(statement: Statement) -> list[Row]:
        async with connection.execute(statement.sql, statement.values) as cursor:
            return [tuple(row) for row in await cursor.fetchall()]

    return execute


def _psycopg(connection: Any) -> Callable[[Statement], list[Row]]:
    from psycopg.rows import tuple_row

    def execute(statement: Statement) -> list[Row]:
        with connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(_for_postgresql(statement), statement.values)
            return [] if cursor.description is None else list(cursor.fetchall())

    return execute


def _async_psycopg(connection: Any) -> Callable[[Statement], Awaitable[list[Row]]]:
    from psycopg.rows import tuple_row

    async def execute(statement: Statement) -> list[Row]:
        async with connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(_for_postgresql(statement), statement.values)
            return [] if cursor.description is None else list(await cursor.fetchall())

    return execute


def _for_postgresql(statement: Statement) -> str:
    sql = statement.sql.replace("%", "%%").replace("?", "%s")
    return f"{sql} FOR SHARE" if statement.lock else sql
