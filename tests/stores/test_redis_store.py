"""A picture of a Redis database holds every key, and puts back exactly that."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from pytest_once.stores.redis import RedisStore


@pytest.fixture
def store(redis_url: str) -> Iterator[RedisStore]:
    store = RedisStore(redis_url)
    try:
        yield store
    finally:
        store.close()


@pytest.fixture
def client(store: RedisStore) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(store.address) as client:
        yield client


def test_every_kind_of_value_comes_back_as_it_was(store: RedisStore, client: redis.Redis) -> None:
    """Rows show what a client would read, in an order that depends on nothing else."""
    client.set("s", b"\xff\x00")
    client.rpush("l", "b", "a")
    client.sadd("e", "2", "1", "x")
    client.hset("h", mapping={"b": "1", "a": "2"})
    client.zadd("z", {"late": 2.5, "early": 1})
    client.xadd("x", {"k": "v"})
    client.pfadd("p", "one")
    picture, rows = store.snapshot(), store.rows(store.snapshot())
    assert [(row.place, *row.cells[2:]) for row in rows if row.place != "redis/p"] == [
        ("redis/e", 1),
        ("redis/e", 2),
        ("redis/e", "x"),
        ("redis/h", "a", 2),
        ("redis/h", "b", 1),
        ("redis/l", "b"),
        ("redis/l", "a"),
        ("redis/s", b"\xff\x00"),
        ("redis/x", "server time 1-0", "k", "v"),
        ("redis/z", "early", "1.0"),
        ("redis/z", "late", "2.5"),
    ]
    client.flushdb()
    client.set("other", 1)
    store.restore(picture)
    assert store.rows(store.snapshot()) == rows
    assert store.snapshot().key == picture.key


def test_that_a_key_expires_is_state_and_when_is_not(store: RedisStore, client: redis.Redis) -> None:
    """What is left of its life is real time: told apart, no two pictures would be alike."""
    client.set("k", 1, px=100_000)
    one = store.snapshot()
    client.pexpire("k", 50_000)
    two = store.snapshot()
    assert one.key == two.key
    client.persist("k")
    assert store.snapshot().key != one.key
    store.restore(one)
    assert 50_000 < client.pttl("k") <= 100_000


def test_no_picture_is_taken_of_what_too_many_keys_are_in(
    store: RedisStore, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit says so before a search becomes slow."""
    monkeypatch.setattr("pytest_once.stores.redis.MOST_KEYS", 1)
    client.mset({"a": 1, "b": 2})
    with pytest.raises(RuntimeError, match="more than 1 keys"):
        store.snapshot()


def test_a_dead_processs_blocking_read_takes_nothing(store: RedisStore, client: redis.Redis) -> None:
    """The server notices late that a client is gone, and would serve it first."""
    client.rpush("queue", "job")
    picture = store.snapshot()
    client.delete("queue")
    connect: Any = redis.Connection
    left = connect(**client.connection_pool.connection_kwargs)
    left.send_command("BLPOP", "queue", 0)
    deadline = time.monotonic() + 10
    while not any(entry["cmd"] == "blpop" for entry in client.client_list()):
        assert time.monotonic() < deadline, "the server never saw the command"
    store.restore(picture)
    assert store.snapshot().key == picture.key
    left.disconnect()
