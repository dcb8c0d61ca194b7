"""What a ledger holds, for people and for scripts: `python -m once_fakes show FILE`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import asdict
from os import PathLike
from typing import IO, Any

from pytest_once.ledger import Ledger

_Rows = Sequence[Any]

_TABLES: tuple[tuple[str, Callable[[Ledger], _Rows], tuple[str, ...]], ...] = (
    (
        "arrivals",
        lambda ledger: ledger.arrivals(),
        ("id", "provider", "operation", "key", "payload", "outcome", "status"),
    ),
    (
        "effects",
        lambda ledger: ledger.effects(),
        ("id", "provider", "operation", "payload", "arrival"),
    ),
    (
        "receipts",
        lambda ledger: ledger.receipts(),
        ("provider", "key", "status", "effect", "expires_s"),
    ),
)
"""Table, what reads it, and the columns that people are shown."""


def contents(path: str | PathLike[str]) -> dict[str, _Rows]:
    """Arrivals, effects and receipts of the ledger in that file.

    Raises FileNotFoundError if there is none, ValueError if the file is no ledger.
    """
    ledger = Ledger(path)
    try:
        return {table: read(ledger) for table, read, _ in _TABLES}
    except sqlite3.DatabaseError as error:
        raise ValueError(f"{path} is not a ledger of once_fakes: {error}") from error


def as_json(found: dict[str, _Rows]) -> str:
    """All columns, as one JSON object: table -> list of rows by column."""
    return json.dumps({table: [asdict(row) for row in rows] for table, rows in found.items()}, indent=2)


def print_tables(found: dict[str, _Rows], out: IO[str]) -> None:
    """The columns for people: tables on a terminal, else lines of text with tabs between the columns."""
    for table, _, columns in _TABLES:
        rows = [[_text(getattr(row, column)) for column in columns] for row in found[table]]
        if out.isatty():
            _draw(table, columns, rows, out)
            continue
        print(f"{len(rows)} {table}", file=out)
        for row in (list(columns), *rows) if rows else ():
            print("\t".join(row), file=out)


def _draw(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], out: IO[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(title=f"{len(rows)} {title}", title_justify="left")
    for column in columns:
        drawn.add_column(column, overflow="fold")
    for row in rows:
        drawn.add_row(*map(Text, row))  # what clients sent is not markup
    Console(file=out).print(drawn)


def _text(value: object) -> str:
    """A cell on one line, whatever a client sent."""
    text = "" if value is None else str(value)
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)
