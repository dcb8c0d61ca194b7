"""A directory as a store: every file, directory and link below it, byte for byte.

Where a virtual clock is kept, modification times belong to the picture, those of databases excepted: SQLite changes
its files when it likes. A time that the operating system gave meanwhile (a memory map, an extension) is replaced by the
virtual one of the picture that shows it first.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pytest_once import filetimes
from pytest_once.canonical import MTIME, Row
from pytest_once.clock import EPOCH_S
from pytest_once.scanning import Cell
from pytest_once.stores import StoreError
from pytest_once.stores.sqlite import MAGIC, SUFFIXES, database_rows, is_database, super_journal_of

LARGEST_FILE_BYTES = 256 * 1024 * 1024

_USUAL_FILE_MODE, _USUAL_DIRECTORY_MODE = 0o644, 0o755
_SUPER_JOURNAL = re.compile(r"-mj[0-9A-F]{6,}\Z")
_FILE, _DIRECTORY, _SYMLINK, _HARDLINK = "file", "directory", "symlink", "hardlink"


class Entry(NamedTuple):
    """One thing in a directory.

    path: relative, with "/". data: a file's content; a symlink's target; for a hard link, the path it
    repeats. digest: hash of data. mtime_ns: when it was modified, on the virtual clock; None where that is not kept.
    """

    path: str
    kind: str
    mode: int
    data: bytes
    digest: bytes
    mtime_ns: int | None = None


@dataclass(frozen=True, slots=True)
class DirectorySnapshot:
    """A directory's entries, parents first. skipped: sockets and pipes, which have no content to keep."""

    entries: tuple[Entry, ...]
    key: bytes
    skipped: tuple[str, ...] = ()


class _Vanished(Exception):
    """Something was listed and is gone."""


