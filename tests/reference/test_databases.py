"""Transactions: whole or not at all, once, in every thread and process, and honest about what failed."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytest_once.reference.databases import AsyncSQLite, CommitUnknown, NotCommitted, PostgreSQL, SQLite
from pytest_once.reference.migrations import MIGRATIONS, migrate
from pytest_once.reference.schema import Dialect, Migration
from pytest_once.reference.steps import Statement, Steps
from tests.reference.conftest import Opener, Store
from tests.reference.messages import rows

FORK = get_context("fork")


def task(name: str) -> Steps[None]:
    yield Statement("INSERT INTO tasks VALUES ('acme', ?, '', 1)", (name,))


def tasks(store: Store) -> list[str]:
    return [row[0] for row in store.transact(rows("tasks", "task"))]


def raises(steps: Steps[None]) -> Steps[None]:
    yield from steps
    raise RuntimeError("in the middle")


def test_a_transaction_is_whole_or_not_at_all(store: Store) -> None:
    """S2.1: whether Python or the database objects, and the connection is usable afterwards."""

    def wrong() -> Steps[None]:
        yield from task("a")
        yield Statement("INSERT INTO nowhere VALUES (1)")

    with pytest.raises(RuntimeError):
        store.transact(raises(task("a")))
    with pytest.raises(Exception, match="nowhere"):
        store.transact(wrong())
    store.transact(task("b"))
    assert tasks(store) == ["b"]


@pytest.mark.parametrize(("how", "level"), [({}, 2), ({"power_loss": False}, 1)])
def test_commits_wait_for_the_disk_unless_told_otherwise(tmp_path: Path, how: dict[str, bool], level: int) -> None:
    """S4.1: 2 is FULL, 1 NORMAL, where the machine's last moments may be lost and a process's never."""

    def asked() -> Steps[Any]:
        return (yield Statement("PRAGMA synchronous"))

    def asks(level: Any) -> int:
        return int(level[0][0])

    with closing(SQLite(tmp_path / "blocking.db", **how)) as database:
        assert asks(database.transact(asked())) == level

    async def awaiting() -> int:
        database = AsyncSQLite(tmp_path / "awaiting.db", **how)
        try:
            return asks(await database.transact(asked()))
        finally:
            await database.close()

    assert asyncio.run(awaiting()) == level


def test_migrations_are_applied_once(open_store: Opener) -> None:
    """A second start finds nothing to do."""
    assert open_store("own").migrate() == []
    assert [number for number, _ in open_store("own").transact(rows("reference_migrations"))] == [
        migration.number for migration in MIGRATIONS
    ]


def test_a_later_migration_is_added_to_what_is_there(store: Store) -> None:
    """Databases in use are taken along; a broken migration leaves nothing behind."""
    dialect = Dialect.POSTGRESQL if isinstance(store, PostgreSQL) else Dialect.SQLITE
    broken = Migration(900, "broken", ("CREATE TABLE half (id BIGINT)", "CREATE nonsense"))
    with pytest.raises(Exception, match="nonsense"):
        store.transact(migrate(dialect, (*MIGRATIONS, broken)))
    mended = Migration(900, "mended", ("CREATE TABLE half (id BIGINT)",), {dialect: ("INSERT INTO half VALUES (1)",)})
    assert store.transact(migrate(dialect, (*MIGRATIONS, mended))) == [900]
    assert store.transact(rows("half")) == [(1,)]


@pytest.mark.parametrize("kind", ["sqlite3", "aiosqlite", "psycopg"])
def test_many_processes_may_start_at_once(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Each migrates at its start; exactly one applies each migration, and none fails."""
    url = request.getfixturevalue("new_schema")() if kind == "psycopg" else ""
    gate, applied = FORK.Barrier(4), FORK.Queue()

    def start() -> None:
        gate.wait()
        if kind == "aiosqlite":
            applied.put(asyncio.run(AsyncSQLite(tmp_path / "own.db").migrate()))
        else:
            applied.put((PostgreSQL(url) if url else SQLite(tmp_path / "own.db")).migrate())

    processes = [FORK.Process(target=start) for _ in range(4)]
    for process in processes:
        process.start()
    results = [applied.get(timeout=30) for _ in processes]
    for process in processes:
        process.join(30)
    assert sorted(results) == [[], [], [], [migration.number for migration in MIGRATIONS]]


@pytest.mark.parametrize("open_store", ["sqlite3", "psycopg"], indirect=True)
def test_a_forked_child_opens_its_own_connection(open_store: Opener) -> None:
    """A connection used by two processes corrupts what they say to each other; closing it drops the parent's locks."""
    store = open_store("own")
    store.transact(task("parent"))

    def child() -> None:
        store.transact(task("child"))
        store.close()

    process = FORK.Process(target=child)
    process.start()
    process.join(30)
    assert process.exitcode == 0
    store.transact(task("parent again"))
    assert tasks(store) == ["child", "parent", "parent again"]


