"""Instants of a server's own clock among stored values, replaced by their order.

A database server's `now()` is real time: it is another in every run, and no virtual clock moves it. What code may
rely on is which of two such instants is the earlier one and whether they are the same, and that is what is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta, timezone

from pytest_once.canonical import Row
from pytest_once.scanning import Cell

_SCALES = (1, 10**3, 10**6)
_TEXT = re.compile(
    r"(?<![0-9A-Za-z])(?:(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?(Z|[+-]\d\d(?::?\d\d)?)?"
    r"|(\d{10,16})(?:\.(\d{1,6})\d*)?)(?![0-9A-Za-z])"
)


FAR_S = 400 * 86400.0
"""How far from now an instant may lie that the server made of its clock, in a column of instants."""


class ServerClock:
    """Recognises what the server's clock showed. since_s, until_s: Unix seconds between which it does."""

    def __init__(self, since_s: float, until_s: float) -> None:
        self._since, self._until = int(since_s * 10**6), int(until_s * 10**6)

    def ordered(self, rows: Iterable[Row], columns: Mapping[str, frozenset[str]] | None = None) -> list[Row]:
        """The rows, each of the server's instants written as "server time 2": by rank among all of them.

        columns: place -> its columns of instants, in which all that `made` recognises counts.
        """
        found = [self._marked(row, (columns or {}).get(row.place, frozenset())) for row in rows]
        instants = sorted({instant for row in found for cell in row.cells for instant in self._in(cell)})
        if not instants:
            return found
        rank = {instant: number for number, instant in enumerate(instants, 1)}
        return [
            Row(row.place, row.names, tuple(self._renamed(cell, rank) for cell in row.cells), row.ordered)
            for row in found
        ]

    def made(self, text: str) -> datetime | None:
        """The instant that a cell of a column of instants holds, if it was made of the server's clock.

        Far from now (an expiry date; what has been aged) only one with a fraction of a second is taken for such.
        """
        match = _TEXT.fullmatch(text)
        instant = None if match is None or match[1] is None else _read(match)
        if instant is None:
            return None
        at = _microseconds(instant)
        if self._since <= at <= self._until:
            return instant
        near = self._since - FAR_S * 10**6 <= at <= self._until + FAR_S * 10**6
        return instant if near and instant.microsecond else None

    def _marked(self, row: Row, columns: frozenset[str]) -> Row:
        """The row with its server's instants as numbers of a kind that no cell has."""
        if columns.isdisjoint(row.names):
            return row
        cells = [
            _Made(_microseconds(made))
            if name in columns and isinstance(cell, str) and (made := self.made(cell)) is not None
            else cell
            for name, cell in zip(row.names, row.cells, strict=True)
        ]
        return Row(row.place, row.names, tuple(cells), row.ordered)

    def _in(self, cell: Cell) -> list[int]:
        """The instants in a cell, in microseconds."""
        if isinstance(cell, _Made):
            return [int(cell)]
        if isinstance(cell, str):
            return [instant for match in _TEXT.finditer(cell) if (instant := self._instant(match)) is not None]
        if isinstance(cell, (int, float)):
            number = self._number(cell)
            return [] if number is None else [number]
        return []

    def _renamed(self, cell: Cell, rank: dict[int, int]) -> Cell:
        if isinstance(cell, _Made):
            return f"server time {rank[int(cell)]}"
        if isinstance(cell, (int, float)):
            number = self._number(cell)
            return cell if number is None else f"server time {rank[number]}"
        if not isinstance(cell, str):
            return cell

        def name(match: re.Match[str]) -> str:
            instant = self._instant(match)
            return match[0] if instant is None else f"server time {rank[instant]}"

        return _TEXT.sub(name, cell)

    def _number(self, value: int | float) -> int | None:
        for scale in _SCALES:
            # Not a number, or an infinite one, lies nowhere.
            if self._since <= value * (10**6 // scale) <= self._until:
                return round(value * (10**6 // scale))
        return None

    def _instant(self, match: re.Match[str]) -> int | None:
        whole, part = match[5], match[6]
        if whole is not None:
            return self._number(int(whole) if part is None else float(f"{whole}.{part}"))
        instant = _read(match)
        found = None if instant is None else _microseconds(instant)
        return found if found is not None and self._since <= found <= self._until else None


class _Made(int):
    """An instant of the server's, in microseconds."""


def _read(match: re.Match[str]) -> datetime | None:
    day, time, fraction, offset = match.groups()[:4]
    try:
        instant = datetime.fromisoformat(f"{day} {time}").replace(tzinfo=_zone(offset))
    except ValueError:
        return None
    return instant.replace(microsecond=int((fraction or "").ljust(6, "0")))


def _microseconds(instant: datetime) -> int:
    return int(instant.replace(microsecond=0).timestamp()) * 10**6 + instant.microsecond


def _zone(offset: str | None) -> timezone:
    if offset is None or offset == "Z":
        return UTC
    digits = offset[1:].replace(":", "").ljust(4, "0")
    shift = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-shift if offset[0] == "-" else shift)
