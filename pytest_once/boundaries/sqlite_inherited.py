"""SQLite connections from before the fork: found in the parent, reported when a child uses one."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pytest_once.site import Site, call_site


@dataclass(frozen=True, slots=True)
class Inherited:
    """A connection to a file that the parent had open at the fork. file: as SQLite names it."""

    connection: sqlite3.Connection
    file: str


def inherited_connections() -> list[Inherited]:
    """The parent's open connections to files, before the fork; databases in memory are harmless."""
    import gc

    kinds = _with_subclasses(sqlite3.Connection)
    found = []
    # What is frozen (the parent freezes all it has before it forks) is in no list.
    frozen = gc.get_freeze_count()
    gc.unfreeze()
    # type(), not isinstance(): lazy proxies must not be woken up.
    connections = [thing for thing in gc.get_objects() if type(thing) in kinds]
    if frozen:
        gc.freeze()
    for thing in connections:
        try:
            cursor = sqlite3.Cursor(thing)
            cursor.row_factory = None
            file = str(cursor.execute("PRAGMA database_list").fetchone()[2])
        except sqlite3.ProgrammingError as error:
            if "thread" not in str(error):
                continue  # closed
            file = "a database opened in another thread"
        if file:
            found.append(Inherited(thing, file))
    return found


def _with_subclasses(cls: type) -> set[type]:
    return {cls}.union(*map(_with_subclasses, cls.__subclasses__()))


def watch_inherited(inherited: Sequence[Inherited], report: Callable[[str, Site], None]) -> None:
    """In the child: call `report(file, site)` when one of the parent's connections is used.

    Such a connection shares locks and file offsets with the parent: what it does is not what a restarted
    process would do. `report` normally does not return.
    """
    by_connection = {id(one.connection): one.file for one in inherited}
    for one in inherited:

        def trace(_sql: str, file: str = one.file) -> None:
            report(file, call_site())

        # Another thread's connection refuses; its thread is gone too, and aiosqlite is caught below.
        with suppress(sqlite3.ProgrammingError):
            one.connection.set_trace_callback(trace)
    core = sys.modules.get("aiosqlite.core")
    execute = getattr(getattr(core, "Connection", None), "_execute", None)
    if core is None or execute is None or not inherited:
        return

    async def reporting_execute(self: Any, *arguments: Any, **named: Any) -> Any:
        file = by_connection.get(id(getattr(self, "_connection", None)))
        if file is not None:
            report(file, call_site())
        return await execute(self, *arguments, **named)

    core.Connection._execute = reporting_execute
