"""once.track(url) in tests: third parties' stores through the hook, and databases that are gone whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import psycopg
import pytest

from tests.plugin.conftest import Lab

Server = psycopg.Connection[tuple[object, ...]]

TOY = '''
import ast
import hashlib
from dataclasses import dataclass
from pathlib import Path

from pytest_once.canonical import Row


@dataclass(frozen=True)
class Snapshot:
    text: str

    @property
    def key(self):
        return hashlib.sha256(self.text.encode()).digest()


class Toy:
    """A dictionary in a file: what a plugin for some database would be."""

    def __init__(self, target):
        self.name = "toy"
        self._path = Path(target.partition("://")[2])
        self._path.write_text("{}")
        self.address = str(self._path)

    def snapshot(self):
        return Snapshot(self._path.read_text())

    def restore(self, snapshot):
        self._path.write_text(snapshot.text)

    def rows(self, snapshot):
        content = ast.literal_eval(snapshot.text)
        return [Row("toy", ("key", "value"), (key, content[key]), False) for key in sorted(content)]

    def close(self):
        self._path.rename(self._path.with_suffix(".closed"))


def pytest_once_stores(target):
    return Toy(target) if target.startswith("toy://") else None
'''

TOY_SUITE = """
import ast
import pytest
from pathlib import Path

@pytest.mark.once_effect(soft_faults=0, allow=("file:*.toy",))
@pytest.mark.parametrize("contract", ["client_key", "none"])
def test_toy(once, contract):
    file = Path(once.track("toy://" + FILE))
    content = ast.literal_eval(file.read_text())
    if "o1" not in content:
        assert once.provider("pay", contract=contract).call("refund", {"order": "o1"}, key="o1").status == 200
        once.boundary("remember")
        file.write_text(repr({**content, "o1": "done"}))
"""


def test_what_a_third_partys_store_cannot_exchange_is_told(lab: Lab) -> None:
    """What is ignored there may decide everything, and nobody has looked."""
    lab.pytester.makeconftest(TOY)
    suite = TOY_SUITE.replace("soft_faults=0", 'soft_faults=0, ignore=("toy.value",)')
    lab.write(f"FILE = {str(lab.path / 'content.toy')!r}\n{suite}")
    result = lab.explore("--once-report=report.txt")
    result.assert_outcomes(passed=1, failed=1)
    text = " ".join((lab.path / "report.txt").read_text(encoding="utf-8").split())
    assert "nobody knows whether it decides anything: toy.value (its store cannot exchange values)" in text
    assert "exchanged in every state" not in text


@pytest.mark.parametrize("explore", [True, False])
def test_a_third_partys_store_comes_through_the_hook(lab: Lab, explore: bool) -> None:
    """The world then has it like any other: pictured, put back, told apart, and closed at the end."""
    file = lab.path / "content.toy"
    lab.pytester.makeconftest(TOY)
    lab.write(f"FILE = {str(file)!r}\n{TOY_SUITE}")
    result = lab.explore() if explore else lab.run()
    if explore:
        result.assert_outcomes(passed=1, failed=1)
        result.stdout.fnmatch_lines(["*DUPLICATE*"])
    else:
        result.assert_outcomes(passed=2)
    assert not file.exists()
    assert (lab.path / "content.closed").exists()


SUITE = """
import psycopg
import pytest

@pytest.mark.once_effect(soft_faults=0, allow=("file:*/ready",))
def test_it(once):
    url = once.track(URL)
    print(url)
    with psycopg.connect(url) as connection:
        connection.execute("INSERT INTO jobs (task, state) VALUES ('t', 'new') ON CONFLICT DO NOTHING")
    once.provider("pay", contract="client_key").call("refund", {"order": "o1"}, key="o1")
    THEN
"""


def copies(server: Server, pid: int) -> list[object]:
    pattern = f"once\\_{pid}\\_%"
    return [name for (name,) in server.execute("SELECT datname FROM pg_database WHERE datname LIKE %s", (pattern,))]


@pytest.mark.parametrize("options", [(), ("--once-chaos=crash",)])
@pytest.mark.parametrize(("then", "outcome"), [("pass", "passed"), ("raise RuntimeError('a bug')", "failed")])
def test_the_copy_of_a_database_lasts_as_long_as_the_test(
    lab: Lab, postgresql: str, server: Server, options: tuple[str, ...], then: str, outcome: str
) -> None:
    """In a plain run too, and however the test ends."""
    before = copies(server, os.getpid())
    lab.write(f"URL = {postgresql!r}\n{SUITE.replace('THEN', then)}")
    result = lab.run("-s", *options)
    result.assert_outcomes(**{outcome: 1})
    if not options:
        assert "/once_" in result.stdout.str()
    assert copies(server, os.getpid()) == before


@pytest.mark.slow
def test_ctrl_c_drops_what_was_made(lab: Lab, postgresql: str, server: Server) -> None:
    """Nobody looks for leftovers on a server."""
    ready = lab.path / "ready"
    then = f"open({str(ready)!r}, 'a').close()\n    for n in range(50): once.path.joinpath(f'step{{n}}').write_text('')"
    lab.write(f"URL = {postgresql!r}\n{SUITE.replace('THEN', then)}")
    with subprocess.Popen(
        lab.command("--once-chaos"),
        cwd=lab.path,
        env=lab.environment(PYTHONPYCACHEPREFIX="", PYTHONDONTWRITEBYTECODE="1"),
        stdout=subprocess.DEVNULL,
    ) as running:
        try:
            deadline = time.monotonic() + 30
            while not ready.exists() and running.poll() is None and time.monotonic() < deadline:
                time.sleep(0.01)
            assert copies(server, running.pid)
            running.send_signal(signal.SIGINT)
            assert running.wait(30) == pytest.ExitCode.INTERRUPTED
        finally:
            running.kill()
    assert copies(server, running.pid) == []
