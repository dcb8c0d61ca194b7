"""Whether what `ignore=` leaves out of the state really decides nothing: it is changed, and the life must be the same.

Two states that differ in ignored values are one node of the graph, and only one of them is lived on. That is right
only if the other would have gone the same way; so every node is also lived with other values in what is ignored.

A value is exchanged for another one of its kind, so that code which only reads it does not stumble: a number for a
larger one, a date for one years later, a UUID for another, JSON for the same shape with other leaves. NULL stays, and
so does a row whose constraints refuse the new value; the latter is told.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_once.canonical import MTIME, matches_column, matches_place
from pytest_once.evidence import Evidence
from pytest_once.incarnation import Ended
from pytest_once.life import Life
from pytest_once.scanning import Cell
from pytest_once.stores import Exchanged, Store
from pytest_once.stores.directory import DirectorySnapshot, Entry
from pytest_once.stores.ledger import LedgerPicture
from pytest_once.stores.sqlite import is_database, super_journal_of
from pytest_once.trouble import named, parting
from pytest_once.world import Picture, World, scratch

STEP = 1_000_003
"""What is added to a number: large, so that it passes every limit; a prime, so that no two become the same."""

YEARS = 4
"""By how much a date is moved: a leap day stays one."""

MARK = "~perturbed"
_YEAR_NS = 365 * 86400 * 10**9

_DATE = re.compile(r"(\d{4})(?=-\d\d-\d\d)", re.ASCII)
_UUID = re.compile(r"(?:[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|[0-9a-f]{16,})", re.IGNORECASE | re.ASCII)
_NUMBER = re.compile(r"\d{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Perturbed:
    """A picture with other values in what is ignored.

    changed: places that hold other values now ("tmp_path/agent.db/tasks.attempts"). left: what could not be changed,
    and why.
    """

    picture: Picture
    changed: tuple[str, ...]
    left: tuple[str, ...] = ()


def perturbed(world: World, picture: Picture, ignore: tuple[str, ...]) -> Perturbed | None:
    """The same world with every ignored value exchanged; None if it holds no ignored value.

    ignore: patterns, as a Naming takes them. The ledger is left alone: it is the provider's.
    """
    if not ignore:
        return None
    changed: list[str] = []
    left: list[str] = []
    snapshots = []
    for name, snapshot in picture.snapshots:
        if isinstance(snapshot, DirectorySnapshot):
            snapshot = _other_directory(name, snapshot, ignore, changed, left)
        elif not isinstance(snapshot, LedgerPicture):
            snapshot = _other_store(world.store(name), snapshot, ignore, changed, left)
        snapshots.append((name, snapshot))
    return Perturbed(Picture(tuple(snapshots)), tuple(changed), tuple(left)) if changed or left else None


def outcome_differs(evidence: Evidence, base: Life, other: Life) -> str | None:
    """Where two lives part, in words; None if they passed the same boundaries, states, effects and claim.

    What is ignored is no part of the states compared.
    """
    at = parting(base, other)
    if at < max(len(base.passages), len(other.passages)):
        return f"it goes on with {named(other, at)} instead of {named(base, at)}"
    if _claim(base) != _claim(other):
        return f"it ends with {_claim(other)} instead of {_claim(base)}"
    for index, (one, two) in enumerate(zip(base.sights, other.sights, strict=True)):
        if one is None or two is None:
            continue
        if evidence.counts(one) != evidence.counts(two):
            return f"other effects have happened before {named(base, index)}"
        if evidence.digest(one) != evidence.digest(two):
            return f"another world is left before {named(base, index)}"
    return None


def ignored_yet_decisive(disturbed: Perturbed, difference: str) -> str:
    """What to tell when exchanging ignored values has changed what happens."""
    which = ", ".join(disturbed.changed[:3]) + (" and others" if len(disturbed.changed) > 3 else "")
    return (
        f"ignore= leaves {which} out of the state, but it decides what the code does: with another value in it, "
        f"{difference}. States that differ in it must not be taken for the same: take it out of ignore=, or take the "
        "decision on something else"
    )


def differs_anyway(world: World, evidence: Evidence, base: Life, again: Life) -> str | None:
    """What to tell if two lives from one and the same picture part; None if they are the same."""
    difference = outcome_differs(evidence, base, again)
    if difference is None:
        return None
    worlds = [(one, two) for one, two in zip(base.sights, again.sights, strict=False) if one is not None and two]
    changes = (
        world.changes(one.picture, two.picture) for one, two in worlds if evidence.digest(one) != evidence.digest(two)
    )
    values = "; ".join(next(changes, [])[:3])
    return (
        f"the same schedule was run twice from the same state, and the second time {difference}"
        f"{f' ({values})' if values else ''}. Make what is stored and done a function of the stored state, or name the "
        "column in ignore= if it never decides anything"
    )


def _claim(life: Life) -> str:
    if not isinstance(life.ending, Ended):
        return type(life.ending).__name__
    return f"{life.ending.claim!r}" + (f" ({life.ending.error})" if life.ending.error else "")


# Directories.


def _other_directory(
    name: str, snapshot: DirectorySnapshot, ignore: tuple[str, ...], changed: list[str], left: list[str]
) -> DirectorySnapshot:
    files = {entry.path: entry for entry in snapshot.entries if entry.kind == "file"}
    replaced: dict[str, Entry | None] = {}
    parts: set[str] = set()
    for path, entry in files.items():
        place = f"{name}/{path}"
        wal, journal = files.get(f"{path}-wal"), files.get(f"{path}-journal")
        if is_database(path, entry.data, wal and wal.data, journal and journal.data):
            parts.update((f"{path}-wal", f"{path}-journal"))
            logs = wal.data if wal else b"", journal.data if journal else b""
            data = _other_database(place, entry.data, *logs, ignore, changed, left)
            if data is not None:  # recovered: its logs are no more
                replaced |= {path: _entry(entry, data), f"{path}-wal": None, f"{path}-journal": None}
        elif path not in parts:
            whole = matches_place(place, ignore)
            if whole or matches_column(place, "content", ignore):
                entry = replaced[path] = _entry(entry, _other_content(entry.data))
                changed.append(place)
            if entry.mtime_ns is not None and (whole or matches_column(place, MTIME, ignore)):
                replaced[path] = entry._replace(mtime_ns=entry.mtime_ns - YEARS * _YEAR_NS)
                if not whole:
                    changed.append(f"{place}.{MTIME}")
    if not replaced:
        return snapshot
    exchanged = (replaced.get(entry.path, entry) for entry in snapshot.entries)
    entries = tuple(entry for entry in exchanged if entry is not None)
    key = hashlib.blake2b(snapshot.key, digest_size=16, person=b"perturbed")
    for entry in entries:
        key.update(entry.digest)
    return DirectorySnapshot(entries, key.digest(), snapshot.skipped)


def _entry(entry: Entry, data: bytes) -> Entry:
    return entry._replace(data=data, digest=hashlib.sha256(data).digest())


def _other_content(data: bytes) -> bytes:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data + MARK.encode()
    ending = "\n" if text.endswith("\n") else ""
    return (_other_text(text.strip()) + ending if len(text) < 100_000 else text + MARK + ending).encode()


# Other stores.


def _other_store(store: Store, snapshot: Any, ignore: tuple[str, ...], changed: list[str], left: list[str]) -> Any:
    def ignored(place: str, column: str) -> bool:
        return matches_place(place, ignore) or matches_column(place, column, ignore)

    if hasattr(store, "exchanged"):
        found: Exchanged = store.exchanged(snapshot, ignored, other_value)
        changed += found.changed
        left += found.left
        return found.snapshot
    named = {
        f"{row.place}.{column} (its store cannot exchange values)"
        for row in store.rows(snapshot)
        for column, cell in zip(row.names, row.cells, strict=True)
        if cell is not None and ignored(row.place, column)
    }
    left += sorted(named)
    return snapshot


# Databases.


def _other_database(
    place: str,
    data: bytes,
    wal: bytes,
    journal: bytes,
    ignore: tuple[str, ...],
    changed: list[str],
    left: list[str],
) -> bytes | None:
    """The file with other values, recovered as the next process would; None if nothing in it is ignored."""
    if not data and not wal:
        return None
    if super_journal_of(journal) is not None:
        left.append(f"{place} (in the middle of a commit over several databases)")
        return None
    directory = scratch("perturbed")
    try:
        path = directory / "copy.db"
        for suffix, content in (("", data), ("-wal", wal), ("-journal", journal)):
            if content or not suffix:
                Path(f"{path}{suffix}").write_bytes(content)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute("PRAGMA synchronous=OFF")
            found = list(_exchange(place, connection, ignore, left))
            if not found:
                return None
            changed += found
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return path.read_bytes()
    except sqlite3.DatabaseError as error:
        left.append(f"{place} ({error})")
        return None
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _exchange(place: str, connection: sqlite3.Connection, ignore: tuple[str, ...], left: list[str]) -> Iterator[str]:
    """Exchange the ignored values of a database; yields the columns that hold other ones now."""
    connection.create_function("once_other", 1, other_value, deterministic=True)
    execute = connection.execute
    execute("PRAGMA foreign_keys=OFF")
    tables = execute("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage ORDER BY name").fetchall()
    wanted = [
        (str(table), str(field[1]))
        for (table,) in tables
        if not str(table).startswith("sqlite_")
        for field in execute(f"PRAGMA table_xinfo({_quoted(table)})").fetchall()
        if field[6] == 0  # generated columns follow from the others
        if matches_place(f"{place}/{table}", ignore) or matches_column(f"{place}/{table}", str(field[1]), ignore)
    ]
    if not wanted:
        return
    execute("BEGIN IMMEDIATE")
    # A trigger would change what is not ignored.
    triggers = execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY rowid").fetchall()
    for trigger, _ in triggers:
        execute(f"DROP TRIGGER {_quoted(trigger)}")
    for table, column in wanted:
        label, name = f"{place}/{table}.{column}", _quoted(column)
        present = f"FROM {_quoted(table)} WHERE {name} IS NOT NULL"
        try:
            rows = execute(f"SELECT count(*) {present}").fetchone()[0]
            update = f"UPDATE OR IGNORE {_quoted(table)} SET {name} = once_other({name}) WHERE {name} IS NOT NULL"
            exchanged = execute(update).rowcount
        except sqlite3.DatabaseError as error:  # an index by a function or a collation of the application's own
            left.append(f"{label} ({error})")
            continue
        if exchanged < rows:
            left.append(f"{label} ({rows - exchanged} of {rows} rows, by a constraint)")
        if exchanged:
            yield label
    for _, sql in triggers:
        execute(sql)
    execute("COMMIT")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# Values.


def other_value(cell: Cell) -> Cell:
    """Another value of the same type, and where possible of the same form; different ones stay different."""
    if isinstance(cell, str):
        return _other_text(cell)
    if isinstance(cell, bytes):
        return cell + MARK.encode()
    if isinstance(cell, int):
        return cell + STEP if cell + STEP < 2**63 else cell - STEP
    return cell if cell is None else cell + float(STEP)


def _other_text(text: str) -> str:
    if _DATE.match(text):
        return _DATE.sub(lambda year: f"{(int(year[1]) + YEARS) % 10000:04}", text, count=1)
    if _NUMBER.fullmatch(text):
        return str(int(text) + STEP)
    if _UUID.fullmatch(text):
        return text[:-1] + f"{int(text[-1], 16) ^ 1:x}"
    if text[:1] in ("{", "["):
        try:
            value = json.loads(text)
        except ValueError:
            return text + MARK
        other = json.dumps(_other_leaves(value, _other_leaf), ensure_ascii=False)
        return other if json.loads(other) != value else text + " "
    return text + MARK


def _other_leaves(value: Any, other: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {name: _other_leaves(one, other) for name, one in value.items()}
    if isinstance(value, list):
        return [_other_leaves(one, other) for one in value]
    return other(value)


def _other_leaf(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    return other_value(value) if isinstance(value, (int, float, str)) else value
