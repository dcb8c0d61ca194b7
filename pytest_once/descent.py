"""The processes that a process has started, and theirs: finding them, letting them come to rest, holding them still.

Linux tells (/proc, pidfds). Elsewhere nobody is found, and what is told of all of them holds for none.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

_PR_SET_CHILD_SUBREAPER = 36
_AT_WORK = frozenset("RD")
_STOPPED = frozenset("tTZX")
_ENDED = frozenset("ZX")
_LOOK_AGAIN_S = 0.0005

Find = Callable[[], Iterable[int]]
"""Says which processes are meant, as often as it is asked: meanwhile there may be more."""


def children(pid: int) -> list[int]:
    """The child processes of a process."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as listed:
                found += map(int, listed.read().split())
    return found


def descendants(pid: int) -> list[int]:
    """The child processes of a process, and theirs, whatever group or session they have put themselves in."""
    found: list[int] = []
    waiting = children(pid)
    while waiting:
        one = waiting.pop()
        found.append(one)
        waiting += children(one)
    return found


def adopt_orphans() -> None:
    """From now on, descendants whose own parent ends become children of this process, so that they are still found."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def come_to_rest(find: Find, timeout_s: float) -> bool:
    """Wait until no thread of these processes is at work: each waits for something. False if that does not happen."""
    looks = 0

    def rests() -> bool:
        nonlocal looks
        looks = 0 if any(_states(pid) & _AT_WORK for pid in find()) else looks + 1
        return looks == 2  # twice, for one that has just handed its work to another

    return _comes_true(rests, timeout_s)


@contextmanager
def held_still(find: Find, timeout_s: float) -> Iterator[None]:
    """Stop these processes meanwhile (SIGSTOP), so that they change nothing.

    One that the kernel does not let stop within timeout_s will, before it does anything more.
    """
    stopped: set[int] = set()

    def all_stopped() -> bool:
        found = find()
        for pid in found:
            if pid not in stopped and _signal(pid, signal.SIGSTOP):
                stopped.add(pid)
        return all(_states(pid) <= _STOPPED for pid in found)

    _comes_true(all_stopped, timeout_s)
    try:
        yield
    finally:
        for pid in stopped:
            _signal(pid, signal.SIGCONT)


def end(find: Find, timeout_s: float) -> bool:
    """Kill these processes, and those that they start meanwhile. False if one is still there after that time."""

    def ended() -> bool:
        living = [pid for pid in find() if lives(pid)]
        for pid in living:
            _signal(pid, signal.SIGKILL)
        return not living

    return _comes_true(ended, timeout_s)


def _comes_true(condition: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        select.select([], [], [], _LOOK_AGAIN_S)
    return True


def _signal(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _states(pid: int) -> frozenset[str]:
    """The states of a process's threads, each one letter as in /proc/PID/stat; none of one that is gone."""
    states: set[str] = set()
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/stat", "rb") as stat:
                states.add(stat.read().rpartition(b") ")[2][:1].decode("ascii"))
    return frozenset(states)


def lives(pid: int) -> bool:
    """Whether a process is there and has not ended; one that nobody has waited for has."""
    return not _states(pid) <= _ENDED


def name_of(pid: int) -> str:
    """What the system calls a process; "?" if it is gone."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as comm:
            return comm.read().strip()
    except OSError:
        return "?"
