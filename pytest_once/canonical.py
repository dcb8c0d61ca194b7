"""The logical form of a world: rows renamed until only what matters differs, and a digest of them.

Two worlds are merged when their digests are equal, so every rule here errs towards keeping them apart: a name
that is not recognised costs a search some states; two worlds wrongly taken for one cost a verdict.
"""

from __future__ import annotations

import fnmatch
import hashlib
import marshal
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from pytest_once.scanning import (
    IGNORED,
    PID,
    Cell,
    Scan,
    Scanner,
    as_volatile,
    identity_of,
    instants_in,
    mask,
    nanoseconds,
    scanner_for,
    tags_in,
)

_PLAIN, _IGNORE, _VOLATILE = 0, 1, 2


MTIME = "mtime"
"""The column that holds when a file was modified, in nanoseconds on the virtual clock."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the world.

    place: "agent.db/tasks", "notes.txt", "ledger/effects". names: the columns; a file has ("content", ...),
    a directory ("directory",), a link ("symlink",). ordered: whether the order among the place's rows means
    something (False for a table WITHOUT ROWID, whose rows come sorted by keys that may be minted).
    """

    place: str
    names: tuple[str, ...]
    cells: tuple[Cell, ...]
    ordered: bool = True


@dataclass(frozen=True, slots=True)
class Naming:
    """What is volatile in the worlds of one path.

    tokens: texts minted by the path's randomness (uuids, hex, urlsafe base64, pids). columns: "place.column"
    whose cells differ between two fault-free runs, as `differences` names them. ignore: the user's patterns,
    matched against "place.column" and whole places ("tasks.attempts", "*.updated_at", "*.log"). clock_window:
    virtual epoch seconds (lowest, highest) between which a number or timestamp is an instant; none is when
    highest <= lowest. Leave a margin below the first instant: timestamps may be cut to the minute. constants:
    ("place.column", number) for the numbers in those columns that are not random, as `constants` finds them.
    file_times: whether modification times of files count; only where somebody reads them.
    """

    tokens: frozenset[str] = frozenset()
    columns: frozenset[str] = frozenset()
    ignore: tuple[str, ...] = ()
    clock_window: tuple[float, float] = (0.0, 0.0)
    constants: frozenset[tuple[str, Cell]] = frozenset()
    file_times: bool = True

    def with_tokens(self, tokens: frozenset[str]) -> Naming:
        """The same naming with these tokens instead."""
        return replace(self, tokens=tokens)


def is_file_time(row: Row, name: str) -> bool:
    """Whether a cell says when a file was modified."""
    return name == MTIME and row.names[0] in ("content", "directory")


@lru_cache(maxsize=4096)
def matches_place(place: str, ignore: tuple[str, ...]) -> bool:
    """Whether a pattern names the place, or a directory or database which contains it."""
    parts = place.split("/")
    paths = ["/".join(parts[first:last]) for last in range(1, len(parts) + 1) for first in range(last)]
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in ignore for path in paths)


@lru_cache(maxsize=4096)
def matches_column(place: str, name: str, ignore: tuple[str, ...]) -> bool:
    """Whether a pattern names the column, from any directory or database on."""
    parts = f"{place}.{name}".split("/")
    paths = ["/".join(parts[first:]) for first in range(len(parts))]
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in ignore for path in paths)


def _is_constant(cell: Cell, column: str, naming: Naming) -> bool:
    """Whether a number among random ones is none of them, but says something: nobody, never, not yet."""
    return isinstance(cell, (int, float)) and (cell in (-1, 0, 1) or (column, cell) in naming.constants)


@dataclass(slots=True)
class ScannedRow:
    row: Row
    masked_place: str
    place_scan: Scan
    scans: list[Scan]
    varying: bool

    @property
    def names(self) -> tuple[str, ...]:
        return self.row.names

    def order(self) -> tuple[str, str, tuple[int, ...]]:
        """Where the row goes among rows in no meaningful order; the same however its tokens are spelled."""
        instants = tuple(instant for scan in self.scans for instant in instants_in(scan))
        return self.masked_place, repr([mask(scan) for scan in self.scans]), instants


