"""What `judged/` says under --once-chaos is said by the engine, and would be said of wrong code too."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from pytest_once import Once, Report, Verdict, explore
from pytest_once.reference import transitions
from pytest_once.reference.databases import SQLite
from tests.reference.judged import test_parts as parts
from tests.reference.mutants import MUTANTS
from tests.reference.mutants.gates import ended_lease_is_free
from tests.reference.mutants.scenes import Replacement, replaced

ROOT = Path(__file__).parents[2]


def pytest_run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--once-chaos",
            "--once-database=off",
            "-p",
            "no:cacheprovider",
            *arguments,
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "fakes")])},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_judged_test_is_explored_to_the_end(tmp_path: Path) -> None:
    """A suite that is run once, or stopped by a limit, would be as green."""
    written = tmp_path / "report.json"
    done = pytest_run("tests/reference/judged", "-k", "test_planning and sqlite3", f"--once-report={written}")
    assert done.returncode == 0, done.stdout
    (found,) = json.loads(written.read_text(encoding="utf-8"))["tests"]
    assert (found["verdict"], found["coverage"], found["bound"]) == ("EXACTLY_ONCE", "exhausted", "")
    assert found["states"] > 5
    assert found["runs"] > 100, "not the kinds of deep, two in a life"


WRONGLY_DECLARED = """
import pytest

@pytest.mark.answer("EXACTLY_ONCE")
@pytest.mark.once_effect(blocked=("unknown",), soft_faults=0)
def test_asks_a_person(once):
    if (once.path / "begun").exists():
        once.claim("unknown")
        return
    (once.path / "begun").touch()
    once.provider("pay", contract="none").call("refund", {}).raise_for_status()
"""


@pytest.mark.slow
def test_another_answer_than_the_declared_one_fails(tmp_path: Path) -> None:
    """ESCALATED passes where it is allowed; where exactly once is declared it must not."""
    (tmp_path / "conftest.py").write_text(
        "from tests.reference.conftest import pytest_configure\n"
        "from tests.reference.judged.conftest import pytest_runtest_makereport\n",
        encoding="utf-8",
    )
    wrong = tmp_path / "test_wrong.py"
    wrong.write_text(WRONGLY_DECLARED, encoding="utf-8")
    done = pytest_run(f"--rootdir={tmp_path}", wrong)
    assert done.returncode == 1, done.stdout
    assert "declared: ('EXACTLY_ONCE',); found: ('ESCALATED', 'exhausted')" in done.stdout


@pytest.mark.slow
def test_the_body_of_a_judged_test_convicts_a_gate_whose_ended_lease_lets_the_next_one_act(files: Path) -> None:
    """The same body, and the same terms apart from soft faults, of which neither answer needs any."""
    assert "lease-expiry-retries" in {mutant.name for mutant in MUTANTS}
    marks: list[pytest.Mark] = vars(parts.test_gate_without)["pytestmark"]
    (marker,) = (mark for mark in marks if mark.name == "once_effect")

    def explored(*mistakes: Replacement) -> Report:
        world = shutil.copytree(files, files / f"{len(mistakes)} mistakes")

        def body(once: Once) -> None:
            with closing(SQLite(once.track(world) / "agent.db")) as database, replaced(*mistakes):
                parts.test_gate_without(once, database)

        return explore(body, **{**marker.kwargs, "soft_faults": 0})

    right = explored()
    assert (right.verdict, right.coverage) == (Verdict.ESCALATED, "exhausted"), right.bound
    wrong = explored((transitions, "expire_one", ended_lease_is_free))
    assert wrong.verdict is Verdict.DUPLICATE, wrong.problem


def test_the_page_names_each_judged_test_with_what_it_declares() -> None:
    """A verdict on the page that no test declares would be nobody's."""
    page = (ROOT / "docs" / "reference-implementation.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([a-z ]+) \| ([A-Z_]+) \| .*? \| (\d), (\d) \|", page, re.MULTILINE)
    declared = []
    for name, test in vars(parts).items():
        if name.startswith("test_"):
            marks = {mark.name: mark for mark in test.pytestmark}
            bounds = marks["once_effect"].kwargs
            row = (marks["answer"].args[0], str(bounds["soft_faults"]), str(bounds["in_flight"]))
            declared.append((name.removeprefix("test_").replace("_", " "), *row))
    assert rows == declared
