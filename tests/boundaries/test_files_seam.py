from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from os import replace as early_replace
from pathlib import Path
from typing import Any

import pytest

from pytest_once.boundaries import announce, files, rebinding
from tests.boundaries.recording import Recording, recorded


def contents(root: Path) -> dict[str, str | None]:
    """What another process finds below the root: file texts, None for directories."""
    return {
        str(path.relative_to(root)): None if path.is_dir() else path.read_text()
        for path in sorted(root.rglob("*"))
        if path.exists()
    }


def run(form: Callable[[Path], Any], root: Path) -> Recording:
    early = rebinding.references(*files.originals())

    def body() -> Any:
        result = form(root)
        announce("point", "after")
        return result

    return recorded(body, install=lambda: files.install([root], early), look=lambda: contents(root))


def test_a_new_file_is_announced_before_it_exists_and_before_it_has_content(tmp_path: Path) -> None:
    """The empty file is a state of its own, and the classic one nobody expects after a crash."""

    def form(root: Path) -> None:
        with open(root / "report.json", "w") as file:
            json.dump({"a": 1}, file)

    recording = run(form, tmp_path)

    assert recording.seen() == [
        ("open report.json", {}),
        ("close report.json", {"report.json": ""}),
        ("after", {"report.json": '{"a": 1}'}),
    ]
    assert recording.passed[0].kind == "file"
    assert "open(" in recording.passed[0].line


@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.write_text("x"),
        lambda path: path.write_bytes(b"x"),
        lambda path: path.open("x").write("x"),
        lambda path: os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY), "w").write("x"),
        lambda path: path.open("w+b", 100).write(b"x"),
        lambda path: print("x", end="", file=path.open("w")),
    ],
    ids=["write_text", "write_bytes", "x", "os.open", "w+b", "print"],
)
def test_every_way_to_write_a_whole_file_is_seen(write: Callable[[Path], Any], tmp_path: Path) -> None:
    """pathlib, descriptors and files that are only dropped go through the same two boundaries."""
    recording = run(lambda root: (write(root / "f"), None)[1], tmp_path)

    assert recording.error is None
    assert recording.seen() == [("open f", {}), ("close f", {"f": ""}), ("after", {"f": "x"})]


REPLACEMENTS: dict[str, Callable[[Path, Path], Any]] = {
    "replace": lambda new, old: os.replace(new, old),
    "rename": lambda new, old: os.rename(new, old),
    "early": lambda new, old: early_replace(new, old),
    "pathlib": lambda new, old: new.replace(old),
    "shutil": lambda new, old: shutil.move(str(new), str(old)),
}


@pytest.mark.parametrize("way", REPLACEMENTS)
def test_a_replacement_is_announced_before_it_happens(way: str, tmp_path: Path) -> None:
    """The atomic step of every careful writer, also where `from os import replace` came before the seam."""
    (tmp_path / "new").write_text("n")
    (tmp_path / "old").write_text("o")

    recording = run(lambda root: (REPLACEMENTS[way](root / "new", root / "old"), None)[1], tmp_path)

    verb = "rename" if way in ("rename", "shutil") else "replace"
    assert recording.seen() == [(f"{verb} old", {"new": "n", "old": "o"}), ("after", {"old": "n"})]


def test_a_flush_is_announced_if_it_writes_something(tmp_path: Path) -> None:
    """A journal line is there after the flush, long before the close."""
    (tmp_path / "log").write_text("")

    def form(root: Path) -> None:
        with open(root / "log", "a") as file:
            file.flush()
            file.write("one\n")
            file.flush()
            os.fsync(file.fileno())
            announce("point", "synced")

    assert run(form, tmp_path).seen() == [
        ("flush log", {"log": ""}),
        ("fsync log", {"log": "one\n"}),
        ("synced", {"log": "one\n"}),
        ("after", {"log": "one\n"}),
    ]


