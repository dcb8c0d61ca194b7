"""Every attempt of redis-py to send what writes is announced, and can fail on either side of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from pytest_once.boundaries import servers
from pytest_once.boundaries.redis import FAULTS, REDIS, parsed, told
from pytest_once.boundaries.seam import Wiring
from pytest_once.faults import KINDS, LOST_REQUEST, LOST_RESPONSE, REFUSED, RESET_RESPONSE
from tests.boundaries.recording import Recording, recorded

ERRORS = {
    REFUSED: "ConnectionError: Error 111 connecting to",
    LOST_REQUEST: "TimeoutError: Timeout reading from",
    LOST_RESPONSE: "TimeoutError: Timeout reading from",
    RESET_RESPONSE: "ConnectionError: Connection closed by server.",
}


def watched(url: str, body: Callable[[], Any], fault: str | None = None, tracked: bool = True) -> Recording:
    """Run a body with the seam; what is seen at each announcement is the number n."""
    with redis.Redis.from_url(url) as observer:

        def n() -> int:
            return int(observer.get("n") or 0)

        def install() -> None:
            if tracked:
                servers.track(url)
            REDIS.install(Wiring([], [], outside, lambda *_: None, lambda *_: None))

        def outside(what: str, target: str, site: object) -> None:
            raise RuntimeError(f"{what} would change {target}")

        recording = recorded(body, install=install, look=n, fault=fault)
        recording.result = (recording.result, n())
    return recording


def sync(url: str, act: Callable[[Any], Any], retries: int = 0) -> Callable[[], Any]:
    def body() -> Any:
        named: dict[str, Any] = {"retry_on_error": [redis.ConnectionError]} if retries else {}
        with redis.Redis.from_url(url, retry=Retry(NoBackoff(), retries), **named) as client:
            return act(client)

    return body


def asynchronous(url: str, act: Callable[[Any], Any]) -> Callable[[], Any]:
    async def live() -> Any:
        client = redis.asyncio.Redis.from_url(url, retry=AsyncRetry(NoBackoff(), 0))
        try:
            return await act(client)
        finally:
            await client.aclose()

    return lambda: asyncio.run(live())


def test_what_writes_is_announced_with_its_key_and_what_reads_is_not(number: str) -> None:
    """Values stay out of the text: they may be long, secret or random."""

    def acts(client: Any) -> None:
        client.set("claimed:o1", "secret", nx=True, ex=60)
        client.get("claimed:o1")
        client.incr("n")
        client.hset("h", mapping={"a": 1})
        client.eval("return redis.call('INCR', KEYS[1])", 1, "n", "arg")

    recording = watched(number, sync(number, acts))
    assert recording.error is None
    assert recording.seen() == [
        ("redis SET claimed:o1", 0),
        ("redis INCRBY n", 0),
        ("redis HSET h", 1),
        ("redis EVAL n", 1),
    ]
    assert recording.passed[0].faults == list(FAULTS)
    assert recording.passed[1].line == 'client.incr("n")'


def test_what_is_sent_in_one_piece_is_one_boundary(number: str) -> None:
    """The server carries out all of a MULTI, and all of a pipeline that has reached it."""

    def acts(client: Any) -> None:
        with client.pipeline(transaction=True) as pipeline:
            pipeline.watch("n")
            pipeline.multi()
            pipeline.incr("n").get("n").set("seen", 1).execute()
        with client.pipeline(transaction=False) as pipeline:
            pipeline.incr("n").incr("n").execute()

    recording = watched(number, sync(number, acts))
    assert recording.error is None
    assert recording.seen() == [("redis MULTI (INCRBY n, SET seen)", 0), ("redis pipeline (INCRBY n, INCRBY n)", 1)]


def test_async_clients_are_watched_too(number: str) -> None:
    """They have connection classes of their own."""

    async def acts(client: Any) -> None:
        await client.incr("n")
        async with client.pipeline(transaction=True) as pipeline:
            await pipeline.incr("n").set("seen", 1).execute()

    recording = watched(number, asynchronous(number, acts))
    assert recording.error is None
    assert recording.seen() == [("redis INCRBY n", 0), ("redis MULTI (INCRBY n, SET seen)", 1)]


def _increments(client: Any) -> Any:
    return client.incr("n")


def _increments_in_a_transaction(client: Any) -> Any:
    return client.pipeline(transaction=True).incr("n").execute()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("act", [_increments, _increments_in_a_transaction])
@pytest.mark.parametrize("run", [sync, asynchronous])
def test_a_fault_does_what_its_name_says(number: str, run: Any, act: Callable[[Any], Any], fault: str) -> None:
    """The caller sees the library's own exceptions; whether the server acted, it cannot tell."""
    recording = watched(number, run(number, act), fault)
    assert len(recording.passed) == 1
    assert str(recording.error).startswith(ERRORS[fault])
    assert recording.result[1] == (1 if KINDS[fault].effect else 0)


@pytest.mark.parametrize("fault", FAULTS)
def test_after_a_fault_the_client_works_on(number: str, fault: str) -> None:
    """A half-read connection in the pool would give the next caller the last one's answer."""

    def goes_on(client: Any) -> Any:
        with pytest.raises((redis.ConnectionError, redis.TimeoutError)):
            client.incr("n")
        client.set("other", "answer")
        return [client.get("other").decode(), int(client.incr("n"))]

    recording = watched(number, sync(number, goes_on), fault)
    assert recording.error is None
    assert recording.result[0] == ["answer", 2 if KINDS[fault].effect else 1]


def test_the_clients_own_retry_is_a_boundary_of_its_own(number: str) -> None:
    """It repeats a command whose answer was lost, and the caller sees a success that counted twice."""
    recording = watched(number, sync(number, _increments, retries=1), RESET_RESPONSE)
    assert recording.error is None
    assert recording.seen() == [("redis INCRBY n", 0), ("redis INCRBY n", 1)]
    assert recording.result == (2, 2)


def test_writing_to_a_database_that_is_not_tracked_is_reported(number: str) -> None:
    """It could be neither pictured nor undone; reading is harmless."""
    assert watched(number, sync(number, lambda client: client.get("n") and None), tracked=False).error is None
    recording = watched(number, sync(number, _increments), tracked=False)
    assert str(recording.error).startswith("RuntimeError: INCRBY n would change redis:127.0.0.1:6379/")
    assert not recording.passed


def test_packed_commands_are_read_whatever_is_in_them() -> None:
    """Keys and values may hold anything, and arrive in any number of pieces."""
    packed = [b"*3\r\n$3\r\nSET\r\n$4\r\na\r\n*\r\n$0\r\n", b"\r\n*1\r\n$4\r\nPING\r\n"]
    assert parsed(packed) == [[b"SET", b"a\r\n*", b""], [b"PING"]]
    assert parsed(b"PING\r\n") == []
    assert told([b"fcall", b"f", b"2", b"k1", b"k2", b"x"]) == "FCALL k1 k2"
    assert told([b"XGROUP", b"CREATE", b"s"]) == "XGROUP s"
    assert told([b"FLUSHDB"]) == "FLUSHDB"
