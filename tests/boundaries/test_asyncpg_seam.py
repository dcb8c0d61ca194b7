"""Every way in which asyncpg makes something durable is announced, just before it happens, and can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import psycopg
import pytest

from pytest_once.boundaries import servers
from pytest_once.boundaries.asyncpg import ASYNCPG
from pytest_once.boundaries.seam import Wiring
from pytest_once.faults import COMMIT_UNKNOWN, STORE_BUSY, STORE_FAULTS, STORE_FULL, STORE_READONLY
from tests.boundaries.recording import Recording, recorded

INSERT = "INSERT INTO jobs (task, state) VALUES ('a', 'new')"
INSERT_ANY = "INSERT INTO jobs (task, state) VALUES ($1, 'new')"

FAULTS = {
    STORE_BUSY: "SerializationError: could not serialize access",
    STORE_FULL: "DiskFullError: could not extend file",
    STORE_READONLY: "ReadOnlySQLTransactionError: cannot execute",
}
"""Fault that applies nothing -> the error it looks like to code that uses asyncpg."""


def watched(
    url: str, act: Callable[[Any], Coroutine[Any, Any, Any]], fault: str | None = None, tracked: bool = True
) -> Recording:
    """Run a body with the seam; what is seen at each announcement is the number of committed jobs."""
    with psycopg.connect(url, autocommit=True) as observer:

        def jobs() -> int:
            return len(observer.execute("SELECT FROM jobs").fetchall())

        def install() -> None:
            if tracked:
                servers.track(url)
            ASYNCPG.install(Wiring([], [], outside, lambda *_: None, lambda *_: None))

        def outside(what: str, target: str, site: object) -> None:
            raise RuntimeError(f"{what} would change {target}")

        async def live() -> None:
            connection = await asyncpg.connect(url)
            try:
                await act(connection)
            finally:
                await connection.close()

        recording = recorded(lambda: asyncio.run(live()), install=install, look=jobs, fault=fault)
        recording.result = (recording.result, jobs())
    return recording


def test_commits_and_lone_statements_are_announced_and_reads_are_not(database: str) -> None:
    """Whatever of the driver they come through: its methods, prepared statements, cursors, COPY."""

    async def acts(connection: Any) -> None:
        async with connection.transaction():
            await connection.execute(INSERT)
            async with connection.transaction():
                await connection.execute(INSERT_ANY, "b")
        await connection.fetch("SELECT * FROM jobs FOR UPDATE")
        await connection.fetchrow(INSERT_ANY + " RETURNING id", "c")
        await connection.executemany(INSERT_ANY, [("d",), ("e",)])
        prepared = await connection.prepare(INSERT_ANY)
        await prepared.fetch("f")
        await connection.copy_records_to_table("jobs", records=[("g", "new")], columns=["task", "state"])
        async with connection.transaction():
            async for _ in connection.cursor("SELECT * FROM jobs"):
                pass
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("DELETE FROM jobs")
        await transaction.rollback()

    recording = watched(database, acts)
    assert recording.error is None
    assert recording.seen() == [
        ("postgresql COMMIT (jobs)", 0),
        ("postgresql INSERT INTO jobs", 2),
        ("postgresql INSERT INTO jobs", 3),
        ("postgresql INSERT INTO jobs", 5),
        ("postgresql COPY jobs", 6),
    ]
    assert recording.result[1] == 7


async def _commit(connection: Any) -> None:
    async with connection.transaction():
        await connection.execute(INSERT)


async def _statement(connection: Any) -> None:
    await connection.execute(INSERT)


async def _prepared(connection: Any) -> None:
    await connection.fetch(INSERT_ANY, "a")


async def _many(connection: Any) -> None:
    await connection.executemany(INSERT_ANY, [("a",)])


@pytest.mark.parametrize("fault", STORE_FAULTS)
@pytest.mark.parametrize("act", [_commit, _statement, _prepared, _many])
def test_a_fault_does_what_its_name_says(
    database: str, act: Callable[[Any], Coroutine[Any, Any, Any]], fault: str
) -> None:
    """Not applied, with the server's own error; or applied, and the connection is lost before the answer."""
    recording = watched(database, act, fault)
    assert len(recording.passed) == 1
    lost = "ConnectionDoesNotExistError: connection was closed in the middle of operation"
    assert str(recording.error).startswith(lost if fault == COMMIT_UNKNOWN else FAULTS[fault])
    assert recording.result[1] == (1 if fault == COMMIT_UNKNOWN else 0)


def test_after_a_refused_commit_the_connection_works_on(database: str) -> None:
    """A commit that fails ends its transaction; code that tries again does so in a new one."""

    async def tries_again(connection: Any) -> None:
        with pytest.raises(asyncpg.SerializationError):
            await _commit(connection)
        assert not connection.is_in_transaction()
        await _commit(connection)

    recording = watched(database, tries_again, STORE_BUSY)
    assert recording.error is None
    assert recording.result[1] == 1


def test_after_an_unknown_commit_the_connection_is_closed(database: str) -> None:
    """As after a real loss."""

    async def goes_on(connection: Any) -> None:
        with pytest.raises(asyncpg.ConnectionDoesNotExistError):
            await _statement(connection)
        assert connection.is_closed()

    assert watched(database, goes_on, COMMIT_UNKNOWN).error is None


def test_writing_to_a_database_that_is_not_tracked_is_reported(database: str) -> None:
    """It could be neither pictured nor undone."""
    recording = watched(database, _commit, tracked=False)
    assert str(recording.error).startswith("RuntimeError: COMMIT (jobs) would change postgresql:once_")
    assert not recording.passed


def test_a_connection_from_before_the_incarnation_is_refused(database: str) -> None:
    """Parent and children would write to one socket."""
    loop = asyncio.new_event_loop()
    try:
        inherited = loop.run_until_complete(asyncpg.connect(database))

        def body() -> None:
            loop.run_until_complete(inherited.execute("SELECT 1"))

        def install() -> None:
            ASYNCPG.install(Wiring([], [], lambda *_: None, lambda *_: None, lambda *_: None))

        recording = recorded(body, install=install)
        loop.run_until_complete(inherited.close())
    finally:
        loop.close()
    assert str(recording.error).startswith("InheritedConnectionError: a connection of asyncpg was opened before")
