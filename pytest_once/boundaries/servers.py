"""Which databases on servers belong to the world, and which of them a connection is to."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

_LOCAL = frozenset({"", "localhost", "127.0.0.1", "::1"})
_PORTS = {"postgresql": 5432, "redis": 6379}
_KINDS = {"postgresql": "postgresql", "postgres": "postgresql", "redis": "redis", "rediss": "redis"}


@dataclass(frozen=True, slots=True)
class Server:
    """A database on a server. kind: "postgresql" or "redis". host: "" for this machine."""

    kind: str
    host: str
    port: int
    database: str


_tracked: list[Server] = []


def track(address: str) -> None:
    """Let the seams know that the database at this URL belongs to the world."""
    url = urlsplit(address)
    kind = _KINDS.get(url.scheme.partition("+")[0])
    if kind is None:
        return
    database = unquote(url.path.strip("/")) or ("0" if kind == "redis" else "")
    server = Server(kind, _host(url.hostname or ""), url.port or _PORTS[kind], database)
    if server not in _tracked:
        _tracked.append(server)


def sockets(address: str) -> list[tuple[str, int]]:
    """Where connections to the database at this URL go: (numeric host or "localhost", port); none if it is unknown."""
    url = urlsplit(address)
    kind = _KINDS.get(url.scheme.partition("+")[0])
    if kind is None:
        return []
    port = url.port or _PORTS[kind]
    if not _host(url.hostname or ""):
        return [("localhost", port)]
    try:
        found = socket.getaddrinfo(url.hostname, port, type=socket.SOCK_STREAM)
    except OSError:
        return []  # nobody will connect to a name that nobody knows
    return [(str(where[0]), port) for *_, where in found]


def is_tracked_postgresql(database: str) -> bool:
    """Whether a database is one of the copies made for exploring; no two of them have the same name."""
    return any(server.kind == "postgresql" and server.database == database for server in _tracked)


def is_tracked_redis(host: str, port: int, database: int) -> bool:
    """Whether a numbered database of a Redis server belongs to the world."""
    return Server("redis", _host(host), port, str(database)) in _tracked


def forget() -> None:
    """Drop all that was tracked."""
    _tracked.clear()


def _host(name: str) -> str:
    return "" if name in _LOCAL else name.lower()
