"""Code whose state lives in PostgreSQL or Redis: what is right is proven, what is wrong is found."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
import redis
import redis.asyncio

from pytest_once import Once, Report, Verdict, explore
from pytest_once.faults import COMMIT_UNKNOWN, LOST_RESPONSE, RESET_RESPONSE, STORE_BUSY, STORE_FAULTS
from pytest_once.stores import StoreError
from pytest_once.stores.redis import RedisStore
from tests.engine.bodies import careful, careless, proven, told, verdicts
from tests.stores import outboxes

Server = psycopg.Connection[tuple[object, ...]]


def explored(url: str, relay: Callable[..., Any], *, contract: str = "client_key", **marker: Any) -> Report:
    def body(once: Once) -> None:
        address = once.track(url)
        running = relay(address, once.provider("pay", contract=contract))
        if inspect.iscoroutine(running):
            asyncio.run(running)

    return explore(body, **{"soft_faults": 0, **marker})


def copies(server: Server) -> list[object]:
    """Databases made for exploring that this process has left behind."""
    pattern = f"once\\_{os.getpid()}\\_%"
    return [name for (name,) in server.execute("SELECT datname FROM pg_database WHERE datname LIKE %s", (pattern,))]


# What is ignored


def counts_in_postgresql(address: str) -> int:
    with psycopg.connect(address) as connection:
        connection.execute("INSERT INTO jobs (task, state) VALUES ('t', '0') ON CONFLICT DO NOTHING")
        row = connection.execute("UPDATE jobs SET state = (state::int + 1)::text RETURNING state").fetchone()
        assert row is not None
        return int(row[0])


def counts_in_redis(address: str) -> int:
    with redis.Redis.from_url(address) as client:
        return int(client.incr("attempts"))


@pytest.mark.parametrize("decides", [True, False], ids=["decides", "decides nothing"])
@pytest.mark.parametrize(
    ("server_url", "counts", "column"),
    [("postgresql", counts_in_postgresql, "jobs.state"), ("redis_url", counts_in_redis, "attempts.value")],
)
def test_an_ignored_value_is_exchanged_on_servers_too(
    request: pytest.FixtureRequest, server_url: str, counts: Callable[[str], int], column: str, decides: bool
) -> None:
    """Not exchanged, a value that decides would be ignored for ever: exhausted, and wrong."""
    url = request.getfixturevalue(server_url)

    def body(once: Once) -> None:
        attempts = counts(once.track(url))
        key = "another" if decides and attempts > 1000 else "o1"
        careful(once).call("refund", {"order": "o1"}, key=key).raise_for_status()

    report = explore(body, key="o1", soft_faults=0, ignore=(column,))
    if decides:
        assert report.verdict is Verdict.INCONCLUSIVE, told(report)
        assert f"{column} out of the state, but it decides" in report.problem
    else:
        assert proven(report), told(report)
        assert f"ignored; exchanged in every state, which made no difference: {column}" in report.assumptions


# PostgreSQL


@pytest.mark.parametrize(
    "relay",
    [
        outboxes.with_psycopg,
        outboxes.with_async_psycopg,
        outboxes.with_asyncpg,
        outboxes.with_sqlalchemy,
        outboxes.with_async_sqlalchemy,
    ],
)
def test_a_transactional_outbox_is_proven_with_every_driver(postgresql: str, relay: Callable[..., Any]) -> None:
    """Serials, random ids and the server's own time are in it, and keep no search open."""
    report = explored(postgresql, relay)
    assert proven(report), told(report)
    assert [boundary.target for boundary in report.boundaries] == [
        "postgresql COMMIT (jobs, outbox)",
        "pay refund",
        "postgresql COMMIT (outbox, jobs)",
    ]
    # Nothing; recorded; sent; marked; and, once more delivered after it had completed, marked.
    assert report.states == 5


@pytest.mark.slow
def test_the_outbox_survives_failing_bookkeeping(postgresql: str) -> None:
    """A COMMIT that is refused, or of which nobody knows whether it happened."""
    report = explored(
        postgresql, outboxes.with_psycopg, soft_faults=1, faults=(STORE_BUSY, COMMIT_UNKNOWN, LOST_RESPONSE)
    )
    assert proven(report), told(report)


