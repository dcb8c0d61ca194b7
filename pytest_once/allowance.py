"""What a test allows its body to do outside the world, target by target: `allow=("file:/var/log/app*.log",)`."""

from __future__ import annotations

import fnmatch
import ipaddress
import os
import socket
from collections.abc import Collection
from dataclasses import dataclass

EXAMPLES = {
    "file": "file:/var/log/app*.log",
    "http": "http:api.example.com/*",
    "process": "process:git",
    "socket": "socket:127.0.0.1:9200",
}
"""Kind of target -> how one is written."""


class AllowanceError(ValueError):
    """An allowance that names nothing; the message shows how one is written."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """One target that may be touched although no crash is tried around it.

    pattern: as `fnmatch` reads it. A file's is absolute; a socket's is "host:port" or a path; a process's is its
    program or its whole command line; that of http is an address with or without scheme, or a host.
    """

    kind: str
    pattern: str

    @classmethod
    def parse(cls, text: str) -> Allowance:
        """Raises AllowanceError."""
        kind, colon, pattern = text.partition(":")
        if kind not in EXAMPLES or not colon or not pattern.strip("* "):
            raise AllowanceError(
                f"{text!r} names no target; write its kind, a colon and a pattern, such as "
                f"{', '.join(map(repr, EXAMPLES.values()))}"
            )
        if kind == "http":
            pattern = pattern.partition("://")[2] or pattern
        elif kind == "file":
            pattern = os.path.expanduser(pattern)
            if not pattern.startswith("*"):
                pattern = os.path.abspath(pattern)
        return cls(kind, pattern)

    def matches(self, kind: str, names: Collection[str]) -> bool:
        """Whether a target is meant. names: all the ways in which it may be called."""
        if kind != self.kind:
            return False
        if any(fnmatch.fnmatchcase(name, self.pattern) for name in names):
            return True
        return kind == "socket" and not set("*?[") & set(self.pattern) and not _resolved(self.pattern).isdisjoint(names)


def request_names(url: str) -> tuple[str, ...]:
    """How the target of a request may be called: its address without the scheme and the query, with it, its host."""
    address = url.partition("://")[2] or url
    return address.partition("?")[0], address, address.partition("/")[0]


def address_name(host: str, port: int) -> str:
    """How a socket's address is written: "127.0.0.1:80", "[::1]:80"."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _resolved(name: str) -> frozenset[str]:
    """The addresses that "host:port" stands for, in the form of `address_name`; none for a path or an address."""
    host, _, port = name.rpartition(":")
    if not host or not port.isdigit() or _is_address(host.strip("[]")):
        return frozenset()
    try:
        found = socket.getaddrinfo(host, int(port))
    except OSError:
        return frozenset()  # an unknown name is nobody's address
    return frozenset(address_name(str(address[0]), int(port)) for *_, address in found)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
