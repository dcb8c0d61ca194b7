"""A world is taken, kept, put back and told apart."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from pytest_once import world as world_module
from pytest_once.canonical import Naming
from pytest_once.ledger import Ledger
from pytest_once.stores import Store, StoreError
from pytest_once.stores.directory import DirectoryStore
from pytest_once.stores.ledger import LedgerStore
from pytest_once.world import PictureShelf, World, memory_backed_directory, scratch, sweep_stale

NOW = 1_700_000_000.0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "world"
    root.mkdir()
    with closing(sqlite3.connect(root / "agent.db")) as connection, connection:
        connection.execute("CREATE TABLE tasks(id INTEGER PRIMARY KEY, lease REAL)")
        connection.execute("INSERT INTO tasks VALUES (1, ?)", (NOW + 60,))
    return root


def test_a_picture_put_back_is_the_world_it_was_taken_of(root: Path) -> None:
    """Everything else rests on this."""
    store: Store = DirectoryStore(root)
    world = World([store])
    before = world.take()
    (root / "agent.db").write_bytes(b"")
    (root / "more").mkdir()
    assert world.take().key != before.key
    world.put(before)
    assert world.take().key == before.key
    assert world.changes(before, world.take()) == []


def test_the_digest_follows_time_only_across_instants(root: Path) -> None:
    """The cache must not answer for a time on the other side of a lease."""
    world = World([DirectoryStore(root)])
    picture = world.take()
    naming = Naming(clock_window=(NOW - 1000, NOW + 1000))
    digests = [world.digest(picture, naming, NOW + s) for s in (0, 30, 60, 61, 90, 30, 60)]
    fresh = [World([DirectoryStore(root)]).digest(picture, naming, NOW + s) for s in (0, 30, 60, 61, 90, 30, 60)]
    assert digests == fresh
    assert digests[0] == digests[1] == digests[5]
    assert digests[3] == digests[4]
    assert len(set(digests)) == 3


def test_the_digest_depends_on_the_naming(root: Path) -> None:
    """One picture may be asked about under several namings."""
    world = World([DirectoryStore(root)])
    picture = world.take()
    assert world.digest(picture, Naming(), NOW) != world.digest(picture, Naming(ignore=("tasks.lease",)), NOW)


def test_stores_must_be_told_apart_and_stay_the_same(root: Path, tmp_path: Path) -> None:
    """A picture without one of the stores cannot be put back whole."""
    world = World([DirectoryStore(root, "one")])
    picture = world.take()
    with pytest.raises(StoreError, match="called 'one'"):
        world.add(DirectoryStore(tmp_path, "one"))
    world.add(DirectoryStore(tmp_path, "two"))
    with pytest.raises(StoreError, match="'two' was tracked only"):
        world.put(picture)


def test_the_shelf_keeps_pictures_on_disk(root: Path, tmp_path: Path) -> None:
    """Memory stays flat in the number of states; pictures are private."""
    world = World([DirectoryStore(root)])
    shelf = PictureShelf(tmp_path / "shelf")
    first = shelf.put(world.take())
    (root / "new").touch()
    second = shelf.put(world.take())
    assert first != second
    assert shelf.get(second) == world.take()
    world.put(shelf.get(first))
    assert not (root / "new").exists()
    assert stat.S_IMODE((tmp_path / "shelf").stat().st_mode) == 0o700
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in (tmp_path / "shelf").iterdir())
    shelf.drop(first)
    shelf.drop(first)
    with pytest.raises(KeyError, match="no picture 1"):
        shelf.get(first)


def test_the_ledger_is_a_store(tmp_path: Path) -> None:
    """What providers did is restored with the files, and only its state enters the digest."""
    path = tmp_path / "ledger.db"
    Ledger.create(path)
    world = World([LedgerStore(path)])
    empty = world.take()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE noted(x)")
    changed = world.take()
    assert changed.key != empty.key
    assert world.digest(changed, Naming(), NOW) == world.digest(empty, Naming(), NOW)
    world.put(empty)
    assert world.take().key == empty.key
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["ledger.db"]
    assert all(row.place.startswith("ledger/") for row in world.rows(empty))


def test_a_ledger_in_the_middle_of_a_transaction_is_refused(tmp_path: Path) -> None:
    """Its bytes would be no state that any reader could see."""
    path = tmp_path / "ledger.db"
    Ledger.create(path)
    Path(f"{path}-journal").write_bytes(b"half")
    with pytest.raises(StoreError, match="a provider is writing it"):
        LedgerStore(path).snapshot()
    with pytest.raises(StoreError, match="missing"):
        LedgerStore(tmp_path / "none.db").snapshot()


def test_scratch_directories_of_ended_processes_are_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed run leaves its world behind; the next one clears it, and nobody else's."""
    monkeypatch.setattr(world_module, "memory_backed_directory", lambda: tmp_path)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    ended = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True
    ).stdout.strip()
    stale = tmp_path / f"pytest-once-{ended}-world-x"
    stale.mkdir()
    (tmp_path / "pytest-once-notes").mkdir()
    mine = scratch("world")
    assert stat.S_IMODE(mine.stat().st_mode) == 0o700
    assert mine.name.startswith(f"pytest-once-{os.getpid()}-world-")
    assert sweep_stale() == [stale]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["pytest-once-notes", mine.name])


def test_scratch_prefers_memory() -> None:
    """Disk syncs dominate everything else."""
    directory = scratch("test")
    try:
        memory = memory_backed_directory()
        assert memory is None or directory.parent == memory
    finally:
        shutil.rmtree(directory)
