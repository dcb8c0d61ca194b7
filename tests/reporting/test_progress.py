"""Progress: one line in place on a terminal, and nothing at all anywhere else."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_once.boundaries import Boundary
from pytest_once.events import Progress, Recorded, ViolationFound
from pytest_once.reporting.progress import EVERY_S, FIRST_AFTER_S, ProgressLine
from pytest_once.site import NOWHERE
from tests.plugin.conftest import LOADED, ROOT
from tests.reporting.conftest import run_in

LONG = """
import pytest

@pytest.mark.once_effect
def test_long(once, tmp_path):
    for n in range(12):
        (tmp_path / f"step{n}").write_text("")
    once.provider("pay", contract="client_key").call("refund", {"order": "o1"}, key="o1")
"""


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_short_exploration_shows_nothing() -> None:
    """A line that flickers through a fast suite only disturbs."""
    written: list[str] = []
    clock = Clock()
    line = ProgressLine(written.append, 80, now_s=clock)
    line(Recorded((Boundary("point", "here", NOWHERE, 1),)))
    clock.now_s = FIRST_AFTER_S / 2
    line(Progress(3, 10, 20, 1))
    line.clear()
    assert written == []


def test_the_line_stands_below_and_the_cursor_returns() -> None:
    """pytest goes on where it was; what it counts as the width of its line stays true."""
    written: list[str] = []
    clock = Clock()
    line = ProgressLine(written.append, 80, at=11, now_s=clock)
    line(ViolationFound("DUPLICATE", "o1", "."))
    clock.now_s = 2.0
    line(Progress(3, 10, 20, 1))
    clock.now_s += EVERY_S / 2
    line(Progress(4, 11, 20, 1))
    clock.now_s += EVERY_S
    line(Progress(5, 12, 20, 0))
    line.clear()
    assert written == [
        "\n\x1b[A\x1b[B\r\x1b[2Kexploring: 3 states, 10 runs, 1 waiting, 2 s, 1 violations\x1b[A\x1b[12G",
        "\x1b[B\r\x1b[2Kexploring: 5 states, 12 runs, 0 waiting, 2 s, 1 violations\x1b[A\x1b[12G",
        "\x1b[B\r\x1b[2K\x1b[A\x1b[12G",
    ]


@pytest.mark.parametrize("columns", [5, 20, 30, 40])
def test_it_never_fills_the_terminals_width(columns: int) -> None:
    """A line that wraps cannot be rewritten in place."""
    written: list[str] = []
    clock = Clock()
    line = ProgressLine(written.append, columns, now_s=clock)
    clock.now_s = 100.0
    line(Progress(123456, 1234567, 20, 1234))
    (text,) = re.findall(r"2K(.*?)\x1b", written[0])
    assert 0 < len(text) < columns


def in_terminal(path: Path, *args: str) -> str:
    """What pytest writes to a terminal of its own, until it ends."""
    (path / "test_it.py").write_text(LONG)
    (path / "pytest.ini").write_text("[pytest]\n")
    ours, its = pty.openpty()
    inherited = {name: value for name, value in os.environ.items() if name not in ("CI", "GITHUB_ACTIONS")}
    paths = os.pathsep.join((str(ROOT), str(ROOT / "fakes"), os.environ.get("PYTHONPATH", "")))
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *LOADED, "-p", "no:cacheprovider", "--once-chaos=crash", *args],
        cwd=path,
        env={**inherited, "PYTHONPATH": paths, "TERM": "xterm", "COLUMNS": "80"},
        stdin=subprocess.DEVNULL,
        stdout=its,
        stderr=its,
    )
    os.close(its)
    written = b""
    try:
        while piece := _read(ours):
            written += piece
    finally:
        os.close(ours)
        process.wait(60)
    assert process.returncode == 0, written.decode()
    return written.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:
        return b""  # the other end is closed


def test_on_a_terminal_it_is_shown_and_removed(tmp_path: Path) -> None:
    """Issue 6: states, runs, queue; afterwards the output reads as if it had not been there."""
    written = in_terminal(tmp_path)
    shown = re.findall(r"\x1b\[2Kexploring: (\d+) states, (\d+) runs, (\d+) waiting, (\d+) s\x1b\[A\x1b\[12G", written)
    assert shown
    assert [int(states) for states, *_ in shown] == sorted(int(states) for states, *_ in shown)
    last = written.rindex("exploring: ")
    assert written.find("\x1b[B\r\x1b[2K\x1b[A\x1b[12G", last) > last
    assert re.search(r"\x1b\[12G(\x1b\[\d*m)*\.", written[last:])


@pytest.mark.slow
@pytest.mark.parametrize("option", ["-q", "-s"])
def test_a_terminal_that_is_quiet_or_shared_shows_none(tmp_path: Path, option: str) -> None:
    """-q asks for silence; with -s the test's own prints stand where the line would."""
    assert "exploring: " not in in_terminal(tmp_path, option)


def test_without_a_terminal_there_is_none(tmp_path: Path) -> None:
    """CI logs keep every version of a line that is rewritten."""
    output = run_in(tmp_path, LONG, "--once-chaos=crash").output
    assert "1 passed" in output
    assert "exploring: " not in output
    assert "\x1b" not in output
