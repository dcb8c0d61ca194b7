"""Modification times of files on the virtual clock, in nanoseconds since the Unix epoch.

A process that asks how old a file is compares the file's time with its clock; both must be of the same world. So
whatever changes a tracked file gives it the virtual time, and pictures keep it.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pytest_once.clock import EPOCH_S, WINDOW_S
from pytest_once.scanning import nanoseconds

BEGAN_NS = time.time_ns()
"""Real time at which this process loaded the engine; a file time after it was given by the operating system."""

_SECOND_NS = 10**9
_HOUR_NS = 3600 * _SECOND_NS
_YEAR_NS = 365 * 24 * _HOUR_NS
_APART_NS = 10**6
_WINDOW_NS = (int(WINDOW_S[0]) * _SECOND_NS, int(WINDOW_S[1]) * _SECOND_NS)


def at(now_s: float) -> int:
    """The file time of a virtual instant (epoch seconds), rounded as stored instants are."""
    return nanoseconds(float(now_s), 1)


def is_virtual(mtime_ns: int) -> bool:
    """Whether a file time was taken from the virtual clock."""
    return _WINDOW_NS[0] <= mtime_ns <= _WINDOW_NS[1]


def is_real(mtime_ns: int) -> bool:
    """Whether the operating system gave this time meanwhile, for a change that no seam saw.

    An older one was chosen: by os.utime, or by a copy that keeps the times of a fixed input.
    """
    return mtime_ns >= BEGAN_NS and not is_virtual(mtime_ns)


def aged(times_ns: set[int], real_now_ns: int) -> dict[int, int]:
    """Real times of files that were there before the first process -> times on the virtual clock that fit.

    A file stays as old as it was, in whole hours, so that two sessions find the same; the youngest is a second old.
    Their order stays. What is older than a year stays what it is: it was chosen, and is as old in 2031.
    """
    found: dict[int, int] = {}
    latest = at(EPOCH_S - 1.0)
    for time_ns in sorted(times_ns, reverse=True):
        if is_virtual(time_ns) or real_now_ns - time_ns > _YEAR_NS:
            continue
        hours = max(0, real_now_ns - time_ns) // _HOUR_NS
        latest = found[time_ns] = min(latest, at(EPOCH_S - 1.0) - hours * _HOUR_NS)
        latest -= _APART_NS
    return found


# Who reads them. A time that nobody reads decides nothing, and to tell states apart by it would multiply them.

_ASKS_ELSE = frozenset({"genericpath", "posixpath", "pathlib", "glob", "fnmatch"})
_READS = frozenset({"stat", "lstat", "getmtime", "getctime", "getatime"})
_MACHINERY = frozenset(
    {
        "_pytest",
        "pytest",
        "coverage",
        "importlib",
        "linecache",
        "tokenize",
        "inspect",
        "shutil",
        "tempfile",
        "zipimport",
        "logging",
    }
)


def watch(roots: Sequence[Path], note: Callable[[], None]) -> None:
    """In a forked child: call `note` once, when code first asks for the status of a tracked file, times included.

    Asking whether something exists, or what it is, is no reading; a status that a C extension takes is not seen.
    """
    unread = [note]

    def read(path: Any) -> None:
        if unread and _is_reader(sys._getframe(2)) and _below(path, roots):
            unread.pop()()

    for name in ("stat", "lstat"):
        setattr(os, name, _watched(getattr(os, name), read))
    # An entry of a scan tells times too, through a method that cannot be hooked.
    os.scandir = _watched(os.scandir, read)


def _watched(original: Callable[..., Any], read: Callable[[Any], None]) -> Callable[..., Any]:
    @functools.wraps(original)
    def asked(path: Any = ".", *arguments: Any, **named: Any) -> Any:
        read(path)
        return original(path, *arguments, **named)

    return asked


def _below(path: Any, roots: Sequence[Path]) -> bool:
    if isinstance(path, int):
        return True  # a descriptor; what it is of is not worth finding out
    try:
        full = os.path.abspath(os.fsdecode(path))
    except TypeError:
        return False  # the original says what is wrong with it
    return any(full.startswith(str(root)) or full.startswith(os.path.realpath(root)) for root in roots)


def _is_reader(frame: Any) -> bool:
    module = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    name = frame.f_code.co_name
    if module in _MACHINERY or module in ("os", "pytest_once", "once_fakes"):
        return False  # os.walk, os.makedirs
    if module not in _ASKS_ELSE:
        return True
    if name not in _READS:
        return False
    # pathlib's exists() and is_file() ask through its own stat().
    caller = frame.f_back
    asked_by = str(caller.f_globals.get("__name__", "")).partition(".")[0] if caller is not None else ""
    return asked_by not in _ASKS_ELSE and asked_by not in _MACHINERY
