"""Instants of a server's clock are told by their order, whatever form they are stored in; nothing else is touched."""

from __future__ import annotations

import pytest

from pytest_once.canonical import Row
from pytest_once.scanning import Cell
from pytest_once.stores.instants import ServerClock

SINCE_S = 1_764_500_000.0  # 2025-11-30 10:53:20 UTC
CLOCK = ServerClock(SINCE_S, SINCE_S + 3600)


def ordered(*cells: Cell) -> tuple[Cell, ...]:
    (row,) = CLOCK.ordered([Row("db/t", tuple(map(str, range(len(cells)))), cells)])
    return row.cells


def test_equal_instants_are_equal_in_every_form() -> None:
    """What is written to two columns by one now() stays linked."""
    assert ordered(
        "2025-11-30 10:53:21+00",
        "2025-11-30T11:53:21.000+01:00",
        "2025-11-30 06:23:21-0430",
        1_764_500_001,
        1_764_500_001_000,
        1_764_500_001.0,
        '{"at": "2025-11-30T10:53:21Z", "ms": 1764500001000}',
    ) == (*["server time 1"] * 6, '{"at": "server time 1", "ms": server time 1}')


def test_the_order_of_instants_is_kept() -> None:
    """Code may compare them."""
    assert ordered("2025-11-30 10:53:22.5", "2025-11-30 10:53:22.25", 1_764_500_010) == (
        "server time 2",
        "server time 1",
        "server time 3",
    )


def test_far_instants_count_in_columns_of_instants_if_they_are_precise() -> None:
    """An expiry date that the server made has its clock's fraction of a second; one that somebody chose has not."""
    rows = [
        Row("db/t", ("at", "note"), ("2026-06-01 00:00:00.25+00", "2026-06-01 00:00:00.25+00")),
        Row("db/t", ("at", "note"), ("2026-06-01 00:00:00+00", "")),
        Row("db/t", ("at", "note"), ("2031-03-04 05:06:07.25+00", "")),
    ]
    assert [row.cells for row in CLOCK.ordered(rows, {"db/t": frozenset({"at"})})] == [
        ("server time 1", "2026-06-01 00:00:00.25+00"),
        ("2026-06-01 00:00:00+00", ""),
        ("2031-03-04 05:06:07.25+00", ""),
    ]


@pytest.mark.parametrize(
    "cell",
    [None, b"2025-11-30 10:53:21", "2025-11-30 10:53:19", "2031-03-04 05:06:07", "2025-13-40 10:53:21", "2025-11-30"],
)
def test_other_times_stay(cell: Cell) -> None:
    """Earlier and virtual instants, dates, and what only looks like one."""
    assert ordered(cell) == (cell,)


@pytest.mark.parametrize("cell", [1_764_499_999, 7, 1.5, float("inf"), "x1764500001", "1-2-3", ""])
def test_other_numbers_stay(cell: Cell) -> None:
    """An instant is one only between the exploration's beginning and end."""
    assert ordered(cell) == (cell,)
