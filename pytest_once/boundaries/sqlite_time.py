"""Virtual time inside SQL: date and time functions of a connection, on the clock of the process.

They are registered as deterministic, like the built-in ones allowed in indexes and CHECK constraints: a schema with an
index on `date(column)` could otherwise not be opened at all. The price: `date('now')` in an index, a CHECK constraint
or a stored column, at which SQLite fails with the first row, is accepted.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

_connect_plainly = sqlite3.connect
_built_in: sqlite3.Connection | None = None
_built_in_lock = threading.Lock()


def _ask_built_in(name: str, arguments: tuple[Any, ...]) -> Any:
    """What SQLite's own date function answers, asked on a connection without overrides."""
    global _built_in
    with _built_in_lock:
        if _built_in is None:
            _built_in = _connect_plainly(":memory:", check_same_thread=False, isolation_level=None)
        marks = ",".join("?" * len(arguments))
        return _built_in.execute(f"SELECT {name}({marks})", arguments).fetchone()[0]


def _now() -> str:
    # Whole milliseconds, which is what SQLite's own 'now' has.
    seconds, milliseconds = divmod(int(time.time() * 1000), 1000)
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(seconds))}.{milliseconds:03}"


def _virtual(name: str, first: int, *arguments: Any) -> Any:
    """The built-in function `name`, whose time value is argument number `first`, on the virtual clock."""
    if len(arguments) == first and (first == 0 or arguments):
        arguments = (*arguments, _now())
    elif len(arguments) > first and isinstance(value := arguments[first], str):
        word = value.lower()
        if word == "now":
            arguments = (*arguments[:first], _now(), *arguments[first + 1 :])
        elif word in ("subsec", "subsecond"):
            arguments = (*arguments[:first], _now(), *arguments[first:])
    return _ask_built_in(name, arguments)


def _virtual_difference(*arguments: Any) -> Any:
    """The built-in timediff, whose arguments are time values both, on the virtual clock."""
    values = (_now() if isinstance(value, str) and value.lower() == "now" else value for value in arguments)
    return _ask_built_in("timediff", tuple(values))


_TIME_FUNCTIONS: tuple[tuple[str, Callable[..., Any]], ...] = (
    *((name, partial(_virtual, name, 0)) for name in ("datetime", "date", "time", "julianday", "unixepoch")),
    ("strftime", partial(_virtual, "strftime", 1)),
    *((("timediff", _virtual_difference),) if sqlite3.sqlite_version_info >= (3, 43) else ()),
)
_TIME_KEYWORDS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("current_timestamp", partial(_virtual, "datetime", 0)),
    ("current_date", partial(_virtual, "date", 0)),
    ("current_time", partial(_virtual, "time", 0)),
)


def keep_virtual_time(connection: sqlite3.Connection) -> None:
    """Let the connection's SQL read the virtual clock. Must not be called in the midst of a statement."""
    create = partial(sqlite3.Connection.create_function, connection, deterministic=True)
    for name, function in _TIME_FUNCTIONS:
        create(name, -1, function)
    for name, function in _TIME_KEYWORDS:
        create(name, 0, function)
