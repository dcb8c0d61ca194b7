"""Kill the process at the other end of a loopback connection, whatever language it is written in.

Linux only: /proc/net/tcp names the socket of an address, /proc/PID/fd who holds it. Other systems have no such files;
on macOS the same would need libproc.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

Address = tuple[str, int]

_PROC = Path("/proc")


class CannotKill(Exception):
    """Nobody was killed; the message says why."""


def kill_caller(caller: Address, server: Address) -> list[int]:
    """SIGKILL who holds the caller's end of the connection between two IPv4 addresses; returns the process ids.

    They are several if the caller was forked with its connection. Spared are this process, its ancestors and other
    users' processes. Raises CannotKill if nobody else holds the connection.
    """
    owners = owners_of(caller, server)
    ancestry = set(_ancestry())
    killed = [pid for pid in owners if pid not in ancestry and _kill(pid)]
    if killed:
        return killed
    if owners:
        raise CannotKill(
            f"the caller is process {owners[0]}, which started this server or is the server, and killing it would end"
            " the test itself; let a process of its own make the request"
        )
    raise CannotKill(
        f"no process of this user holds the connection from {caller[0]}:{caller[1]}: the caller has left, is another"
        " user's, or lives in a container of its own"
    )


def owners_of(caller: Address, server: Address) -> list[int]:
    """The processes of this user that hold the caller's end of the connection, by id.

    Raises CannotKill where there is no /proc to look at.
    """
    if not (_PROC / "self/net/tcp").exists():
        raise CannotKill("finding the caller of a connection needs Linux's /proc, and this system has none")
    inode = _inode(caller, server)
    if inode is None:
        return []
    return sorted(pid for pid in _own_processes() if f"socket:[{inode}]" in _open_files(pid))


def _inode(caller: Address, server: Address) -> str | None:
    """The number of the socket whose own end is `caller` and whose other end is `server`."""
    # A client may reach 127.0.0.1 by an IPv6 socket, as ::ffff:127.0.0.1.
    for table, prefix in (("tcp", b""), ("tcp6", bytes(10) + b"\xff\xff")):
        ends = [_as_listed(prefix, caller), _as_listed(prefix, server)]
        try:
            lines = (_PROC / "self/net" / table).read_text().splitlines()
        except FileNotFoundError:  # no IPv6 here
            continue
        for line in lines:
            columns = line.split()
            if columns[1:3] == ends:
                return columns[9]
    return None


def _as_listed(prefix: bytes, address: Address) -> str:
    """An address as the kernel lists it: 32-bit words in the machine's own byte order."""
    packed = prefix + socket.inet_aton(address[0])
    words = (int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4))
    return "".join(f"{word:08X}" for word in words) + f":{address[1]:04X}"


def _own_processes() -> Iterator[int]:
    for name in os.listdir(_PROC):
        if name.isdecimal():
            try:
                if os.stat(_PROC / name).st_uid == os.geteuid():
                    yield int(name)
            except FileNotFoundError:  # it has ended meanwhile
                continue


def _open_files(pid: int) -> set[str]:
    found = set()
    try:
        for name in os.listdir(_PROC / str(pid) / "fd"):
            try:
                found.add(os.readlink(_PROC / str(pid) / "fd" / name))
            except FileNotFoundError:
                continue
    except (FileNotFoundError, PermissionError, ProcessLookupError):  # ended meanwhile, or not ours to look at
        pass
    return found


def _ancestry() -> Iterator[int]:
    """This process, its parent, and so on."""
    pid = os.getpid()
    while pid > 0:
        yield pid
        try:
            # The name, in parentheses, may hold anything.
            pid = int((_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, PermissionError):
            return


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
