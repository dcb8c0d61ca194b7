"""A directory's picture holds what another process would find, and putting it back leaves nothing else."""

from __future__ import annotations

import os
import pickle
import socket
import sqlite3
import stat
import time
from contextlib import closing
from pathlib import Path

import pytest

from pytest_once.canonical import Row
from pytest_once.clock import EPOCH_S
from pytest_once.stores import StoreError, directory
from pytest_once.stores.directory import DirectoryStore


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "world"
    root.mkdir()
    return root


def listing(root: Path) -> dict[str, tuple[int, bytes | str | None]]:
    """Path -> mode and content, read without the store."""
    found: dict[str, tuple[int, bytes | str | None]] = {}
    for path in sorted(root.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(root))] = (0 if path.is_symlink() else mode, content)
    return found


def build(root: Path) -> None:
    (root / "a.txt").write_text("text")
    (root / "run.sh").write_text("#!")
    (root / "run.sh").chmod(0o755)
    (root / "blob").write_bytes(b"\xff\x00")
    (root / "sub" / "deep").mkdir(parents=True)
    (root / "sub" / "b.txt").write_text("b")
    (root / "locked").mkdir()
    (root / "locked" / "inside").write_text("i")
    (root / "locked").chmod(0o555)
    (root / "link").symlink_to("a.txt")
    (root / "dangling").symlink_to("/nowhere/at/all")
    os.link(root / "a.txt", root / "twin.txt")


def test_restore_makes_the_directory_exactly_the_picture(root: Path, tmp_path: Path) -> None:
    """Content, modes, links, hard links, and nothing beside them, whatever stands in the way."""
    build(root)
    store = DirectoryStore(root)
    picture, before = store.snapshot(), listing(root)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")

    (root / "a.txt").unlink()
    (root / "a.txt").symlink_to(outside / "kept")
    (root / "sub" / "b.txt").unlink()
    (root / "sub" / "deep").rmdir()
    (root / "sub").rmdir()
    (root / "sub").symlink_to(outside)
    (root / "link").unlink()
    (root / "link").mkdir()
    (root / "link" / "more").write_text("more")
    (root / "blob").unlink()
    (root / "new").write_text("new")
    (root / "locked").chmod(0o755)

    store.restore(picture)
    assert listing(root) == before
    assert store.snapshot() == picture
    assert (root / "a.txt").samefile(root / "twin.txt")
    assert listing(outside) == {"kept": (stat.S_IMODE((outside / "kept").stat().st_mode), b"kept")}


def test_restored_files_are_out_of_reach_of_open_descriptors(root: Path) -> None:
    """An orphan of a killed process must not write into its successor's world."""
    (root / "log").write_text("one")
    store = DirectoryStore(root)
    picture = store.snapshot()
    with (root / "log").open("a") as orphan:
        store.restore(picture)
        orphan.write("late")
    assert (root / "log").read_text() == "one"


def test_equal_directories_have_equal_keys(root: Path) -> None:
    """Keys are of content: two stores, or the same one later, agree; pictures survive pickling."""
    build(root)
    store = DirectoryStore(root)
    picture = store.snapshot()
    assert DirectoryStore(root).snapshot() == picture
    assert store.snapshot() is picture
    assert pickle.loads(pickle.dumps(picture, 5)) == picture
    for change in (
        lambda: (root / "a.txt").write_text("texT"),
        lambda: (root / "a.txt").chmod(0o600),
        lambda: (root / "empty").mkdir(),
        lambda: (root / "link").unlink(),
    ):
        before = store.snapshot().key
        change()
        assert store.snapshot().key != before
        assert store.snapshot().key == DirectoryStore(root).snapshot().key


def test_rows_of_ordinary_things(root: Path) -> None:
    """Each kind of thing is a row; unusual modes are content too."""
    build(root)
    (root / "a.txt").chmod(0o644)
    (root / "blob").chmod(0o644)
    rows = {row.place: row for row in DirectoryStore(root, "data").rows(DirectoryStore(root, "data").snapshot())}
    assert rows["data/a.txt"] == Row("data/a.txt", ("content",), ("text",))
    assert rows["data/run.sh"] == Row("data/run.sh", ("content", "mode"), ("#!", 0o755))
    assert rows["data/blob"].cells == (b"\xff\x00",)
    assert rows["data/locked"] == Row("data/locked", ("directory",), (0o555,))
    assert rows["data/link"] == Row("data/link", ("symlink",), ("a.txt",))
    assert rows["data/twin.txt"] == Row("data/twin.txt", ("hardlink",), ("a.txt",))


def test_companions_of_databases_are_no_rows(root: Path) -> None:
    """Only beside a database: a file may be called x-wal for reasons of its own."""
    (root / "empty.db").touch()
    (root / "empty.db-wal").touch()
    (root / "empty.db-shm").write_bytes(b"locks")
    (root / "notes-wal").write_text("mine")
    (root / "notes-shm").write_text("mine")
    store = DirectoryStore(root)
    places = [row.place for row in store.rows(store.snapshot())]
    assert places == ["empty.db", "notes-shm", "notes-wal"] or places[-2:] == ["notes-shm", "notes-wal"]
    assert not any(place.startswith("empty.db-") for place in places)
    store.restore(store.snapshot())
    assert not (root / "empty.db-shm").exists()
    assert (root / "notes-shm").read_text() == "mine"


