"""The redis-py seam: every attempt to send commands that write is announced, also those the client repeats by itself.

Hooked where a connection sends packed commands and reads answers, sync and async. What is sent in one piece is one
boundary: a command, or a pipeline, with or without MULTI. PUBLISH is no part of the world. A client from before the
incarnation is harmless: its pool opens new connections in another process.

Not seen: that a connection selects another database (SELECT) than it was made for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pytest_once import clock
from pytest_once.boundaries import announce
from pytest_once.boundaries.seam import Wiring
from pytest_once.boundaries.servers import is_tracked_redis
from pytest_once.faults import LOST_REQUEST, LOST_RESPONSE, REFUSED, RESET_RESPONSE
from pytest_once.site import call_site

FAULTS = (REFUSED, LOST_REQUEST, LOST_RESPONSE, RESET_RESPONSE)

_READING_WORDS = """
ACL AUTH BGREWRITEAOF BGSAVE BITCOUNT BITFIELD_RO BITPOS CLIENT CLUSTER COMMAND CONFIG DBSIZE DEBUG DISCARD DUMP
ECHO EVALSHA_RO EVAL_RO EXISTS EXPIRETIME FCALL_RO GEODIST GEOHASH GEOPOS GEORADIUSBYMEMBER_RO GEORADIUS_RO
GEOSEARCH GET GETBIT GETRANGE HELLO HEXISTS HGET HGETALL HKEYS HLEN HMGET HRANDFIELD HSCAN HSTRLEN HVALS INFO
KEYS LASTSAVE LATENCY LCS LINDEX LLEN LOLWUT LPOS LRANGE MEMORY MGET MODULE MONITOR MULTI OBJECT PEXPIRETIME
PFCOUNT PING PSUBSCRIBE PTTL PUBLISH PUBSUB PUNSUBSCRIBE QUIT RANDOMKEY READONLY READWRITE RESET ROLE SCAN SCARD
SCRIPT SDIFF SELECT SINTER SINTERCARD SISMEMBER SLOWLOG SMEMBERS SMISMEMBER SORT_RO SPUBLISH SRANDMEMBER SSCAN
SSUBSCRIBE STRLEN SUBSCRIBE SUBSTR SUNION SUNSUBSCRIBE TIME TOUCH TTL TYPE UNSUBSCRIBE UNWATCH WAIT WAITAOF
WATCH XINFO XLEN XPENDING XRANGE XREAD XREVRANGE ZCARD ZCOUNT ZDIFF ZINTER ZINTERCARD ZLEXCOUNT ZMSCORE
ZRANDMEMBER ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZRANK ZREVRANGE ZREVRANGEBYLEX ZREVRANGEBYSCORE ZREVRANK ZSCAN
ZSCORE ZUNION
"""
_READING = frozenset(_READING_WORDS.split())
"""Commands that change no key. Any other one is taken to write: a boundary too many costs little."""

_KEYLESS = frozenset({"EXEC", "FLUSHALL", "FLUSHDB", "SWAPDB"})
_SCRIPTS = frozenset({"EVAL", "EVALSHA", "FCALL"})


class RedisSeam:
    """See the module."""

    name = "redis"
    library = "redis"

    def originals(self) -> tuple[object, ...]:
        """Nothing: methods are replaced in their classes, where everybody looks for them."""
        return ()

    def install(self, wiring: Wiring) -> None:
        import redis.asyncio.connection
        import redis.connection

        hooks = _Hooks(wiring, redis.exceptions)
        hooks.sync(redis.connection.AbstractConnection)
        hooks.asynchronous(redis.asyncio.connection.AbstractConnection)


@dataclass(slots=True)
class _Lost:
    """Answers that will not come. fault: why. unread: how many are on their way and are thrown away first."""

    fault: str
    unread: int


def parsed(packed: bytes | str | Iterable[bytes]) -> list[list[bytes]]:
    """The commands in what a connection is given to send, each with its arguments. Inline commands are left out."""
    data = packed.encode() if isinstance(packed, str) else packed if isinstance(packed, bytes) else b"".join(packed)
    commands: list[list[bytes]] = []
    at = 0
    while data[at : at + 1] == b"*":
        end = data.index(b"\r\n", at)
        count, at = int(data[at + 1 : end]), end + 2
        command: list[bytes] = []
        for _ in range(count):
            end = data.index(b"\r\n", at)
            length, at = int(data[at + 1 : end]), end + 2
            command.append(data[at : at + length])
            at += length + 2
        commands.append(command)
    return commands


def told(command: list[bytes]) -> str:
    """A command for a person, by name and key, without its values."""
    name = command[0].decode("ascii", "replace").upper()
    rest = command[1:]
    if name in _SCRIPTS:
        count = int(rest[1]) if len(rest) > 1 and rest[1].isdigit() else 0
        rest = rest[2 : 2 + count]
        return " ".join((name, *(key.decode("utf-8", "replace") for key in rest)))
    if name in _KEYLESS or not rest:
        return name
    key = rest[1] if name == "XGROUP" and len(rest) > 1 else rest[0]
    return f"{name} {key.decode('utf-8', 'replace')}"


class _Hooks:
    """Replaces methods of the connection classes. errors: the library's exceptions."""

    def __init__(self, wiring: Wiring, errors: Any) -> None:
        self._wiring = wiring
        self._errors = errors

    def _ordered(self, connection: Any, packed: Any) -> tuple[str | None, int]:
        """Announce what is about to be sent, if it writes; (fault, number of commands)."""
        commands = parsed(packed)
        writing = [command for command in commands if command[0].decode("ascii", "replace").upper() not in _READING]
        shown = [told(command) for command in writing if command[0].upper() != b"EXEC"]
        if not shown:
            return None, len(commands)
        together = "MULTI" if commands[0][0] == b"MULTI" else "pipeline"
        what = shown[0] if len(shown) == 1 else f"{together} ({', '.join(shown)})"
        host, port = getattr(connection, "host", ""), getattr(connection, "port", 0)
        if not is_tracked_redis(str(host), int(port), int(connection.db or 0)):
            self._wiring.outside(what, f"redis:{host}:{port}/{connection.db or 0}", call_site())
        return announce("redis", f"redis {what}", faults=FAULTS).fault, len(commands)

    def _error(self, connection: Any, fault: str) -> Exception:
        where = f"{getattr(connection, 'host', 'the server')}:{getattr(connection, 'port', '')}"
        error: Exception
        if fault == REFUSED:
            error = self._errors.ConnectionError(f"Error 111 connecting to {where}. Connection refused.")
        elif fault == RESET_RESPONSE:
            error = self._errors.ConnectionError("Connection closed by server.")
        else:
            error = self._errors.TimeoutError(f"Timeout reading from {where}")
        return error

    def sync(self, connection_class: Any) -> None:
        send, read = connection_class.send_packed_command, connection_class.read_response
        hooks = self

        def send_packed_command(connection: Any, command: Any, *arguments: Any, **named: Any) -> None:
            # The packer may give an iterator, and it is needed twice.
            command = command if isinstance(command, (bytes, str)) else list(command)
            fault, count = hooks._ordered(connection, command)
            connection._once_lost = None
            if fault == REFUSED:
                connection.disconnect()
                raise hooks._error(connection, fault)
            if fault != LOST_REQUEST:
                send(connection, command, *arguments, **named)
            if fault is not None:
                connection._once_lost = _Lost(fault, 0 if fault == LOST_REQUEST else count)

        def read_response(connection: Any, *arguments: Any, **named: Any) -> Any:
            lost: _Lost | None = getattr(connection, "_once_lost", None)
            if lost is None:
                return read(connection, *arguments, **named)
            connection._once_lost = None
            for _ in range(lost.unread):
                # The server has acted once it has answered; also an error is an answer that is lost.
                try:
                    read(connection, disconnect_on_error=False)
                except hooks._errors.ResponseError:
                    continue
            connection.disconnect()
            raise hooks._error(connection, lost.fault)

        connection_class.send_packed_command = send_packed_command
        connection_class.read_response = read_response

    def asynchronous(self, connection_class: Any) -> None:
        send, read = connection_class.send_packed_command, connection_class.read_response
        hooks = self

        async def send_packed_command(connection: Any, command: Any, *arguments: Any, **named: Any) -> None:
            command = command if isinstance(command, (bytes, str)) else list(command)
            fault, count = hooks._ordered(connection, command)
            connection._once_lost = None
            if fault == REFUSED:
                await connection.disconnect(nowait=True)
                raise hooks._error(connection, fault)
            if fault != LOST_REQUEST:
                with clock.held():
                    await send(connection, command, *arguments, **named)
            if fault is not None:
                connection._once_lost = _Lost(fault, 0 if fault == LOST_REQUEST else count)

        async def read_response(connection: Any, *arguments: Any, **named: Any) -> Any:
            # What is waited for is real: other coroutines' virtual sleeps must not run on meanwhile.
            with clock.held():
                lost: _Lost | None = getattr(connection, "_once_lost", None)
                if lost is None:
                    return await read(connection, *arguments, **named)
                connection._once_lost = None
                for _ in range(lost.unread):
                    try:
                        await read(connection, disconnect_on_error=False)
                    except hooks._errors.ResponseError:
                        continue
                await connection.disconnect(nowait=True)
                raise hooks._error(connection, lost.fault)

        connection_class.send_packed_command = send_packed_command
        connection_class.read_response = read_response


REDIS = RedisSeam()