class DirectoryStore:
    """All of a directory. Modes are kept, other times than of modification, owners and extended attributes are not.

    now_s: the virtual time (epoch seconds) at which a picture is taken; whoever takes one keeps it up to date.
    """

    def __init__(self, root: Path, label: str = "", *, keeps_times: bool = False) -> None:
        """label: the store's name and prefix of its rows' places; else places are relative to root.

        keeps_times: modification times are on the virtual clock, and belong to the picture.
        """
        self.now_s = EPOCH_S - 1.0
        self._keeps_times = keeps_times
        self._aged = not keeps_times
        self._databases: set[str] = set()
        self.name = label or str(root)
        self._label = label
        self._root = os.path.abspath(root)
        self._known: dict[str, Entry] = {}
        self._last: DirectorySnapshot | None = None

    @property
    def root(self) -> Path:
        """The directory that is tracked."""
        return Path(self._root)

    def snapshot(self) -> DirectorySnapshot:
        """Raises StoreError for what cannot be kept: a device, a huge or unreadable file."""
        if not self._aged:
            self._age()
            self._aged = True
        try:
            return self._scan()
        except _Vanished:
            try:
                return self._scan()
            except _Vanished as error:
                raise StoreError(
                    f"{error} keeps vanishing while the process under test is stopped: another process is "
                    f"working in {self._root}; stop it, or track a directory that it does not use"
                ) from None

    def _age(self) -> None:
        """Give what was there before the first process times that the virtual clock has passed."""
        real: dict[str, int] = {}
        for directory, names, files in os.walk(self._root):
            for path in (os.path.join(directory, name) for name in (*names, *files)):
                with suppress(FileNotFoundError):
                    status = os.lstat(path)
                    if stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
                        real[path] = status.st_mtime_ns
        aged = filetimes.aged(set(real.values()), time.time_ns())
        for path, mtime_ns in real.items():
            if mtime_ns in aged:
                _set_time(path, aged[mtime_ns])

    def later(self, snapshot: DirectorySnapshot, seconds: float) -> DirectorySnapshot:
        """The same picture, its times moved on the virtual clock."""
        by_ns = filetimes.at(seconds)
        entries = tuple(
            entry._replace(mtime_ns=entry.mtime_ns + by_ns)
            if entry.mtime_ns is not None and filetimes.is_virtual(entry.mtime_ns)
            else entry
            for entry in snapshot.entries
        )
        return DirectorySnapshot(entries, _key(entries), snapshot.skipped)

    def _scan(self) -> DirectorySnapshot:
        self._databases.clear()
        entries: list[Entry] = []
        skipped: list[str] = []
        self._scan_below("", entries, skipped, {})
        last = self._last
        found = tuple(entries)
        if last is not None and last.entries == found and last.skipped == tuple(skipped):
            return last
        self._known = {entry.path: entry for entry in found}
        self._last = DirectorySnapshot(found, _key(found), tuple(skipped))
        return self._last

    def _scan_below(
        self, below: str, entries: list[Entry], skipped: list[str], linked: dict[tuple[int, int], str]
    ) -> None:
        for found in _listing(os.path.join(self._root, below) if below else self._root, required=not below):
            path = f"{below}/{found.name}" if below else found.name
            if found.is_symlink():
                try:
                    target = os.fsencode(os.readlink(found.path))
                except FileNotFoundError:
                    raise _Vanished(found.path) from None
                entries.append(self._entry(path, _SYMLINK, 0, target))
                continue
            try:
                status = found.stat(follow_symlinks=False)
            except FileNotFoundError:
                raise _Vanished(found.path) from None
            mode = stat.S_IMODE(status.st_mode)
            if stat.S_ISDIR(status.st_mode):
                entries.append(self._entry(path, _DIRECTORY, mode, b"", self._time(found.path, status)))
                self._scan_below(path, entries, skipped, linked)
            elif stat.S_ISREG(status.st_mode):
                if path.endswith("-shm") and self._is_beside_database(found.path):
                    continue
                if status.st_nlink > 1:
                    first = linked.setdefault((status.st_dev, status.st_ino), path)
                    if first != path:
                        entries.append(self._entry(path, _HARDLINK, mode, os.fsencode(first)))
                        continue
                data = _content(found.path, status.st_size)
                mtime_ns = None if self._is_of_database(path, data) else self._time(found.path, status)
                entries.append(self._entry(path, _FILE, mode, data, mtime_ns))
            elif stat.S_ISSOCK(status.st_mode) or stat.S_ISFIFO(status.st_mode):
                skipped.append(path)
            else:
                raise StoreError(f"{found.path} is a device and cannot be put back; move it out of {self._root}")

    def _time(self, path: str, status: os.stat_result) -> int | None:
        if not self._keeps_times:
            return None
        if not filetimes.is_real(status.st_mtime_ns):
            return status.st_mtime_ns
        now_ns = filetimes.at(self.now_s)
        _set_time(path, now_ns)
        return now_ns

    def _is_of_database(self, path: str, data: bytes) -> bool:
        """Whether a file is a database or, listed after it, its log or journal."""
        if data.startswith(MAGIC) or (not data and path.endswith(SUFFIXES)):
            self._databases.add(path)
            return True
        if not self._databases:
            return False
        base, _, part = path.rpartition("-")
        return base in self._databases and part.startswith(("wal", "journal", "mj"))

    def _entry(self, path: str, kind: str, mode: int, data: bytes, mtime_ns: int | None = None) -> Entry:
        # Comparing with what was there last is many times cheaper than hashing, and shares the memory.
        known = self._known.get(path)
        if known is not None and known.data == data and known.kind == kind:
            if known.mode == mode and known.mtime_ns == mtime_ns:
                return known
            return known._replace(mode=mode, mtime_ns=mtime_ns)
        return Entry(path, kind, mode, data, hashlib.sha256(data).digest(), mtime_ns)

    @staticmethod
    def _is_beside_database(path: str) -> bool:
        """Whether an -shm file is a log's index, which whoever opens the database rebuilds."""
        try:
            with open(path.removesuffix("-shm"), "rb") as database:
                return database.read(len(MAGIC)) in (b"", MAGIC)
        except OSError:
            return False

    def restore(self, snapshot: DirectorySnapshot) -> None:
        """Make the directory the picture.

        Every file becomes a new one, out of reach of whoever still has the old one open. Sockets and pipes
        stay, as a server outside the world may own them. Raises StoreError.
        """
        root = self._root
        wanted = {entry.path: entry for entry in snapshot.entries}
        self._clear("", wanted)
        directories: list[tuple[str, Entry]] = []
        try:
            for entry in snapshot.entries:
                path = os.path.join(root, entry.path)
                if entry.kind == _FILE:
                    _create(path, entry.data, entry.mode, entry.mtime_ns)
                elif entry.kind == _DIRECTORY:
                    if not os.path.isdir(path):  # what stood in its way has been cleared
                        os.mkdir(path, 0o700)
                    directories.append((path, entry))
                elif entry.kind == _SYMLINK:
                    os.symlink(os.fsdecode(entry.data), path)
                else:
                    os.link(os.path.join(root, os.fsdecode(entry.data)), path, follow_symlinks=False)
            for path, entry in reversed(directories):
                os.chmod(path, entry.mode)
                if entry.mtime_ns is not None:
                    _set_time(path, entry.mtime_ns)
        except OSError as error:
            raise StoreError(
                f"{root} cannot be put back ({error}); check free space and permissions, and that nobody "
                "else works in it"
            ) from error
        self._known = wanted

    def _clear(self, below: str, wanted: dict[str, Entry]) -> None:
        directory = os.path.join(self._root, below) if below else self._root
        for found in _listing(directory, required=not below):
            path = f"{below}/{found.name}" if below else found.name
            if found.is_dir(follow_symlinks=False):
                if stat.S_IMODE(found.stat(follow_symlinks=False).st_mode) & 0o700 != 0o700:
                    os.chmod(found.path, 0o700)
                self._clear(path, wanted)
                entry = wanted.get(path)
                if entry is None or entry.kind != _DIRECTORY:
                    try:
                        os.rmdir(found.path)
                    except OSError as error:
                        if error.errno != errno.ENOTEMPTY:
                            raise
                        if entry is not None:
                            raise StoreError(
                                f"{found.path} holds a socket or pipe where the picture has a {entry.kind}; "
                                "put sockets outside the tracked directory"
                            ) from error
            elif found.is_symlink() or found.is_file(follow_symlinks=False):
                os.unlink(found.path)
            elif path in wanted:
                raise StoreError(
                    f"{found.path} is a socket or pipe where the picture has a {wanted[path].kind}; "
                    "put sockets outside the tracked directory"
                )

    def rows(self, snapshot: DirectorySnapshot) -> list[Row]:
        """One row a file, link or directory; a SQLite database's own rows instead of its bytes."""
        return list(self._rows(snapshot))

    def _rows(self, snapshot: DirectorySnapshot) -> Iterator[Row]:
        files = {entry.path: entry for entry in snapshot.entries if entry.kind == _FILE}
        databases: dict[str, tuple[bytes | None, bytes | None, bytes]] = {}
        parts: set[str] = set()
        for path, entry in files.items():
            wal, journal = files.get(f"{path}-wal"), files.get(f"{path}-journal")
            wal_data, journal_data = wal and wal.data, journal and journal.data
            if is_database(path, entry.data, wal_data, journal_data):
                key = b"".join(part.digest if part else bytes(32) for part in (entry, wal, journal))
                databases[path] = (wal_data, journal_data, key)
                parts.update((f"{path}-wal", f"{path}-journal"))
        # What a super-journal does is seen in the rows of its databases; its own name is random.
        likely = filter(_SUPER_JOURNAL.search, files)
        supers = {path for path in likely if path.rpartition("-mj")[0] in databases}
        super_names = frozenset(path.rpartition("/")[2] for path in supers)
        parts |= supers
        # What has entries changes its time with each of them; their own times tell as much.
        occupied = {entry.path.rpartition("/")[0] for entry in snapshot.entries}
        prefix = f"{self._label}/" if self._label else ""
        for entry in snapshot.entries:
            if entry.path in parts:
                continue
            place = prefix + entry.path
            if entry.kind == _DIRECTORY:
                mode = None if entry.mode == _USUAL_DIRECTORY_MODE else entry.mode
                if entry.mtime_ns is None or entry.path in occupied:
                    yield Row(place, ("directory",), (mode,))
                else:
                    yield Row(place, ("directory", MTIME), (mode, entry.mtime_ns))
            elif entry.kind != _FILE:
                yield Row(place, (entry.kind,), (os.fsdecode(entry.data),))
            elif entry.path in databases:
                if entry.mode != _USUAL_FILE_MODE:
                    yield Row(place, ("mode",), (entry.mode,))
                wal_data, journal_data, key = databases[entry.path]
                yield from database_rows(
                    place,
                    entry.data,
                    wal_data,
                    journal_data,
                    super_journals=super_names if super_journal_of(journal_data) else (),
                    content_key=key,
                )
            else:
                content = _text(entry.data)
                cells: dict[str, Cell] = {"content": content}
                if entry.mode != _USUAL_FILE_MODE:
                    cells["mode"] = entry.mode
                if entry.mtime_ns is not None:
                    cells[MTIME] = entry.mtime_ns
                yield Row(place, tuple(cells), tuple(cells.values()))