def test_sockets_and_pipes_are_listed_and_left_alone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server outside the world may listen in it."""
    monkeypatch.chdir(root)
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        store = DirectoryStore(root)
        picture = store.snapshot()
        assert picture.skipped == ("pipe", "socket")
        store.restore(picture)
        assert (root / "socket").is_socket()
        assert (root / "pipe").is_fifo()


def test_a_file_that_vanishes_once_is_tolerated_and_one_that_keeps_vanishing_is_explained(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other processes may be at work; the first time may be bad luck."""
    (root / "a").write_text("a")
    (root / "b").write_text("b")
    real, left = directory._content, [1]

    def vanishing(path: str, size: int) -> bytes:
        if left[0]:
            left[0] -= 1
            os.unlink(path)
        return real(path, size)

    monkeypatch.setattr(directory, "_content", vanishing)
    assert [entry.path for entry in DirectoryStore(root).snapshot().entries] == ["b"]
    left[0] = 2
    (root / "a").write_text("a")
    with pytest.raises(StoreError, match="another process is working"):
        DirectoryStore(root).snapshot()


def test_what_cannot_be_kept_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each refusal says which file and what to do."""
    with pytest.raises(StoreError, match=r"gone does not exist; track one that lasts"):
        DirectoryStore(root / "gone").snapshot()
    monkeypatch.setattr(directory, "LARGEST_FILE_BYTES", 10)
    (root / "large.bin").write_bytes(b"x" * 11)
    with pytest.raises(StoreError, match=r"large\.bin is .* keep it out"):
        DirectoryStore(root).snapshot()


# Modification times


def times(root: Path) -> dict[str, float]:
    """Path -> age in virtual seconds at the epoch."""
    return {path.name: EPOCH_S - path.stat().st_mtime for path in sorted(root.rglob("*"))}


def test_times_are_put_back(root: Path) -> None:
    """Of files and directories, also if what is in them is changed meanwhile; hard links share theirs."""
    build(root)
    store = DirectoryStore(root, keeps_times=True)
    for number, path in enumerate(sorted(root.rglob("*"), reverse=True)):
        if not path.is_symlink():
            os.utime(path, (EPOCH_S + number, EPOCH_S + number))
    picture = store.snapshot()
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*") if not path.is_symlink()}
    (root / "a.txt").write_text("other")
    (root / "sub" / "more").touch()
    assert store.snapshot() != picture
    store.restore(picture)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert store.snapshot() == picture
    assert DirectoryStore(root, keeps_times=True).snapshot() == picture


def test_what_was_there_before_is_as_old_and_in_the_same_order(root: Path) -> None:
    """In whole hours, and a second at the least; what is years old was given its time by somebody."""
    now = time.time()
    for name, age in {"new": 0, "newer": 10, "old": 7230, "older": 7300, "ancient": now - 1000}.items():
        (root / name).touch()
        os.utime(root / name, (now - age, now - age))
    DirectoryStore(root, keeps_times=True).snapshot()
    found = times(root)
    assert found.pop("ancient") == EPOCH_S - 1000
    assert found == pytest.approx({"new": 1, "newer": 1, "old": 7201, "older": 7201}, abs=0.1)
    assert sorted(found, key=lambda name: found[name]) == ["new", "newer", "old", "older"]


def test_a_real_time_becomes_the_virtual_one_of_the_picture(root: Path) -> None:
    """What nobody announced has been written since the last picture."""
    store = DirectoryStore(root, keeps_times=True)
    store.snapshot()
    (root / "f").touch()
    (root / "chosen").touch()
    os.utime(root / "chosen", (1000, 1000))
    store.now_s = EPOCH_S + 60
    picture = store.snapshot()
    assert times(root) == {"f": -60, "chosen": EPOCH_S - 1000}
    assert store.snapshot() is picture
    moved = store.later(picture, 100)
    assert moved.key != picture.key
    store.restore(moved)
    assert times(root) == {"f": -160, "chosen": EPOCH_S - 1000}


def test_times_are_rows_of_plain_files_and_empty_directories(root: Path) -> None:
    """A database's and a full directory's change with every step inside; those of a plain store are not its own."""
    build(root)
    with closing(sqlite3.connect(root / "agent.db")) as connection:
        connection.execute("CREATE TABLE tasks(id)")
    kept = DirectoryStore(root, keeps_times=True)
    timed = {row.place for row in kept.rows(kept.snapshot()) if "mtime" in row.names}
    assert timed == {"a.txt", "run.sh", "blob", "sub/b.txt", "sub/deep", "locked/inside"}
    real = (root / "a.txt").stat().st_mtime_ns
    plain = DirectoryStore(root)
    assert not any("mtime" in row.names for row in plain.rows(plain.snapshot()))
    assert (root / "a.txt").stat().st_mtime_ns == real
