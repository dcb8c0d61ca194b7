"""Runs pytest on small suites, in this process for speed or in another one where that is the point."""

from __future__ import annotations

import importlib
import importlib.metadata
import linecache
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

for _name in (
    *("httpx", "hypothesis.core", "respx", "time_machine", "trio.testing", "once_fakes.provider", "once_fakes.server"),
    *("pytest_once.exploration", "pytest_once.plain", "pytest_once.reporting.terminal"),
):
    importlib.import_module(_name)  # or every pytester session would import it anew

ROOT = Path(__file__).resolve().parents[2]

INSTALLED = any(point.name == "once" for point in importlib.metadata.entry_points(group="pytest11"))
"""Whether pytest finds the plugin by itself."""

LOADED = () if INSTALLED else ("-p", "pytest_once.plugin")

_ABSENT = ("-p", "no:cacheprovider", "-p", "no:randomly")
"""Plugins that would carry something from run to run, or reorder the suites. A test of one asks for it: -p randomly."""


@dataclass
class Lab:
    """A directory with tests, and ways to run them."""

    pytester: pytest.Pytester
    bytecode: Path

    @property
    def path(self) -> Path:
        return self.pytester.path

    def write(self, source: str, name: str = "test_it") -> Path:
        return self.pytester.makepyfile(**{name: source})

    def ini(self, *lines: str) -> None:
        """Write the ini file. What is always in it keeps pytest-asyncio, where it is old, from warning."""
        self.pytester.makeini("\n".join(("[pytest]", "asyncio_default_fixture_loop_scope = function", *lines)))

    def run(self, *args: str) -> pytest.RunResult:
        """pytest in this process."""
        linecache.checkcache()  # a later run may have another file of the same name
        return self.pytester.runpytest_inprocess(*LOADED, *_ABSENT, "-W", "default", *args)

    def explore(self, *args: str) -> pytest.RunResult:
        """pytest --once-chaos=crash in this process: soft faults take longer and are rarely the point here."""
        return self.run("--once-chaos=crash", *args)

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "pytest", *LOADED, *_ABSENT, *args]

    def environment(self, **changes: str) -> dict[str, str]:
        paths = [str(ROOT), str(ROOT / "fakes"), os.environ.get("PYTHONPATH", "")]
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": str(self.bytecode),
            **changes,
        }

    def run_apart(self, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """pytest in a process of its own."""
        return subprocess.run(
            self.command(*args),
            cwd=self.path,
            env=self.environment(**environment),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture
def lab(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    lab = Lab(pytester, tmp_path_factory.getbasetemp() / "bytecode")
    lab.ini()
    return lab
