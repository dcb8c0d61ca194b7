"""Changes of files that fail: which error each fault raises, and what it leaves behind."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable
from os import replace as early_replace
from pathlib import Path
from typing import Any

import pytest

from pytest_once.boundaries import announce, files, rebinding
from pytest_once.boundaries.files import FILE_FAULTS
from pytest_once.faults import COMMIT_UNKNOWN, STORE_BUSY, STORE_FULL, STORE_READONLY
from tests.boundaries.recording import Recording, recorded

NUMBERS = {STORE_FULL: errno.ENOSPC, STORE_READONLY: errno.EROFS, COMMIT_UNKNOWN: errno.EIO}
NOT_APPLIED = [STORE_FULL, STORE_READONLY]


def contents(root: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(root.iterdir())}


def failing(body: Callable[[], Any], fault: str, root: Path, at: str = "") -> Recording:
    """Run the body in a child whose first change that can fail (with `at` in its target) does."""
    early = rebinding.references(*files.originals())

    def then() -> Any:
        result = body()
        announce("point", "after")
        return result

    recording = recorded(
        then, install=lambda: files.install([root], early), look=lambda: contents(root), fault=fault, at=at
    )
    assert recording.error is None
    assert [fired for _, fired in recording.fired()] == [fault]
    return recording


def raised_by(act: Callable[[], Any]) -> list[Any] | None:
    try:
        act()
    except OSError as error:
        named = [None if name is None else os.path.basename(name) for name in (error.filename, error.filename2)]
        return [type(error).__name__, error.errno, *named]
    return None


REPLACEMENTS: dict[str, Callable[[Path, Path], Any]] = {
    "replace": lambda new, old: os.replace(new, old),
    "rename": lambda new, old: os.rename(new, old),
    "early": lambda new, old: early_replace(new, old),
    "pathlib": lambda new, old: new.replace(old),
}


@pytest.mark.parametrize("fault", FILE_FAULTS)
@pytest.mark.parametrize("way", REPLACEMENTS)
def test_a_replacement_fails_as_ordered(way: str, fault: str, tmp_path: Path) -> None:
    """The atomic step of every careful writer: the old file, or the new one and an error."""
    (tmp_path / "new").write_text("n")
    (tmp_path / "old").write_text("o")

    recording = failing(
        lambda: raised_by(lambda: REPLACEMENTS[way](tmp_path / "new", tmp_path / "old")), fault, tmp_path
    )

    assert recording.result == ["OSError", NUMBERS[fault], "new", "old"]
    assert recording.passed[0].faults == list(FILE_FAULTS)
    assert contents(tmp_path) == ({"old": "n"} if fault == COMMIT_UNKNOWN else {"new": "n", "old": "o"})


def test_a_move_that_cannot_rename_copies_instead(tmp_path: Path) -> None:
    """What shutil does about an error is part of what is explored."""
    (tmp_path / "new").write_text("n")

    recording = failing(
        lambda: raised_by(lambda: shutil.move(tmp_path / "new", tmp_path / "old")), STORE_FULL, tmp_path
    )

    assert recording.result is None
    assert recording.targets()[0] == "rename old"
    assert contents(tmp_path) == {"old": "n"}


@pytest.mark.parametrize("name", ["fsync", "fdatasync"])
@pytest.mark.parametrize("fault", FILE_FAULTS)
def test_a_sync_fails_as_ordered(fault: str, name: str, tmp_path: Path) -> None:
    """The content is there or it is not, and code that has seen an error may not believe either."""
    if not hasattr(os, name):
        pytest.skip(f"no os.{name} here")
    (tmp_path / "log").write_text("")

    def body() -> Any:
        with open(tmp_path / "log", "a") as file:
            return raised_by(lambda: getattr(os, name)(file))

    assert failing(body, fault, tmp_path, at=name).result == ["OSError", NUMBERS[fault], None, None]


MODES: dict[str, Any] = {"w": "x", "wb": b"x", "w+b": b"x", "a": "x"}


@pytest.mark.parametrize("fault", FILE_FAULTS)
@pytest.mark.parametrize("mode", MODES)
def test_a_close_that_fails_has_closed_the_file(mode: str, fault: str, tmp_path: Path) -> None:
    """What was still in its buffer is lost, unless the error came after it."""
    (tmp_path / "log").write_text("")

    def body() -> Any:
        file = open(tmp_path / "log", mode)  # noqa: SIM115
        file.write(MODES[mode])
        error = raised_by(file.close)
        file.close()
        return [error, file.closed]

    recording = failing(body, fault, tmp_path, at="close")

    assert recording.result == [["OSError", NUMBERS[fault], None, None], True]
    assert contents(tmp_path) == {"log": "x" if fault == COMMIT_UNKNOWN else ""}


@pytest.mark.parametrize("fault", FILE_FAULTS)
def test_leaving_the_with_block_raises_what_its_close_raises(fault: str, tmp_path: Path) -> None:
    """The usual form, where nobody sees a close at all; pathlib's too."""

    def body() -> Any:
        def write() -> None:
            with open(tmp_path / "f", "w") as file:
                file.write("x")

        return [raised_by(write), raised_by(lambda: (tmp_path / "f").write_text("y"))]

    recording = failing(body, fault, tmp_path, at="close")

    assert recording.result == [["OSError", NUMBERS[fault], None, None], None]
    assert contents(tmp_path) == {"f": "y"}


