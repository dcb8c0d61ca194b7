"""The world: everything that outlives a process, pictured, put back, and told apart by its logical digest."""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import pickle
import re
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from pytest_once.canonical import Form, Naming, Row, digest, occurring, slot
from pytest_once.differences import describe_changes, most_varied
from pytest_once.stores import Store, StoreError

MEMORY_FREE_BYTES = 64 * 1024 * 1024
"""A memory-backed directory with less room than this is not used."""

_SCRATCH = re.compile(r"pytest-once-(\d+)-")
_KEPT_DIGESTS = 4096

_K = TypeVar("_K")
_V = TypeVar("_V")


class Recent(Generic[_K, _V]):
    """The entries used last, up to a bound."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._entries: OrderedDict[_K, _V] = OrderedDict()

    def get(self, key: _K) -> _V | None:
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    def put(self, key: _K, value: _V) -> None:
        self._entries[key] = value
        if len(self._entries) > self._bound:
            self._entries.popitem(last=False)


@dataclass(frozen=True, slots=True)
class Picture:
    """Snapshots of all stores of a world, by store name. Equal keys mean equal content, byte for byte."""

    snapshots: tuple[tuple[str, Any], ...]
    key: str = field(init=False)

    def __post_init__(self) -> None:
        hasher = hashlib.blake2b(digest_size=16)
        for name, snapshot in self.snapshots:
            for part in (name.encode("utf-8", "surrogateescape"), snapshot.key):
                hasher.update(len(part).to_bytes(4, "big") + part)
        object.__setattr__(self, "key", hasher.hexdigest())


class World:
    """The stores of one exploration. No process may run on them while a method does."""

    def __init__(self, stores: Sequence[Store] = ()) -> None:
        self._stores: dict[str, Store] = {}
        self._instants: Recent[tuple[str, Naming], tuple[int, ...]] = Recent(_KEPT_DIGESTS)
        self._digests: Recent[tuple[str, Naming, tuple[int, bool]], str] = Recent(_KEPT_DIGESTS)
        for store in stores:
            self.add(store)

    def add(self, store: Store) -> None:
        """Track one more store. Raises StoreError if its name is taken."""
        if store.name in self._stores:
            raise StoreError(f"two tracked stores are called {store.name!r}; give one of them another name")
        self._stores[store.name] = store

    @property
    def stores(self) -> tuple[Store, ...]:
        """What is tracked, in the order it was added."""
        return tuple(self._stores.values())

    def locate(self, path: Path) -> tuple[str, str] | None:
        """(store, path inside it) of a file that a directory store tracks, or None."""
        real = os.path.realpath(path)
        for name, store in self._stores.items():
            root = getattr(store, "root", None)
            if root is not None and real.startswith(os.path.join(os.path.realpath(root), "")):
                return name, os.path.relpath(real, os.path.realpath(root))
        return None

    def take(self, now_s: float | None = None) -> Picture:
        """What another process would find now. Raises StoreError.

        now_s: virtual time (epoch seconds), if some has passed since the last picture.
        """
        if now_s is not None:
            for store in self._stores.values():
                if hasattr(store, "now_s"):
                    store.now_s = now_s
        return Picture(tuple((name, store.snapshot()) for name, store in self._stores.items()))

    def put(self, picture: Picture) -> None:
        """Make every store what the picture shows. Raises StoreError, also if the stores are others."""
        snapshots = dict(picture.snapshots)
        if snapshots.keys() != self._stores.keys():
            odd = ", ".join(sorted(map(repr, snapshots.keys() ^ self._stores.keys())))
            raise StoreError(
                f"{odd} was tracked only before or only after the picture was taken; track it at the start"
            )
        for name, store in self._stores.items():
            store.restore(snapshots[name])

    def later(self, picture: Picture, seconds: float) -> Picture:
        """The same picture, the times of its files moved on the virtual clock."""
        return Picture(
            tuple(
                (name, store.later(snapshot, seconds) if hasattr(store := self._stores[name], "later") else snapshot)
                for name, snapshot in picture.snapshots
            )
        )

    def store(self, name: str) -> Store:
        """One of the stores."""
        return self._stores[name]

    def rows(self, picture: Picture) -> list[Row]:
        """The picture's logical content, store by store in the order they were added."""
        rows: list[Row] = []
        for name, snapshot in picture.snapshots:
            rows += self._stores[name].rows(snapshot)
        return rows

    def digest(self, picture: Picture, naming: Naming, now_s: float) -> str:
        """What identifies the picture's state at a virtual time (epoch seconds), up to the naming."""
        # Time enters only through its place among the picture's instants, so that is what the cache asks for.
        instants = self._instants.get((picture.key, naming))
        if instants is not None:
            known = self._digests.get((picture.key, naming, slot(instants, now_s)))
            if known is not None:
                return known
        form = Form(self.rows(picture), naming)
        found = digest(form.render(now_s))
        self._instants.put((picture.key, naming), form.instants)
        self._digests.put((picture.key, naming, form.slot(now_s)), found)
        return found

    def instants(self, picture: Picture, naming: Naming) -> list[float]:
        """The instants stored in a picture, in epoch seconds, ascending."""
        known = self._instants.get((picture.key, naming))
        if known is None:
            known = Form(self.rows(picture), naming).instants
            self._instants.put((picture.key, naming), known)
        return [instant / 1e9 for instant in known]

    def occurring(self, picture: Picture, tokens: frozenset[str]) -> frozenset[str]:
        """Those of the minted texts that occur in the picture."""
        return occurring(self.rows(picture), tokens)

    def changes(self, before: Picture, after: Picture) -> list[str]:
        """What differs between two pictures, for a person: "agent.db/tasks.attempts: 3 -> 4"."""
        return describe_changes(self.rows(before), self.rows(after))

    def most_varied(self, pictures: Iterable[Picture]) -> tuple[str, ...]:
        """At most three columns or places in which the pictures differ most."""
        return tuple(most_varied(self.rows(picture) for picture in pictures)[:3])


