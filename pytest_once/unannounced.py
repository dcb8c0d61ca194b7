"""Changes that nobody announced: what differs in the tracked files between two boundaries beyond what the first may do.

The audit sees a file being opened, and the seams announce what is written through it; a memory map, an extension, an
inherited descriptor or another process writes unseen. Its crash points would be missing from the search, so the
pictures before two boundaries are compared: a database's boundary may change databases, a file's the file it names,
a request none.

Not compared: the ledger, whose arrivals are counted elsewhere; modes; and of databases everything but their rows
(a transaction that is still open leaves a journal, the last connection that closes moves a log into the file).
"""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Iterator, Mapping

from pytest_once.boundaries import Boundary
from pytest_once.canonical import Row
from pytest_once.life import Life, Sight
from pytest_once.stores.directory import DirectorySnapshot, Entry
from pytest_once.stores.sqlite import is_database
from pytest_once.trouble import named
from pytest_once.world import World

_CHANGE_NO_FILE = frozenset({"point", "caller", "call", "http", "choice", "lookup", "provider", "contract", "webhook"})
"""Kinds of boundaries that act elsewhere, or not at all; kinds that are not known here may change anything."""

_PART = re.compile(r"-(?:wal|journal|shm|mj[0-9A-F]{6,})\Z")
_RANDOM = re.compile(r"[*~@]+")
"""What stands in a boundary's target for the parts of a name that differ from run to run."""

_Content = tuple[str, bytes]
_Files = Mapping[str, Entry]


def unannounced_change(world: World, life: Life, before: Sight) -> str | None:
    """What changed in a life without faults although no boundary said so, in words with the remedy; None if nothing.

    before: the world in which the life began.
    """
    seen = [before, *life.sights]
    for index, (earlier, later) in enumerate(itertools.pairwise(seen)):
        if earlier is None or later is None or earlier.picture.key == later.picture.key:
            continue
        passed = life.passages[index - 1].boundary if index else None
        if passed is not None and passed.kind not in _CHANGE_NO_FILE | {"sqlite", "file"}:
            continue
        others = dict(later.picture.snapshots)
        for name, one in earlier.picture.snapshots:
            other = others.get(name)
            if one is other or not isinstance(one, DirectorySnapshot) or not isinstance(other, DirectorySnapshot):
                continue
            path = next(_unannounced(world, name, one, other, passed), None)
            if path is not None:
                start = f"after {named(life, index - 1)}" if index else "before the first boundary"
                return (
                    f"{name}/{path} changed {start} and before {named(life, index)}, without a boundary of its own: no "
                    "crash was tried around that change. A buffer that ran full, a memory map, an extension, a "
                    "descriptor from before the incarnation, or another process wrote it. Write it through open() and "
                    "close it, or through sqlite3, or wrap the function that does it with once.tool(fn, counted=False)"
                )
    return None


def _unannounced(
    world: World, name: str, one: DirectorySnapshot, other: DirectorySnapshot, passed: Boundary | None
) -> Iterator[str]:
    """Paths in a store that changed between two pictures and that the boundary in between does not name."""
    before, after = ({entry.path: entry for entry in snapshot.entries} for snapshot in (one, other))
    changed = [
        path
        for path in before.keys() | after.keys()
        if before.get(path) is not after.get(path) and _content(before, path) != _content(after, path)
    ]
    databases = {_PART.sub("", path) for path in changed}
    databases = {path for path in databases if _is_database(before, path) or _is_database(after, path)}
    files = sorted(path for path in changed if _PART.sub("", path) not in databases)
    kind = passed.kind if passed is not None else ""
    if passed is not None and kind == "file":
        databases = {path for path in databases if not _names(passed, path, before, after)}
        files = [path for path in files if not _names(passed, path, before, after)]
    if databases and kind != "sqlite":  # one commit changes all attached databases, and names only the first
        store = next(store for store in world.stores if store.name == name)
        rows = [_Rows(f"{name}/", store.rows(snapshot)) for snapshot in (one, other)]
        yield from (path for path in sorted(databases) if rows[0](path) != rows[1](path))
    yield from files


def _content(files: _Files, path: str) -> _Content | None:
    """What a file, directory or link holds; a hard link holds what it repeats."""
    entry = files.get(path)
    if entry is not None and entry.kind == "hardlink":
        entry = files.get(entry.data.decode("utf-8", "surrogateescape"), entry)
    return None if entry is None else (entry.kind, entry.digest)


def _is_database(files: _Files, path: str) -> bool:
    entry, wal, journal = (files.get(f"{path}{part}") for part in ("", "-wal", "-journal"))
    if entry is None or entry.kind != "file":
        return False
    return is_database(path, entry.data, wal and wal.data, journal and journal.data)


class _Rows:
    """The rows of one picture of a directory, by database."""

    def __init__(self, prefix: str, rows: list[Row]) -> None:
        self._prefix = prefix
        self._rows = rows

    def __call__(self, path: str) -> list[Row]:
        """A database's rows. One without tables has none: it comes to be when somebody connects."""
        place = self._prefix + path
        return [
            row
            for row in self._rows
            if (row.place == place or row.place.startswith(f"{place}/"))
            and row.names != ("mode",)
            and not (row.place == place and row.cells == (0, 0))
        ]


def _names(boundary: Boundary, path: str, before: _Files, after: _Files) -> bool:
    """Whether a file's boundary may change a path: what it names, what that is linked to, what it is renamed from."""
    verb, _, shown = boundary.target.partition(" ")
    pattern = re.compile(".*".join(map(re.escape, _RANDOM.split(shown))))
    ways = {path, *_links_to(path, before), *_links_to(path, after)}
    if any(pattern.fullmatch(way) or pattern.fullmatch(_PART.sub("", way)) for way in ways):
        return True
    if verb not in ("rename", "replace"):
        return False
    parents = path.split("/")
    if any(pattern.fullmatch("/".join(parents[:depth])) for depth in range(1, len(parents))):
        return True
    if path in after:
        return False
    # The boundary names where it is renamed to: what has gone must be there now.
    gone = _content(before, path)
    return any(
        _content(after, there) == gone
        for there in after
        if any(pattern.fullmatch("/".join(there.split("/")[:depth])) for depth in range(1, there.count("/") + 2))
    )


def _links_to(path: str, files: _Files) -> Iterator[str]:
    """Other paths below which code may have meant this one: hard links, and symbolic links in the same directory."""
    entry = files.get(path)
    group = entry.data.decode("utf-8", "surrogateescape") if entry is not None and entry.kind == "hardlink" else path
    for other in files.values():
        if other.kind == "hardlink" and other.data.decode("utf-8", "surrogateescape") == group:
            yield from (other.path, group)
        elif other.kind == "symlink":
            target = posixpath.normpath(
                posixpath.join(posixpath.dirname(other.path), other.data.decode("utf-8", "surrogateescape"))
            )
            if path == target:
                yield other.path
            elif path.startswith(f"{target}/"):
                yield other.path + path[len(target) :]
