"""Ctrl-C while exploring: everything that was started is gone, and so is everything that was written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.plugin.conftest import Lab

ENDLESS = """
import httpx
import pytest

@pytest.mark.once_effect(allow="file:*/ready")
def test_endless(once, tmp_path):
    url = once.provider("pay").url  # the loopback server runs
    with open(READY, "a") as ready:
        ready.write("x")
    for n in range(50):
        once.path.joinpath(f"step{n}").write_text("")
    httpx.post(f"{url}/refunds", json={"order": "o1"}, trust_env=False)
"""


def scratch_of(pid: int) -> list[Path]:
    roots = {Path(tempfile.gettempdir()), Path("/dev/shm")}
    return [found for root in roots if root.is_dir() for found in root.glob(f"pytest-once-{pid}-*")]


def descendants(pid: int) -> list[int]:
    """Processes below a process, by asking ps: their groups and sessions are their own."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in (line.split() for line in listed.splitlines())}
    below = [pid]
    for ancestor in below:
        below += [child for child, parent in parents.items() if parent == ancestor]
    return below[1:]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def eventually(condition: Callable[[], bool], *, within_s: float) -> bool:
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no process groups")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "killed"])
def test_an_interrupted_exploration_leaves_nothing_behind(lab: Lab, sent: signal.Signals) -> None:
    """Orphans that hold locks, and a memory-backed directory that fills up, are what one remembers a tool for."""
    ready = lab.path / "ready"
    lab.write(ENDLESS.replace("READY", repr(str(ready))))
    process = subprocess.Popen(
        lab.command("--once-chaos=crash"),
        cwd=lab.path,
        env=lab.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        assert eventually(lambda: ready.exists() and ready.stat().st_size >= 5, within_s=60), "it never came to explore"
        assert scratch_of(process.pid)
        started = descendants(process.pid)
        assert started
        os.killpg(process.pid, sent)
        output = process.communicate(timeout=30)[0].decode()
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert eventually(lambda: not any(map(alive, started)), within_s=10), "processes survived"
    if sent == signal.SIGINT:
        assert process.returncode == pytest.ExitCode.INTERRUPTED, output
        assert "KeyboardInterrupt" in output
        assert not scratch_of(process.pid)
    else:
        # Nobody can clean up then; the next run that needs a scratch directory does.
        lab.write("def test_next(once): pass\n")
        assert lab.run_apart().returncode == pytest.ExitCode.OK
        assert not scratch_of(process.pid)
