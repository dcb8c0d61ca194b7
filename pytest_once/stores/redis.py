"""A numbered Redis database as a store: every key with its value, and whether it expires.

Redis cannot be copied, so the database must be one that nobody needs: an empty one, which is emptied again afterwards.
How much of a key's life is left is real time and no state; that it ends is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from pytest_once.canonical import Row
from pytest_once.scanning import Cell
from pytest_once.stores import Exchanged, Ignored, Other, StoreError
from pytest_once.stores.instants import ServerClock

MOST_KEYS = 10_000
"""More keys than this would make every step of a search slow; a test needs few."""

PATIENCE_S = 10.0
"""Seconds within which the server must answer."""

_LONGEST_S = 86400.0
_DEFAULT_DATABASES = 16

_Value = tuple[tuple[bytes, ...], ...]


@dataclass(frozen=True, slots=True)
class Key:
    """One key. value: its content as rows of cells, sorted where Redis keeps no order. dump: what RESTORE takes.

    left_ms: what is left of its life, 0 if it does not end; no part of what the key is.
    """

    name: bytes
    kind: str
    value: _Value
    expires: bool
    dump: bytes
    left_ms: int


@dataclass(frozen=True, slots=True)
class RedisSnapshot:
    """keys: sorted by name."""

    keys: tuple[Key, ...]
    key: bytes


class RedisStore:
    """An empty database of a Redis server, for as long as an exploration lasts.

    address: its URL. One that names no number gets the number of a database that is empty and used by nobody.
    """

    def __init__(self, target: str) -> None:
        """target: redis://host:6379/9. Raises StoreError if there is no such server, or the database holds keys."""
        self._redis = _driver()
        self._url = urlsplit(target)
        number = self._url.path.strip("/")
        if number and not number.isdecimal():
            raise StoreError(f"{target!r} names no Redis database; write redis://host:6379/9")
        self.name = f"redis/{int(number)}" if number else "redis"
        try:
            self._number = int(number) if number else self._free()
            self.address = urlunsplit(self._url._replace(path=f"/{self._number}"))
            self._client = self._connect(self._number)
            self._claim()
            now_s = float(self._client.time()[0])
        except self._redis.RedisError as error:
            raise StoreError(
                f"the Redis server at {self._where} cannot be used: {error}. Start it, or correct the URL"
            ) from error
        self._clock = ServerClock(now_s, now_s + _LONGEST_S)

    @property
    def _where(self) -> str:
        return f"{self._url.hostname or 'localhost'}:{self._url.port or 6379}"

    def _connect(self, number: int) -> Any:
        url = urlunsplit(self._url._replace(scheme=self._url.scheme.partition("+")[0], path=f"/{number}"))
        # Not typed: what the annotations of this library say differs from version to version.
        client: Any = self._redis.Redis.from_url(url, single_connection_client=True, socket_timeout=PATIENCE_S)
        return client

    def _free(self) -> int:
        """The highest number of a database that is empty and that no client has selected."""
        client = self._connect(0)
        try:
            configured = client.config_get("databases").get("databases")
            used = {int(entry["db"]) for entry in client.client_list()}
            for number in reversed(range(1, int(configured or _DEFAULT_DATABASES))):
                if number not in used and f"db{number}" not in client.info("keyspace"):
                    return number
        finally:
            client.close()
        raise StoreError(
            f"every numbered database of the Redis server at {self._where} is in use or holds keys, and a test must "
            "not empty what somebody may need. Start a server for tests, or empty one: redis-cli -n 9 FLUSHDB"
        )

    def _claim(self) -> None:
        """Make sure that the database is empty and that no other exploration uses it."""
        keys = self._client.dbsize()
        if keys:
            self._client.close()
            raise StoreError(
                f"database {self._number} of the Redis server at {self._where} holds {keys} keys, and exploring would "
                "destroy them. Name one that is empty (redis://127.0.0.1:6379/9), or no number at all: then one that "
                f"is empty is used. If a killed run has left them: redis-cli -n {self._number} FLUSHDB"
            )
        mark = f"pytest-once-{self._number}"
        self._client.client_setname(mark)
        own = self._client.client_id()
        others = [int(entry["id"]) for entry in self._client.client_list() if entry["name"] == mark]
        if any(other < own for other in others):
            self._client.close()
            raise StoreError(
                f"another exploration uses database {self._number} of the Redis server at {self._where}. Leave the "
                "number out of the URL (tests that run at the same time then use different ones), or make it depend on "
                "the worker: PYTEST_XDIST_WORKER"
            )

    def close(self) -> None:
        """Empty the database."""
        try:
            self._client.flushdb()
        except self._redis.RedisError:
            return  # a server that is gone keeps nothing of ours, or names it the next time
        finally:
            self._client.close()

    # -- pictures ------------------------------------------------------------------------------------

    def snapshot(self) -> RedisSnapshot:
        """Raises StoreError."""
        try:
            keys = tuple(self._read())
        except self._redis.RedisError as error:
            raise StoreError(f"Redis at {self._where} cannot be read ({error}); is it still running?") from error
        content = repr([(key.name, key.kind, key.value, key.expires) for key in keys])
        return RedisSnapshot(keys, hashlib.blake2b(content.encode(), digest_size=16).digest())

    def _read(self) -> Iterator[Key]:
        names = sorted(set(self._client.scan_iter(count=1000)))
        if len(names) > MOST_KEYS:
            raise StoreError(
                f"database {self._number} has more than {MOST_KEYS} keys, and a picture of it is taken at every "
                "boundary; let the test use fewer"
            )
        for name, kind, dump, left_ms in zip(names, *self._asked(names, "type", "dump", "pttl"), strict=True):
            if dump is not None:  # it may have expired since
                kind = kind.decode()
                yield Key(name, kind, self._value(name, kind, dump), left_ms >= 0, dump, max(left_ms, 0))

    def _asked(self, names: list[bytes], *questions: str) -> list[list[Any]]:
        pipeline = self._client.pipeline(transaction=False)
        for question in questions:
            for name in names:
                getattr(pipeline, question)(name)
        answers = pipeline.execute()
        return [answers[start : start + len(names)] for start in range(0, len(answers), len(names) or 1)] or [
            [] for _ in questions
        ]

    def _value(self, name: bytes, kind: str, dump: bytes) -> _Value:
        command = self._client.execute_command
        if kind == "string":
            return ((command("GET", name),),)
        if kind == "list":
            return tuple((item,) for item in command("LRANGE", name, 0, -1))
        if kind == "set":
            return tuple((item,) for item in sorted(command("SMEMBERS", name)))
        if kind == "hash":
            return tuple(sorted(self._client.hgetall(name).items()))
        if kind == "zset":
            return tuple(
                (member, repr(score).encode()) for member, score in self._client.zrange(name, 0, -1, withscores=True)
            )
        if kind == "stream":
            entries = [
                (entry, *(part for pair in sorted(fields.items()) for part in pair))
                for entry, fields in self._client.xrange(name)
            ]
            # Who has read how far is in the dump only.
            groups = [(dump[:-10],)] if self._client.xinfo_groups(name) else []
            return (*entries, *groups)
        return ((dump[:-10],),)  # without version and checksum

    def rows(self, snapshot: RedisSnapshot) -> list[Row]:
        """A row for each value of each key."""
        return self._clock.ordered(self._rows(snapshot))

    def _place(self, key: Key) -> str:
        return f"{self.name}/{key.name.decode('utf-8', 'backslashreplace')}"

    def _rows(self, snapshot: RedisSnapshot) -> Iterator[Row]:
        for key in snapshot.keys:
            place = self._place(key)
            expires = "expires" if key.expires else None
            in_order = key.kind in ("string", "list", "zset", "stream")
            for value in key.value:
                names = ("kind", "expires", *(_COLUMNS.get(key.kind, ()) or map(str, range(len(value)))))
                yield Row(place, names, (key.kind, expires, *map(_cell, value)), in_order)

    def exchanged(self, snapshot: RedisSnapshot, ignored: Ignored, other: Other) -> Exchanged:
        """The picture with other strings, items and values of hashes where they are ignored. Raises StoreError."""
        changed: list[str] = []
        left: list[str] = []
        wanted = [
            (key, place, column)
            for key in snapshot.keys
            for place in [self._place(key)]
            for column in _COLUMNS.get(key.kind, ("0",))
            if ignored(place, column)
        ]
        if not wanted:
            return Exchanged(snapshot, ())
        self.restore(snapshot)
        try:
            for key, place, column in wanted:
                match key.kind, column:
                    case "string", _:
                        self._client.set(key.name, _other(key.value[0][0], other), keepttl=True)
                    case "hash", "value":
                        for name, value in key.value:
                            self._client.hset(key.name, name, _other(value, other))
                    case "list", _:
                        for number, (item,) in enumerate(key.value):
                            self._client.lset(key.name, number, _other(item, other))
                    case _:
                        left.append(f"{place}.{column} (a {key.kind}'s)")
                        continue
                changed.append(f"{place}.{column}")
        except self._redis.RedisError as error:
            raise StoreError(f"the values of Redis at {self._where} cannot be exchanged: {error}") from error
        return Exchanged(self.snapshot(), tuple(changed), tuple(left))

    # -- putting back --------------------------------------------------------------------------------

    def restore(self, snapshot: RedisSnapshot) -> None:
        """Make the database what the picture shows, once all other clients have left it. Raises StoreError."""
        try:
            self._end_clients()
            # Not even an equal one is left alone: its keys have grown older.
            pipeline = self._client.pipeline(transaction=True)
            pipeline.flushdb()
            for key in snapshot.keys:
                pipeline.restore(key.name, key.left_ms, key.dump)
            pipeline.execute()
        except self._redis.RedisError as error:
            raise StoreError(f"Redis at {self._where} cannot be put back: {error}") from error

    def _end_clients(self) -> None:
        """Disconnect who else is here: a dead process's blocking read would take what is put back."""
        own = self._client.client_id()
        for client in self._client.client_list():
            if client["db"] == str(self._number) and int(client["id"]) != own:
                self._client.client_kill_filter(_id=client["id"])


_COLUMNS = {
    "string": ("value",),
    "list": ("item",),
    "set": ("member",),
    "hash": ("field", "value"),
    "zset": ("member", "score"),
}


def _cell(value: bytes) -> Cell:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return value
    return int(text) if re.fullmatch(r"-?[1-9]\d{0,17}|0", text) else text


def _other(value: bytes, other: Other) -> bytes:
    exchanged = other(_cell(value))
    return exchanged if isinstance(exchanged, bytes) else str(exchanged).encode()


def _driver() -> Any:
    try:
        import redis
    except ImportError as error:
        raise StoreError("tracking a Redis database needs redis: pip install 'pytest-once-chaos[redis]'") from error
    return redis