@pytest.mark.parametrize("open_store", ["sqlite3", "psycopg"], indirect=True)
def test_threads_do_not_share_transactions(open_store: Opener) -> None:
    """Each has a connection of its own, and a transaction ends before the next begins."""
    store = open_store("own")
    threads = [threading.Thread(target=lambda n=n: store.transact(task(f"t{n}"))) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert tasks(store) == [f"t{n}" for n in range(8)]


def test_tasks_of_an_event_loop_do_not_share_transactions(tmp_path: Path) -> None:
    """They share a connection, so one waits for the other; a failed or cancelled one leaves nothing open."""

    async def body() -> None:
        database = AsyncSQLite(tmp_path / "own.db")
        await database.migrate()
        done = await asyncio.gather(
            *(database.transact(task(f"t{n}")) for n in range(4)),
            database.transact(raises(task("fails"))),
            return_exceptions=True,
        )
        assert [type(result) for result in done] == [type(None)] * 4 + [RuntimeError]
        for moment in range(12):
            cancelled = asyncio.create_task(database.transact(raises(task("cancelled"))))
            for _ in range(moment):
                await asyncio.sleep(0)
            cancelled.cancel()
            with pytest.raises((asyncio.CancelledError, RuntimeError)):
                await cancelled
        await database.transact(task("after"))
        assert await database.transact(rows("tasks", "task")) == [(name,) for name in ("after", "t0", "t1", "t2", "t3")]
        await database.close()

    asyncio.run(body())


def test_a_busy_sqlite_database_has_committed_nothing(tmp_path: Path) -> None:
    """S13: the caller may repeat the whole transaction; it is told so, after the time-out it asked for."""

    async def tried() -> None:
        database = AsyncSQLite(tmp_path / "own.db", busy_timeout_s=0.05)
        try:
            await database.transact(task("a"))
        finally:
            await database.close()

    with closing(SQLite(tmp_path / "own.db", busy_timeout_s=0.05)) as database:
        database.migrate()
        with closing(sqlite3.connect(tmp_path / "own.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(NotCommitted, match="busy"):
                database.transact(task("a"))
            with pytest.raises(NotCommitted, match="busy"):
                asyncio.run(tried())
            other.execute("COMMIT")
        database.transact(task("a"))
        assert tasks(database) == ["a"]


def test_a_transaction_that_the_server_cannot_serialize_has_committed_nothing(new_schema: Callable[[], str]) -> None:
    """It is told, not repeated: only the caller knows what else it has done."""
    url = new_schema()
    with closing(PostgreSQL(url)) as database, closing(PostgreSQL(url)) as other:
        database.migrate()
        database.transact(task("a"))

        def overtaken() -> Steps[None]:
            yield Statement("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            yield Statement("SELECT * FROM tasks")
            other.transact(change("theirs"))
            yield from change("ours")

        def change(to: str) -> Steps[None]:
            yield Statement("UPDATE tasks SET description = ?", (to,))

        with pytest.raises(NotCommitted):
            database.transact(overtaken())
        assert database.transact(rows("tasks", "description")) == [("theirs",)]


def test_a_connection_lost_before_the_commit_is_an_error_and_the_next_is_new(new_schema: Callable[[], str]) -> None:
    """A server that restarts must not end the process, and nothing is sent again unasked."""
    url = new_schema()
    with closing(PostgreSQL(url)) as database:
        database.migrate()

        def cut_off() -> Steps[None]:
            ((backend,),) = yield Statement("SELECT pg_backend_pid()")
            yield from task("a")
            with psycopg.connect(url, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 5000)", (backend,))
            yield from task("b")

        with pytest.raises(psycopg.OperationalError):
            database.transact(cut_off())
        assert tasks(database) == []


def test_a_connection_lost_at_the_commit_leaves_the_outcome_unknown(new_schema: Callable[[], str]) -> None:
    """A lost COMMIT is neither a failure nor a success, and must not look like one that may be repeated."""
    url = new_schema()
    with closing(PostgreSQL(url)) as database:
        database.migrate()

        def cut_off() -> Steps[None]:
            ((backend,),) = yield Statement("SELECT pg_backend_pid()")
            yield from task("a")
            with psycopg.connect(url, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 5000)", (backend,))

        with pytest.raises(CommitUnknown):
            database.transact(cut_off())
        assert tasks(database) == []


def test_connections_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening one costs more than a transaction does."""
    opened: list[object] = []
    connect = sqlite3.connect

    def counting(*arguments: Any, **named: Any) -> Any:
        opened.append(arguments)
        return connect(*arguments, **named)

    monkeypatch.setattr(sqlite3, "connect", counting)
    with closing(SQLite(tmp_path / "own.db")) as database:
        database.migrate()
        for number in range(20):
            database.transact(task(str(number)))
    assert len(opened) == 1