@pytest.mark.slow
@pytest.mark.parametrize("now", ["now()", "%(now)s"])
def test_a_lease_runs_out_when_a_restart_comes_late(postgresql: str, now: str) -> None:
    """Whether the server or the code dates it: restarted at once it is somebody's, after an hour it is not."""
    claim = (
        f"UPDATE jobs SET state = 'claimed', made_at = {now} + interval '30 s' "
        f"WHERE state = 'new' OR (state = 'claimed' AND made_at < {now}) RETURNING id"
    )

    def claims(url: str, provider: Any) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("INSERT INTO jobs (task, state) VALUES ('t1', 'new') ON CONFLICT DO NOTHING")
            if connection.execute(claim, {"now": datetime.now(UTC)}).fetchone() is not None:
                outboxes.send(provider, "t1", "t1")
                connection.execute("UPDATE jobs SET state = 'done'")
            elif connection.execute("SELECT FROM jobs WHERE state = 'done'").fetchone() is None:
                raise RuntimeError("somebody else is at it")

    assert "Say which delays to explore" in told(explored(postgresql, claims))
    report = explored(postgresql, claims, restart_after=("0s", "1h"))
    assert proven(report), told(report)


def test_acting_before_marking_pays_twice(postgresql: str) -> None:
    """The twin without an outbox, at a provider that knows no keys."""
    report = explored(postgresql, outboxes.act_then_mark, contract="none")
    assert verdicts(report) == {"DUPLICATE"}
    assert report.coverage == "exhausted"
    assert all(violation.confirmed for violation in report.violations)


def test_a_commit_that_is_believed_to_have_failed_pays_twice(postgresql: str) -> None:
    """No crash is needed: the code takes an unknown commit for one that did not happen, and does it all again."""

    def believes_errors(url: str, provider: Any) -> None:
        for task in ("first", "again"):
            try:
                with psycopg.connect(url) as connection:
                    if connection.execute("SELECT FROM jobs").fetchone() is not None and task == "first":
                        return
                    connection.execute("INSERT INTO jobs (task, state) VALUES (%s, 'new')", (task,))
                    connection.commit()
                    break
            except psycopg.OperationalError:
                continue
        with psycopg.connect(url) as connection:
            for (found,) in connection.execute("SELECT task FROM jobs").fetchall():
                provider.call("refund", {"order": "o1"}, key=found)

    report = explored(postgresql, believes_errors, soft_faults=1, faults=(COMMIT_UNKNOWN,), redeliver=0)
    assert "DUPLICATE" in verdicts(report)


def test_every_store_fault_is_explored_at_a_commit(postgresql: str) -> None:
    """And each leads somewhere: the table of what a fault does has an entry."""

    def one_commit(url: str, provider: Any) -> None:
        with psycopg.connect(url) as connection:
            connection.execute("INSERT INTO jobs (task, state) VALUES ('t1', 'done') ON CONFLICT DO NOTHING")
        provider.call("refund", {"order": "o1"}, key="o1")

    report = explored(postgresql, one_commit, soft_faults=1, faults=STORE_FAULTS)
    assert proven(report), told(report)
    assert report.runs >= 3 + 2 * len(STORE_FAULTS)


def test_code_that_makes_its_own_schema_is_explored(server: Server, postgresql: str) -> None:
    """CREATE TABLE IF NOT EXISTS is a state like any other, and so is a schema half made."""

    def makes_tables(url: str, provider: Any) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS runs (id text UNIQUE, n serial)")
            connection.execute("CREATE INDEX IF NOT EXISTS by_n ON runs (n)")
            connection.execute("INSERT INTO runs VALUES ('r') ON CONFLICT DO NOTHING")
        provider.call("refund", {"order": "o1"}, key="o1")

    before = copies(server)
    report = explored(postgresql, makes_tables)
    assert proven(report), told(report)
    assert [boundary.target for boundary in report.boundaries][:2] == [
        "postgresql CREATE TABLE runs",
        "postgresql CREATE INDEX by_n",
    ]
    with psycopg.connect(postgresql) as connection:
        assert connection.execute("SELECT to_regclass('runs')").fetchone() == (None,)
    assert copies(server) == before


def test_the_named_database_is_never_touched_and_its_copies_are_gone(server: Server, postgresql: str) -> None:
    """Also when the body raises in its first life, and when nobody explores."""

    def fails(url: str, provider: Any) -> None:
        with psycopg.connect(url) as connection:
            connection.execute("INSERT INTO jobs (task, state) VALUES ('t1', 'new')")
            connection.commit()
        raise RuntimeError("a bug")

    before = copies(server)
    assert "a bug" in told(explored(postgresql, fails))
    assert copies(server) == before
    with psycopg.connect(postgresql) as connection:
        assert connection.execute("SELECT count(*) FROM jobs").fetchone() == (0,)


