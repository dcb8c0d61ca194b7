"""Random texts and times that another program made, known by their looks: nobody saw them being drawn.

A text that is taken for random is compared by equality only, so what looks random but is not (a hash of the payload)
costs little. A random text that does not look it makes two runs differ, which is reported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

LARGEST_FILE_BYTES = 4 * 1024 * 1024
"""Larger files are not searched."""

_NEAR_S = 366 * 86400.0
"""A number of digits is a time if it lies within a year of now."""

_UUID = rb"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_INSTANT = rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?: ?(?:Z|[+-]\d\d(?::?\d\d)?))?"
_DIGITS = rb"\d{10}(?:\d{3}|\d{6}|\d{9})?(?:\.\d+)?"
_HEX = rb"(?=[0-9]*[a-fA-F])(?=[a-fA-F]*[0-9])[0-9a-fA-F]{16,}"
_MIXED = rb"(?=[0-9A-Z_-]*[a-z])(?=[0-9a-z_-]*[A-Z])(?=[A-Za-z_-]*[0-9])[0-9A-Za-z_-]{20,}"
_ULID = rb"[0-7][0-9A-HJKMNP-TV-Z]{25}"
_RANDOM = re.compile(
    rb"(?<![0-9A-Za-z])(?:(?P<instant>%s)|(?P<digits>%s)|%s)(?![0-9A-Za-z])"
    % (_INSTANT, _DIGITS, b"|".join((_UUID, _HEX, _ULID, _MIXED)))
)


def random_looking(content: bytes, now_s: float) -> set[str]:
    """The UUIDs, long hexadecimal numbers, ULIDs, words of mixed letters and digits, and times in some bytes.

    now_s: the real time, in Unix seconds; a bare number is a time only near to it.
    """
    found: set[str] = set()
    for match in _RANDOM.finditer(content):
        text = match[0].decode("ascii")
        if match["digits"] is not None:
            whole = text.partition(".")[0]
            if abs(int(whole) / 10 ** (len(whole) - 10) - now_s) > _NEAR_S:
                continue
        found.add(text)
    return found


def without_random(content: bytes) -> bytes:
    """The same with one sign in the place of every random text, long number and time."""
    return _RANDOM.sub(b"~", content)


class ChangedFiles:
    """The contents of files below some directories that are new or have changed since the last look."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int, int]] = {}

    def contents(self, roots: Iterable[Path]) -> Iterator[bytes]:
        for root in roots:
            for directory, _, names in os.walk(root):
                for name in names:
                    yield from self._content(os.path.join(directory, name))

    def _content(self, path: str) -> Iterator[bytes]:
        try:
            with open(path, "rb", opener=_without_waiting) as file:
                status = os.fstat(file.fileno())
                mark = status.st_ino, status.st_size, status.st_mtime_ns
                if self._seen.get(path) != mark and status.st_size <= LARGEST_FILE_BYTES:
                    self._seen[path] = mark
                    yield file.read()
        except OSError:
            return  # gone meanwhile, not to be read by us, or no file at all


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
