"""Every way in which psycopg 3 makes something durable is announced, just before it happens, and can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import psycopg
import pytest

from pytest_once.boundaries import servers
from pytest_once.boundaries.psycopg import PSYCOPG
from pytest_once.boundaries.seam import Wiring
from pytest_once.faults import COMMIT_UNKNOWN, STORE_BUSY, STORE_FAULTS, STORE_FULL, STORE_READONLY
from tests.boundaries.recording import Recording, recorded

INSERT = "INSERT INTO jobs (task, state) VALUES ('a', 'new')"
INSERT_ANY = "INSERT INTO jobs (task, state) VALUES (%s, 'new')"
UPDATE = "UPDATE jobs SET state = 'done'"

FAULTS = {
    STORE_BUSY: "SerializationFailure: could not serialize access",
    STORE_FULL: "DiskFull: could not extend file",
    STORE_READONLY: "ReadOnlySqlTransaction: cannot execute",
}
"""Fault that applies nothing -> the error it looks like to code that uses psycopg."""


def watched(url: str, body: Callable[[], Any], fault: str | None = None, tracked: bool = True) -> Recording:
    """Run a body with the seam; what is seen at each announcement is the number of committed jobs."""
    with psycopg.connect(url, autocommit=True) as observer:

        def jobs() -> int:
            return len(observer.execute("SELECT FROM jobs").fetchall())

        def install() -> None:
            if tracked:
                servers.track(url)
            PSYCOPG.install(Wiring([], [], outside, lambda *_: None, lambda *_: None))

        def outside(what: str, target: str, site: object) -> None:
            raise RuntimeError(f"{what} would change {target}")

        recording = recorded(body, install=install, look=jobs, fault=fault)
        recording.result = (recording.result, jobs())
    return recording


def sync(url: str, act: Callable[[Any], Any], **named: Any) -> Callable[[], Any]:
    def body() -> Any:
        with psycopg.connect(url, **named) as connection:
            act(connection)

    return body


def asynchronous(url: str, act: Callable[[Any], Coroutine[Any, Any, Any]], **named: Any) -> Callable[[], Any]:
    async def live() -> None:
        async with await psycopg.AsyncConnection.connect(url, **named) as connection:
            await act(connection)

    return lambda: asyncio.run(live())


def test_a_commit_is_announced_once_whoever_asks_for_it(database: str) -> None:
    """Leaving the connection's block, commit(), an explicit COMMIT and transaction() all end in the same place."""

    def commits(connection: Any) -> None:
        connection.execute(INSERT)
        connection.commit()
        connection.execute("SELECT count(*) FROM jobs")
        connection.commit()  # nothing was written
        with connection.transaction():
            connection.execute(INSERT_ANY, ("b",))
            with connection.transaction():
                connection.execute(UPDATE)
        connection.execute(INSERT_ANY, ("c",))
        connection.execute("COMMIT")
        connection.execute("DELETE FROM outbox")
        connection.rollback()
        connection.execute(INSERT_ANY, ("d",))

    recording = watched(database, sync(database, commits))
    assert recording.error is None
    assert recording.seen() == [
        ("postgresql COMMIT (jobs)", 0),
        ("postgresql COMMIT (jobs)", 1),
        ("postgresql COMMIT (jobs)", 2),
        ("postgresql COMMIT (jobs)", 3),
    ]
    assert recording.passed[0].faults == list(STORE_FAULTS)
    assert recording.passed[0].line == "connection.commit()"
    assert recording.result[1] == 4


def test_outside_of_transactions_each_writing_statement_is_announced(database: str) -> None:
    """With autocommit there is no COMMIT; reading, and what only the session sees, is not announced."""

    def acts(connection: Any) -> None:
        connection.execute(INSERT)
        connection.execute("SELECT * FROM jobs WHERE task = 'a' FOR UPDATE").fetchall()
        connection.execute("SET application_name = 'x'")
        connection.execute("CREATE TEMP TABLE seen (id int)")
        connection.execute("-- why\nWITH x AS (INSERT INTO jobs (task, state) VALUES ('b', '') RETURNING id) TABLE x")
        connection.execute("SELECT nextval('jobs_id_seq')")
        connection.execute("INSERT INTO jobs (task, state) VALUES ('c', ''); UPDATE jobs SET state = ';'")
        connection.execute("BEGIN; DELETE FROM jobs WHERE task = 'c'; COMMIT")
        connection.cursor().executemany(INSERT_ANY, [("d",), ("e",)])
        for number in range(8):  # the driver prepares what comes often
            connection.execute("UPDATE jobs SET state = %s", (str(number),))

    recording = watched(database, sync(database, acts, autocommit=True))
    assert recording.error is None
    assert recording.seen()[:6] == [
        ("postgresql INSERT INTO jobs", 0),
        ("postgresql WITH INSERT INTO jobs", 1),
        ("postgresql SELECT nextval()", 2),
        ("postgresql INSERT INTO jobs; UPDATE jobs", 2),
        ("postgresql COMMIT (jobs)", 3),
        ("postgresql SYNC (jobs)", 2),
    ]
    assert recording.seen()[6:] == [("postgresql UPDATE jobs", 4)] * 8


