"""One run whose reports many tests read, and pytest on small suites."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.plugin.conftest import LOADED, ROOT
from tests.plugin.conftest import lab as lab
from tests.reporting.samples import SUITE

FORMATS = ("html", "json", "xml", "txt")


@dataclass(frozen=True)
class Run:
    """A directory in which pytest ran, what it said, and the reports it wrote."""

    path: Path
    output: str

    def text(self, ending: str) -> str:
        return (self.path / f"report.{ending}").read_text("utf-8")

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.text("json"))
        return document

    def test(self, name: str) -> dict[str, Any]:
        """A test of the document by its function's name."""
        (found,) = [test for test in self.document["tests"] if test["test"].endswith(f"::{name}")]
        assert isinstance(found, dict)
        return found


def wanted(*endings: str) -> list[str]:
    return [f"--once-report=report.{ending}" for ending in endings or FORMATS]


def run_in(path: Path, suite: str, *args: str, **environment: str) -> Run:
    """pytest in a process of its own, on one file, in an environment without a CI system."""
    (path / "test_it.py").write_text(suite, "utf-8")
    (path / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n", "utf-8")
    inherited = {name: value for name, value in os.environ.items() if name != "CI" and not name.startswith("GITHUB_")}
    paths = [str(ROOT), str(ROOT / "fakes"), os.environ.get("PYTHONPATH", "")]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *LOADED, "-p", "no:cacheprovider", *args],
        cwd=path,
        env={**inherited, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return Run(path, result.stdout + result.stderr)


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_in(tmp_path_factory.mktemp("reports"), SUITE, "--once-chaos=crash", *wanted())
