"""The outbox row is written in whatever transaction the application has open, through its own connection."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import aiosqlite
import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row

from pytest_once.reference import outbox
from pytest_once.reference.databases import PostgreSQL, SQLite
from pytest_once.reference.steps import NoTransaction, run, run_async
from tests.reference.messages import report, rows

REPORTS = "CREATE TABLE reports (id TEXT PRIMARY KEY, version BIGINT NOT NULL)"
SAVE = "INSERT INTO reports VALUES ('report-17', 3)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with closing(SQLite(tmp_path / "app.db")) as database:
        database.migrate()
    with closing(sqlite3.connect(tmp_path / "app.db")) as connection:
        connection.execute(REPORTS)
    return tmp_path / "app.db"


@pytest.fixture
def url(new_schema: Callable[[], str]) -> str:
    made = new_schema()
    with closing(PostgreSQL(made)) as database:
        database.migrate()
    with psycopg.connect(made) as connection:
        connection.execute(REPORTS)
    return made


def in_sqlite(path: Path) -> tuple[int, int]:
    """Committed reports and messages, as another process sees them."""
    with closing(sqlite3.connect(path)) as connection:
        counts = (connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("reports", "outbox"))
        return next(counts), next(counts)


def in_postgresql(url: str) -> tuple[int, int]:
    with psycopg.connect(url) as connection:
        database: Any = connection
        return len(run(database, rows("reports"))), len(run(database, rows("outbox")))


@pytest.mark.parametrize("isolation", ["", "IMMEDIATE"])
def test_sqlite3(path: Path, isolation: Any) -> None:
    """S2.1: the module's usual modes begin by themselves; a row factory of the application's does not matter."""
    with closing(sqlite3.connect(path, isolation_level=isolation)) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute(SAVE)
        assert run(connection, outbox.put(report(), now=1.0))
        assert in_sqlite(path) == (0, 0)
        connection.rollback()
        assert in_sqlite(path) == (0, 0)
        connection.execute(SAVE)
        run(connection, outbox.put(report(), now=1.0))
        connection.commit()
        assert in_sqlite(path) == (1, 1)


def test_a_sqlite3_connection_that_commits_each_statement_is_refused(path: Path) -> None:
    """S2.1: there the row would commit by itself, which looks right until the process dies in between."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        with pytest.raises(NoTransaction, match="BEGIN IMMEDIATE"):
            run(connection, outbox.put(report(), now=1.0))
        assert in_sqlite(path) == (0, 0)
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(SAVE)
        run(connection, outbox.put(report(), now=1.0))
        connection.execute("COMMIT")
        assert in_sqlite(path) == (1, 1)


def test_aiosqlite(path: Path) -> None:
    """S2.1: the same on an event loop, refusal of an autocommit connection included."""

    async def body() -> None:
        async with aiosqlite.connect(path) as connection:
            await connection.execute(SAVE)
            assert await run_async(connection, outbox.put(report(), now=1.0))
            await connection.rollback()
            assert in_sqlite(path) == (0, 0)
            await connection.execute(SAVE)
            await run_async(connection, outbox.put(report(), now=1.0))
            await connection.commit()
        async with aiosqlite.connect(path, isolation_level=None) as connection:
            with pytest.raises(NoTransaction):
                await run_async(connection, outbox.put(report(4), now=1.0))

    asyncio.run(body())
    assert in_sqlite(path) == (1, 1)


def test_psycopg(url: str) -> None:
    """S2.1: implicit transactions and transaction() blocks; autocommit without one is refused."""
    with psycopg.connect(url, row_factory=dict_row) as connection:
        connection.execute(SAVE)
        assert run(connection, outbox.put(report(), now=1.0))
        connection.rollback()
        assert in_postgresql(url) == (0, 0)
    with psycopg.connect(url, autocommit=True) as autocommit:
        with pytest.raises(NoTransaction, match=r"connection\.transaction\(\)"):
            run(autocommit, outbox.put(report(), now=1.0))
        with autocommit.transaction():
            autocommit.execute(SAVE)
            run(autocommit, outbox.put(report(), now=1.0))
    assert in_postgresql(url) == (1, 1)


def test_psycopg_on_an_event_loop(url: str) -> None:
    """S2.1: the logic does not know which of the two it runs on."""

    async def body() -> None:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await connection.execute(SAVE)
            await run_async(connection, outbox.put(report(), now=1.0))

    asyncio.run(body())
    assert in_postgresql(url) == (1, 1)


@pytest.mark.parametrize("driver", ["sqlite", "postgresql+psycopg"])
def test_sqlalchemy(driver: str, path: Path, request: pytest.FixtureRequest) -> None:
    """S2.1: the driver's connection below SQLAlchemy's, in the transaction that SQLAlchemy has begun."""
    if driver == "sqlite":
        address = f"sqlite:///{path}"
    else:
        address = request.getfixturevalue("url").replace("postgresql://", "postgresql+psycopg://")
    engine = sqlalchemy.create_engine(address)

    def save() -> None:
        with engine.begin() as connection:
            connection.exec_driver_sql(SAVE)
            run(connection.connection.driver_connection, outbox.put(report(), now=1.0))
            if fails:
                raise RuntimeError("the business change is refused")

    def seen() -> tuple[int, ...]:
        with engine.connect() as connection:
            return tuple(
                connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one()
                for table in ("reports", "outbox")
            )

    fails = True
    with pytest.raises(RuntimeError):
        save()
    assert seen() == (0, 0)
    fails = False
    save()
    assert seen() == (1, 1)
    engine.dispose()