def test_a_full_buffer_is_announced_before_it_is_written_out(tmp_path: Path) -> None:
    """A large file can be found torn."""

    def form(root: Path) -> None:
        with open(root / "big", "wb") as file:
            file.write(b"x" * 20_000)
            announce("point", "between")

    targets = run(form, tmp_path).targets()

    assert targets == ["open big", "write big", "between", "close big", "after"]


def test_an_unbuffered_file_announces_every_write(tmp_path: Path) -> None:
    """Each is there at once."""

    def form(root: Path) -> None:
        with open(root / "f", "wb", 0) as file:
            file.write(b"x")
            file.write(b"y")

    assert run(form, tmp_path).seen() == [
        ("open f", {}),
        ("write f", {"f": ""}),
        ("write f", {"f": "x"}),
        ("close f", {"f": "xy"}),
        ("after", {"f": "xy"}),
    ]


def test_removals_links_and_directories_are_announced_when_they_change_something(tmp_path: Path) -> None:
    """mkdir(exist_ok=True) and unlink(missing_ok=True) usually do nothing."""
    (tmp_path / "f").write_text("x")

    def form(root: Path) -> None:
        (root / "d").mkdir()
        (root / "d").mkdir(exist_ok=True)
        os.link(root / "f", root / "g")
        os.symlink("f", root / "s")
        (root / "f").unlink()
        (root / "f").unlink(missing_ok=True)
        os.remove(root / "s")
        os.truncate(root / "g", 0)
        os.rmdir(root / "d")

    assert run(form, tmp_path).targets() == [
        "mkdir d",
        "link g",
        "symlink s",
        "remove f",
        "remove s",
        "truncate g",
        "rmdir d",
        "after",
    ]


def test_a_whole_tree_is_removed_step_by_step(tmp_path: Path) -> None:
    """rmtree works relative to open directories."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_text("x")

    targets = run(lambda root: shutil.rmtree(root / "d"), tmp_path).targets()

    assert targets == ["remove d/f", "rmdir d", "after"]


def test_temporary_names_do_not_get_into_targets(tmp_path: Path) -> None:
    """A schedule names boundaries by target: it must be the same in the next run."""

    def form(root: Path) -> None:
        with tempfile.NamedTemporaryFile("w", dir=root, delete=False) as file:
            file.write("x")
        os.replace(file.name, root / f"out.{os.getpid()}")

    assert run(form, tmp_path).targets() == ["open tmp*", "close tmp*", "replace out.*", "after"]


def test_reading_and_other_places_are_silent(tmp_path: Path) -> None:
    """Only changes of the world are boundaries."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "f").write_text("x")

    def form(root: Path) -> str:
        (tmp_path / "elsewhere").write_text("y")
        (tmp_path / "elsewhere").unlink()
        with open(root / "f", "r+") as file:
            return file.read()

    recording = run(form, root)

    assert (recording.result, recording.targets()) == ("x", ["after"])


def test_file_objects_keep_their_class_and_errors_stay_the_same(tmp_path: Path) -> None:
    """Libraries look at both."""

    def form(root: Path) -> list[str]:
        kinds = []
        for mode, buffering in (("w", -1), ("wb", -1), ("w+b", -1), ("wb", 0)):
            with open(root / "f", mode, buffering) as file:
                kinds.append(type(file).__name__)
        wrong: Any = None
        for path, mode in ((root / "f", "x"), (root / "no" / "f", "w"), (wrong, "w"), (root / "f", "wz")):
            try:
                with open(path, mode):
                    pass
            except (OSError, TypeError, ValueError) as error:
                kinds.append(type(error).__name__)
        return kinds

    assert run(form, tmp_path).result == [
        "TextIOWrapper",
        "BufferedWriter",
        "BufferedRandom",
        "FileIO",
        "FileExistsError",
        "FileNotFoundError",
        "TypeError",
        "ValueError",
    ]