class Form:
    """Rows scanned under a naming, to be rendered for a virtual time.

    instants: the distinct instants in the rows (integer nanoseconds, ascending). Two times with the same
    `slot` render alike.
    """

    def __init__(self, rows: Iterable[Row], naming: Naming) -> None:
        scanner = scanner_for(naming.tokens, naming.clock_window)
        scan = scanner.scan
        places: dict[tuple[str, tuple[str, ...]], tuple[str, Scan, tuple[int, ...]] | None] = {}
        in_order: list[ScannedRow] = []
        in_no_order: list[ScannedRow] = []
        for row in rows:
            where = (row.place, row.names)
            if where not in places:
                places[where] = self._read_place(row, scanner, naming)
            known = places[where]
            if known is None:
                continue
            masked_place, place_scan, roles = known
            if roles:
                scans: list[Scan] = [
                    IGNORED
                    if role == _IGNORE
                    else cell
                    if role == _VOLATILE and _is_constant(cell, f"{masked_place}.{name}", naming)
                    else as_volatile(cell, scan(cell), naming.tokens)
                    if role == _VOLATILE
                    else scan(cell)
                    for cell, role, name in zip(row.cells, roles, row.names, strict=True)
                ]
            else:
                scans = [scan(cell) for cell in row.cells]
            varying = tuple in map(type, scans)
            scanned = ScannedRow(row, masked_place, place_scan, scans, varying)
            # A file named by a token comes wherever its name sorts, which must not decide any numbering.
            (in_order if row.ordered and "~" not in tags_in(place_scan) else in_no_order).append(scanned)
        in_no_order.sort(key=ScannedRow.order)
        self.rows = in_order + in_no_order
        ranked: set[int] = set()
        beside: set[int] = set()
        for found in self.rows:
            for one in found.scans if found.varying else ():
                if type(one) is tuple:
                    (beside if one[0] == "~" else ranked).update(instants_in(one))
        for known in places.values():
            if known is not None:
                ranked.update(instants_in(known[1]))
        # Random instants tell only whether they are past; ranked, they would shift the others at random.
        self._ranked = ranked
        self.instants: tuple[int, ...] = tuple(sorted(ranked | beside))

    @staticmethod
    def _read_place(row: Row, scanner: Scanner, naming: Naming) -> tuple[str, Scan, tuple[int, ...]] | None:
        if naming.ignore and matches_place(row.place, naming.ignore):
            return None
        place_scan = scanner.scan(row.place)
        masked = place_scan if type(place_scan) is str else mask(place_scan)[1]
        roles = tuple(
            _IGNORE
            if (naming.ignore and matches_column(row.place, name, naming.ignore))
            or (not naming.file_times and is_file_time(row, name))
            else _VOLATILE
            if f"{masked}.{name}" in naming.columns
            else _PLAIN
            for name in row.names
        )
        return masked, place_scan, roles if any(roles) else ()

    @property
    def varies(self) -> bool:
        """Whether any row holds a token, an instant or a volatile value."""
        return any(row.varying for row in self.rows)

    def slot(self, now_s: float) -> tuple[int, bool]:
        """Where a time (virtual epoch seconds) lies: how many instants precede it, whether one is it."""
        return slot(self.instants, now_s)

    def render(self, now_s: float) -> list[tuple[Any, ...]]:
        """The canonical rows at a virtual time (epoch seconds); the last one gives the rank of that time."""
        now = nanoseconds(float(now_s), 1)
        rank = {instant: index for index, instant in enumerate(sorted({*self._ranked, now}))}
        numbers: dict[str, int] = {}
        # Counted apart: a column with random equalities must not renumber the tokens.
        values: dict[Any, int] = {}

        def number(identity: str) -> int:
            return numbers.setdefault(identity, len(numbers) + 1)

        def shown(scan: Scan) -> Any:
            if type(scan) is not tuple:
                return scan
            tag = scan[0]
            if tag == "text" or tag == "bytes":
                return (tag, "".join(map(shown_piece, scan[1])))
            if tag == "@":
                return ("@", rank[scan[1]], *scan[2:])
            if tag == "#":
                return ("~", number(scan[1]), *scan[2:])
            if tag == "~":
                sides = "".join("<" if at < now else ">" if at > now else "=" for at in scan[3])
                name = values.setdefault(scan[1], len(values) + 1)
                return ("~", name, scan[1][0], tuple(map(number, scan[2])), sides, scan[4])
            return scan

        def shown_piece(piece: Any) -> str:
            if type(piece) is str:
                return str(piece).replace("~", "~~").replace("@", "@@")
            if piece[0] == "~":
                return f"~{number(piece[1])}{piece[2]}"
            return f"@{'|'.join(str(rank[instant]) for instant in piece[1])}{piece[2]}"

        rendered: list[tuple[Any, ...]] = []
        for row in self.rows:
            place = shown(row.place_scan)
            rendered.append((place, row.names, tuple(map(shown, row.scans)) if row.varying else row.row.cells))
        rendered.append(("@now", rank[now]))
        return rendered


def slot(instants: Sequence[int], now_s: float) -> tuple[int, bool]:
    """Where a virtual time (epoch seconds) lies among ascending instants (nanoseconds)."""
    now = nanoseconds(float(now_s), 1)
    index = bisect_left(instants, now)
    return index, index < len(instants) and instants[index] == now


def canonical_rows(rows: Iterable[Row], naming: Naming, now_s: float) -> list[tuple[Any, ...]]:
    """The rows with volatile values renamed; equality among values, and order among instants, are kept.

    now_s: virtual time in epoch seconds. Names are numbered in the order of the rows; rows whose order means
    nothing come last. The final entry is the rank of now_s.
    """
    return Form(rows, naming).render(now_s)


def digest(canonical: Sequence[tuple[Any, ...]]) -> str:
    """32 hex digits which tell canonical forms apart, types included; not comparable across Python versions.

    Raises TypeError for a cell that is not None, int, float, str or bytes (a store returned something else).
    """
    try:
        # Version 2 writes every value in full with its type and length; later versions write references,
        # which depend on whether equal objects happen to be the same object.
        data = marshal.dumps(list(canonical), 2)
    except ValueError as error:
        message = "a row holds a cell that is not None, int, float, str or bytes; convert it in the store's rows()"
        raise TypeError(message) from error
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def occurring(rows: Iterable[Row], tokens: frozenset[str]) -> frozenset[str]:
    """Those of the tokens that occur in the rows, in any of the forms in which they would be renamed."""
    scan = scanner_for(tokens, (0.0, 0.0)).scan
    found: set[str] = set()
    for row in rows:
        for one in (row.place, *row.cells):
            scanned = scan(one)
            if type(scanned) is tuple:
                pieces = [scanned] if scanned[0] == "#" else scanned[1]
                found.update(piece[1] for piece in pieces if type(piece) is tuple)
    return frozenset(token for token in tokens if token.startswith(PID) or identity_of(token) in found)


def masked_text(text: str, naming: Naming) -> str:
    """The text with every minted token and instant replaced by a fixed sign; equality is not kept."""
    scan = scanner_for(naming.tokens, naming.clock_window).scan(text)
    return scan if isinstance(scan, str) else str(mask(scan)[1])