def test_writing_to_the_named_database_instead_of_the_copy_is_reported(postgresql: str) -> None:
    """The address that track returns is easily forgotten."""

    def forgets(_: str, provider: Any) -> None:
        outboxes.act_then_mark(postgresql, provider)

    report = explored(postgresql, forgets)
    assert report.verdict is Verdict.ESCAPED_EFFECT
    assert "use the URL it returns" in report.problem


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("postgresql://127.0.0.1:1/test", "Start the server, or correct the URL"),
        ("postgresql://127.0.0.1:1/", "names no database"),
        ("redis://127.0.0.1:1/3", "Start it, or correct the URL"),
        ("redis://127.0.0.1:1/three", "write redis://host:6379/9"),
        ("mysql://127.0.0.1/test", "Built in are postgresql:// and redis://"),
    ],
)
def test_a_target_that_cannot_be_tracked_says_what_to_do(target: str, said: str) -> None:
    """In the report, whatever kind of mistake it is."""
    assert said in told(explore(lambda once: once.track(target)))


# Redis


def test_a_claim_before_the_act_loses_it(redis_url: str) -> None:
    """SET NX, then act: a crash between the two leaves a claim that nobody fulfils."""

    def body(once: Once) -> None:
        with redis.Redis.from_url(once.track(redis_url)) as client:
            if client.set("refunded:o1", "1", nx=True, ex=3600):
                assert careless(once).call("refund", {"order": "o1"}).status == 200

    report = explore(body, soft_faults=0)
    assert verdicts(report) == {"OMISSION"}
    assert report.coverage == "exhausted"


def test_a_claim_that_the_next_life_waits_for_is_stuck(redis_url: str) -> None:
    """The same, where the code refuses to say that it is done while somebody seems to be at it."""

    def body(once: Once) -> None:
        with redis.Redis.from_url(once.track(redis_url)) as client:
            if client.get("done:o1"):
                return
            if not client.set("lock:o1", "1", nx=True):
                raise RuntimeError("somebody else is at it")
            assert careless(once).call("refund", {"order": "o1"}).status == 200
            client.set("done:o1", "1")

    assert verdicts(explore(body, soft_faults=0)) == {"STUCK"}


def test_a_mark_after_the_act_repeats_it(redis_url: str) -> None:
    """And a provider that knows keys makes it right."""

    def body(once: Once, contract: str) -> None:
        with redis.Redis.from_url(once.track(redis_url)) as client:
            if not client.exists("refunded:o1"):
                assert once.provider("pay", contract=contract).call("refund", {"order": "o1"}, key="o1").status == 200
                client.set("refunded:o1", "1", ex=3600)

    assert verdicts(explore(lambda once: body(once, "none"), soft_faults=0)) == {"DUPLICATE"}
    report = explore(lambda once: body(once, "client_key"), soft_faults=1, faults=(LOST_RESPONSE, RESET_RESPONSE))
    assert proven(report), told(report)
    assert [boundary.target for boundary in report.boundaries] == ["pay refund", "redis SET refunded:o1"]


def test_async_code_on_redis_is_explored(redis_url: str) -> None:
    """A queue: moved to a list of its own before it is worked on, removed afterwards."""

    async def body(once: Once) -> None:
        client: Any = redis.asyncio.Redis.from_url(once.track(redis_url))
        try:
            if await client.set("queued", 1, nx=True):
                await client.rpush("queue", "o1")
            while (job := await client.lmove("queue", "working", "LEFT", "RIGHT")) or await client.llen("working"):
                for job in await client.lrange("working", 0, -1):
                    assert careful(once).call("refund", {"order": job.decode()}, key=job.decode()).status == 200
                    await client.lrem("working", 0, job)
        finally:
            await client.aclose()

    report = explore(body, soft_faults=0)
    # Between SET and RPUSH a crash loses the order: two commands are two steps.
    assert verdicts(report) == {"OMISSION"}


def test_a_redis_database_that_holds_keys_is_refused(redis_url: str, number: str) -> None:
    """It may be somebody's; exploring would empty it."""
    with redis.Redis.from_url(number) as client:
        client.set("mine", "1")
        report = explore(lambda once: once.track(number))
        assert "holds 1 keys, and exploring would destroy them" in told(report)
        assert client.get("mine") == b"1"


def test_a_redis_database_is_empty_afterwards(redis_url: str) -> None:
    """Whatever the last life left in it."""
    mine = f"address-of-{os.getpid()}"

    def body(once: Once) -> None:
        with redis.Redis.from_url(once.track(redis_url)) as client:
            client.set(mine, "1")
        assert careful(once).call("refund", {"order": "o1"}, key="o1").status == 200

    assert proven(explore(body, soft_faults=0))
    for number in range(1, 16):
        with redis.Redis.from_url(f"{redis_url}/{number}") as client:
            assert not client.exists(mine)


def test_two_explorations_use_two_redis_databases(redis_url: str, number: str) -> None:
    """Where the URL names no number, one that nobody uses is taken."""
    other = RedisStore(redis_url)
    try:
        assert other.address != number
        with pytest.raises(StoreError, match="another exploration uses database"):
            RedisStore(other.address)
    finally:
        other.close()