def test_a_file_that_is_only_dropped_loses_its_content_without_a_word(tmp_path: Path) -> None:
    """The interpreter has nobody to tell; this is why a close belongs into the code."""

    def body() -> Any:
        def write() -> None:
            open(tmp_path / "f", "w").write("x")  # noqa: SIM115

        return raised_by(write)

    assert failing(body, STORE_FULL, tmp_path).result is None
    assert contents(tmp_path) == {"f": ""}


@pytest.mark.parametrize("fault", NOT_APPLIED)
def test_a_flush_that_fails_keeps_its_buffer(fault: str, tmp_path: Path) -> None:
    """It may be tried again; so does the close."""

    def body() -> Any:
        with open(tmp_path / "log", "w") as file:
            file.write("x")
            error = raised_by(file.flush)
            left = contents(tmp_path)
            file.flush()
            return [error, left]

    recording = failing(body, fault, tmp_path, at="flush")

    assert recording.result == [["OSError", NUMBERS[fault], None, None], {"log": ""}]
    assert recording.targets() == ["open log", "flush log", "flush log", "after"]
    assert contents(tmp_path) == {"log": "x"}


def test_a_flush_can_have_written_and_still_report_an_error(tmp_path: Path) -> None:
    """Whoever writes it again writes it twice."""

    def body() -> Any:
        with open(tmp_path / "log", "w") as file:
            file.write("x")
            error = raised_by(file.flush)
            return [error, contents(tmp_path)]

    recording = failing(body, COMMIT_UNKNOWN, tmp_path, at="flush")

    assert recording.result == [["OSError", errno.EIO, None, None], {"log": "x"}]
    assert contents(tmp_path) == {"log": "x"}


def test_no_file_is_busy_and_what_is_outside_cannot_fail(tmp_path: Path) -> None:
    """Files know no locks that time out; and other directories are none of the world."""
    root = tmp_path / "root"
    root.mkdir()

    def body() -> None:
        with tempfile.NamedTemporaryFile("w", dir=tmp_path) as file:
            file.write("x")
            file.flush()
            os.fsync(file.fileno())
        (root / "f").write_text("x")

    recording = recorded(body, install=lambda: files.install([root], []), fault=STORE_BUSY)

    assert (recording.error, recording.fired()) == (None, [])
    assert [(one.target, one.faults) for one in recording.passed] == [("open f", []), ("close f", list(FILE_FAULTS))]