class PictureShelf:
    """Pictures kept on disk, one file each, so that memory stays flat in the number of states."""

    def __init__(self, directory: Path) -> None:
        """directory: made if missing, private to the user (pictures hold whatever the world holds)."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)
        self._directory = directory
        self._ids = itertools.count(1)

    def put(self, picture: Picture) -> int:
        """Keep a picture; returns its id."""
        number = next(self._ids)
        with open(self._path(number), "xb", opener=_open_private) as file:
            pickle.dump(picture, file, protocol=5)
        return number

    def get(self, number: int) -> Picture:
        """The picture of that id. Raises KeyError if there is none."""
        try:
            with self._path(number).open("rb") as file:
                picture = pickle.load(file)
        except FileNotFoundError:
            raise KeyError(f"no picture {number} on the shelf; it was dropped or never put") from None
        assert isinstance(picture, Picture)
        return picture

    def drop(self, number: int) -> None:
        """Forget a picture; one that is not there is no error."""
        self._path(number).unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self._directory / f"{number}.picture"


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def memory_backed_directory() -> Path | None:
    """A directory that lives in memory and has room, or None. Disk syncs would dominate everything else."""
    path = Path("/dev/shm")
    try:
        free = os.statvfs(path)
        writable = os.access(path, os.W_OK | os.X_OK)
        # A directory of that name on the root file system is an ordinary one, on disk.
        mounted = path.is_dir() and path.stat().st_dev != path.parent.parent.stat().st_dev
    except OSError:
        return None
    return path if writable and mounted and free.f_bavail * free.f_frsize > MEMORY_FREE_BYTES else None


def scratch(prefix: str) -> Path:
    """A new private directory, in memory when possible, named after its process. The caller removes it."""
    name = f"pytest-once-{os.getpid()}-{prefix}-"
    return Path(tempfile.mkdtemp(prefix=name, dir=memory_backed_directory()))


def sweep_stale() -> list[Path]:
    """Remove this user's scratch directories whose process has ended; returns them."""
    removed = []
    roots = {root for root in (memory_backed_directory(), Path(tempfile.gettempdir())) if root is not None}
    for root in sorted(roots):
        with os.scandir(root) as entries:
            stale = [entry.path for entry in entries if _is_stale(entry)]
        for path in stale:
            shutil.rmtree(path, ignore_errors=True)
            removed.append(Path(path))
    return removed


def _is_stale(entry: os.DirEntry[str]) -> bool:
    match = _SCRATCH.match(entry.name)
    try:
        if match is None or not entry.is_dir(follow_symlinks=False):
            return False
        if entry.stat(follow_symlinks=False).st_uid != os.getuid():
            return False
        os.kill(int(match[1]), 0)
    except OSError as error:
        # Only a process that certainly does not exist makes a directory stale.
        return error.errno == errno.ESRCH
    return False