def test_pipelines_and_copies_are_announced_where_they_commit(database: str) -> None:
    """Both send long before anything is durable."""

    def acts(connection: Any) -> None:
        with connection.pipeline():
            connection.execute(INSERT)
            connection.execute(INSERT_ANY, ("b",))
        with connection.pipeline() as pipeline:
            with connection.transaction():
                connection.execute(INSERT_ANY, ("c",))
            connection.execute(UPDATE)
            pipeline.sync()
        with connection.cursor().copy("COPY jobs (task, state) FROM STDIN") as copy:
            copy.write("d\tnew\ne\tnew\n")
        with connection.transaction(), connection.cursor().copy("COPY jobs (task, state) FROM STDIN") as copy:
            copy.write("f\tnew\n")

    recording = watched(database, sync(database, acts, autocommit=True))
    assert recording.error is None
    assert recording.seen() == [
        ("postgresql SYNC (jobs)", 0),
        ("postgresql COMMIT (jobs)", 2),
        ("postgresql SYNC (jobs)", 3),
        ("postgresql COPY jobs", 3),
        ("postgresql COMMIT (jobs)", 5),
    ]
    assert recording.result[1] == 6


def test_async_connections_are_watched_too(database: str) -> None:
    """The async half of the driver shares the place where texts are sent."""

    async def acts(connection: Any) -> None:
        await connection.execute(INSERT)
        await connection.commit()
        await connection.set_autocommit(True)
        await connection.execute(INSERT_ANY, ("b",))
        async with connection.pipeline(), connection.transaction():
            await connection.execute(INSERT_ANY, ("c",))
        async with connection.cursor().copy("COPY jobs (task, state) FROM STDIN") as copy:
            await copy.write("d\tnew\n")

    recording = watched(database, asynchronous(database, acts))
    assert recording.error is None
    assert recording.seen() == [
        ("postgresql COMMIT (jobs)", 0),
        ("postgresql INSERT INTO jobs", 1),
        ("postgresql COMMIT (jobs)", 2),
        ("postgresql COPY jobs", 3),
    ]


async def _one_commit_async(connection: Any) -> None:
    await connection.execute(INSERT)
    await connection.commit()


def _one_commit(connection: Any) -> None:
    connection.execute(INSERT)
    connection.commit()


def _one_pipeline(connection: Any) -> None:
    with connection.pipeline():
        connection.execute(INSERT)


def _one_transaction_in_a_pipeline(connection: Any) -> None:
    with connection.pipeline(), connection.transaction():
        connection.execute(INSERT)


def _one_explicit_commit(connection: Any) -> None:
    connection.execute(INSERT)
    connection.execute("COMMIT")


WAYS: dict[str, Callable[[str], Callable[[], Any]]] = {
    "commit": lambda url: sync(url, _one_commit),
    "commit, async": lambda url: asynchronous(url, _one_commit_async),
    "explicit commit": lambda url: sync(url, _one_explicit_commit),
    "statement": lambda url: sync(url, lambda connection: connection.execute(INSERT), autocommit=True),
    "statement, async": lambda url: asynchronous(url, lambda connection: connection.execute(INSERT), autocommit=True),
    "prepared": lambda url: sync(
        url, lambda connection: connection.execute(INSERT_ANY, ("a",), prepare=True), autocommit=True
    ),
    "pipeline": lambda url: sync(url, _one_pipeline, autocommit=True),
    "transaction in a pipeline": lambda url: sync(url, _one_transaction_in_a_pipeline, autocommit=True),
}


@pytest.mark.parametrize("fault", STORE_FAULTS)
@pytest.mark.parametrize("way", WAYS)
def test_a_fault_does_what_its_name_says(database: str, way: str, fault: str) -> None:
    """Not applied, with the server's own error; or applied, and the connection is lost before the answer."""
    recording = watched(database, WAYS[way](database), fault)
    assert len(recording.passed) == 1
    error = "OperationalError: consuming input failed" if fault == COMMIT_UNKNOWN else FAULTS[fault]
    assert str(recording.error).startswith(error)
    assert recording.result[1] == (1 if fault == COMMIT_UNKNOWN else 0)


def test_after_a_refused_commit_the_connection_works_on(database: str) -> None:
    """A commit that fails ends its transaction; code that tries again does so in a new one."""

    def tries_again(connection: Any) -> None:
        connection.execute(INSERT)
        try:
            connection.commit()
        except psycopg.errors.SerializationFailure:
            assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        connection.commit()
        connection.execute(INSERT)
        connection.commit()

    recording = watched(database, sync(database, tries_again), STORE_BUSY)
    assert recording.error is None
    assert recording.seen() == [("postgresql COMMIT (jobs)", 0)] * 2
    assert recording.result[1] == 1


def test_after_an_unknown_commit_the_connection_is_closed(database: str) -> None:
    """As after a real loss."""

    def goes_on(connection: Any) -> None:
        connection.execute(INSERT)
        with pytest.raises(psycopg.OperationalError):
            connection.commit()
        assert connection.closed

    assert watched(database, sync(database, goes_on), COMMIT_UNKNOWN).error is None


def test_writing_to_a_database_that_is_not_tracked_is_reported(database: str) -> None:
    """It could be neither pictured nor undone; reading is harmless."""
    reads = watched(database, sync(database, lambda c: c.execute("SELECT FROM jobs")), tracked=False)
    assert reads.error is None
    writes = watched(database, sync(database, _one_commit), tracked=False)
    assert str(writes.error).startswith("RuntimeError: COMMIT (jobs) would change postgresql:once_")
    assert not writes.passed


def test_a_connection_from_before_the_incarnation_is_refused(database: str) -> None:
    """Parent and children would write to one socket."""
    with psycopg.connect(database) as inherited:
        recording = watched(database, lambda: inherited.execute("SELECT 1"))
    assert str(recording.error).startswith("InheritedConnectionError: a connection of psycopg was opened before")
