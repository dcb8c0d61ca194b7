"""How worlds differ: two fault-free runs, to find what is volatile; and several states, for a person to read."""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from pytest_once.canonical import Form, Naming, Row, ScannedRow, is_file_time
from pytest_once.scanning import Cell, mask


@dataclass(frozen=True, slots=True)
class Difference:
    """How the worlds of two fault-free runs differ after renaming.

    volatile: columns ("place.column") whose values differ. unstable: those of them in which even *which*
    values are equal differs, so that renaming cannot hide it and only `ignore` can. structural: set when
    places, row counts or column names differ, and says where; the other two are then empty.
    """

    volatile: frozenset[str] = frozenset()
    unstable: frozenset[str] = frozenset()
    structural: str | None = None


def differences(
    rows_a: Sequence[Row],
    rows_b: Sequence[Row],
    naming_a: Naming,
    naming_b: Naming,
    now_a: float,
    now_b: float,
) -> Difference:
    """Compare the worlds of two fault-free runs, made under shifted clock and entropy, cell by cell.

    now_a, now_b: virtual time of each, epoch seconds. Values explained by tokens and instants do not count.
    """
    found: set[str] = set()
    while True:
        form_a = Form(rows_a, replace(naming_a, columns=naming_a.columns | found))
        form_b = Form(rows_b, replace(naming_b, columns=naming_b.columns | found))
        structural = _structural(form_a.rows, form_b.rows)
        if structural is not None:
            return Difference(structural=structural)
        masked, numbered = _differing_columns(form_a, form_b, now_a, now_b)
        # Values first: one that no token explains may shift the numbers of all that follow, so columns that
        # differ by number only are believed one at a time.
        new = masked - found or set([name for name in numbered if name not in found][:1])
        if not new:
            return Difference(volatile=frozenset(found), unstable=frozenset(masked | set(numbered)))
        found |= new


def constants(sights: Iterable[tuple[Sequence[Row], Naming]], columns: frozenset[str]) -> set[tuple[str, Cell]]:
    """(column, number) for each number in one run's volatile columns; what another run has as well is not random."""
    found: set[tuple[str, Cell]] = set()
    for rows, naming in sights if columns else ():
        for row in Form(rows, naming).rows:
            for name, cell in zip(row.names, row.row.cells, strict=True):
                column = f"{row.masked_place}.{name}"
                if column in columns and isinstance(cell, (int, float)):
                    found.add((column, cell))
    return found


def _structural(rows_a: list[ScannedRow], rows_b: list[ScannedRow]) -> str | None:
    for a, b in zip_longest(rows_a, rows_b):
        if a is not None and b is not None and a.masked_place == b.masked_place:
            if a.names != b.names:
                ours, theirs = ", ".join(a.names), ", ".join(b.names)
                return f"{a.masked_place}: columns {ours} in one run, {theirs} in the other"
            continue
        # The place that comes out short is the one to name; the rows around it have only moved.
        for row in (a, b):
            if row is not None:
                place = row.masked_place
                count_a, count_b = (sum(one.masked_place == place for one in rows) for rows in (rows_a, rows_b))
                if count_a != count_b:
                    return f"{place}: {_count(count_a)} in one run, {_count(count_b)} in the other"
        names = [row.masked_place if row is not None else "nothing" for row in (a, b)]
        return f"{names[0]} in one run where the other has {names[1]}"
    return None


def _count(rows: int) -> str:
    return f"{rows} row" if rows == 1 else f"{rows} rows"


def _differing_columns(a: Form, b: Form, now_a: float, now_b: float) -> tuple[set[str], list[str]]:
    masked: set[str] = set()
    numbered: list[str] = []
    rendered = zip(a.rows, b.rows, a.render(now_a), b.render(now_b), strict=False)
    for row_a, row_b, shown_a, shown_b in rendered:
        for index, name in enumerate(row_a.names):
            column = f"{row_a.masked_place}.{name}"
            if _encoded(mask(row_a.scans[index])) != _encoded(mask(row_b.scans[index])):
                masked.add(column)
            elif _encoded(shown_a[2][index]) != _encoded(shown_b[2][index]):
                numbered.append(column)
    return masked, numbered


def _encoded(value: Any) -> bytes:
    """For comparing with types: 1, 1.0 and True are equal in Python."""
    return marshal.dumps(value, 2)


def describe_changes(rows_a: Sequence[Row], rows_b: Sequence[Row]) -> list[str]:
    """What differs between two worlds, for a person: "agent.db/tasks.attempts: 3 -> 4".

    Rows of one place are compared in order. Each difference is listed once; files that were only modified at another
    time come last.
    """
    places: dict[str, tuple[list[Row], list[Row]]] = {}
    for side, rows in enumerate((rows_a, rows_b)):
        for row in rows:
            places.setdefault(row.place, ([], []))[side].append(row)
    changes: dict[str, None] = {}
    touched: dict[str, None] = {}
    for place, (before, after) in places.items():
        if len(before) != len(after):
            changes[f"{place}: {_count(len(before))} -> {_count(len(after))}"] = None
        for a, b in zip(before, after, strict=False):
            if a.names != b.names:
                changes[f"{place}: ({', '.join(a.names)}) -> ({', '.join(b.names)})"] = None
                continue
            for name, was, now in zip(a.names, a.cells, b.cells, strict=True):
                if _encoded(was) == _encoded(now):
                    continue
                if is_file_time(a, name):
                    touched[f"{place}: modified at another time"] = None
                else:
                    label = place if name == "content" and len(a.names) <= 3 else f"{place}.{name}"
                    changes[f"{label}: {_brief(was)} -> {_brief(now)}"] = None
    return [*changes, *touched]


def most_varied(worlds: Iterable[Sequence[Row]]) -> list[str]:
    """Columns with the most different contents among several worlds, or whole places whose number of rows varies."""
    seen: dict[str, set[bytes]] = {}
    for rows in worlds:
        columns: dict[str, list[Cell]] = {}
        sizes: dict[str, int] = {}
        for row in rows:
            sizes[row.place] = sizes.get(row.place, 0) + 1
            for name, cell in zip(row.names, row.cells, strict=True):
                if is_file_time(row, name):
                    continue  # other in each state, as times are; only their order counts
                label = row.place if name == "content" and len(row.names) <= 3 else f"{row.place}.{name}"
                columns.setdefault(label, []).append(cell)
        for label, content in (*columns.items(), *sizes.items()):
            seen.setdefault(label, set()).add(_encoded(content))
    most = max((len(contents) for contents in seen.values()), default=0)
    named = [label for label, contents in seen.items() if len(contents) == most > 1]
    # A place that has other rows each time has other cells in each of its columns: the place says it all.
    return [label for label in named if not any(label.startswith(f"{place}.") for place in named)]


def _brief(cell: Cell) -> str:
    text = repr(cell)
    return text if len(text) <= 60 else text[:57] + "..."