def _key(entries: tuple[Entry, ...]) -> bytes:
    hasher = hashlib.blake2b(digest_size=16)
    for entry in entries:
        path = os.fsencode(entry.path)
        known = (len(path), path, entry.kind.encode(), entry.mode, entry.mtime_ns or 0)
        hasher.update(b"%d %s %s %o %d " % known + entry.digest)
    return hasher.digest()


def _set_time(target: str | int, mtime_ns: int) -> None:
    with suppress(PermissionError, FileNotFoundError):  # somebody else's; put back, it will be ours
        os.utime(target, ns=(mtime_ns, mtime_ns))


def _listing(directory: str, *, required: bool) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except FileNotFoundError:
        if not required:
            raise _Vanished(directory) from None
        raise StoreError(f"the tracked directory {directory} does not exist; track one that lasts") from None
    except OSError as error:
        raise StoreError(
            f"{directory} cannot be listed ({error}); make it readable or keep it out of the world"
        ) from error


def _content(path: str, size: int) -> bytes:
    if size > LARGEST_FILE_BYTES:
        raise StoreError(
            f"{path} is {size // 2**20} MiB, more than the {LARGEST_FILE_BYTES // 2**20} MiB a picture may "
            "hold; keep it out of the tracked directories"
        )
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise _Vanished(path) from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read ({error}); make it readable or keep it out of the world") from error
    try:
        chunks = []
        while chunk := os.read(descriptor, max(size + 1, 65536)):
            chunks.append(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)
    finally:
        os.close(descriptor)


def _create(path: str, data: bytes, mode: int, mtime_ns: int | None) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fchmod(descriptor, mode)
        if mtime_ns is not None:
            _set_time(descriptor, mtime_ns)
    finally:
        os.close(descriptor)


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data
