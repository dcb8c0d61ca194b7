"""pytest-cov: what only a recovery runs is counted, without any configuration."""

from __future__ import annotations

import json

import pytest

from tests.plugin.conftest import Lab

pytest.importorskip("pytest_cov")

SHOP = """
import sqlite3

def refund(db, provider):
    connection = sqlite3.connect(db)
    connection.execute("CREATE TABLE IF NOT EXISTS work (id TEXT PRIMARY KEY, state TEXT)")
    row = connection.execute("SELECT state FROM work").fetchone()
    if row is None:
        connection.execute("INSERT INTO work VALUES ('o1', 'begun')")
        connection.commit()
    elif row[0] == "done":
        return "already"  # line 11
    else:
        begun = True  # line 13
    provider.call("refund", {"order": "o1"}, key="o1")
    connection.execute("UPDATE work SET state = 'done'")
    connection.commit()
    connection.close()

def never():
    return 1  # line 20
"""

TEST = """
import pytest
from shop import refund

@pytest.mark.once_effect(soft_faults=0)
def test_paid(once, tmp_path):
    refund(tmp_path / "shop.db", once.provider("pay", contract="client_key"))
"""

PATCHED = "[run]\nparallel = true\npatch = _exit, fork, subprocess\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "configuration"),
    [(("--cov-branch", "--cov-context=test"), ""), (("-n", "1"), PATCHED)],
    ids=["branches", "patched-xdist"],
)
def test_lines_that_only_a_recovery_runs_are_covered(lab: Lab, args: tuple[str, ...], configuration: str) -> None:
    """They are the very lines for which one explores; a report that calls them untested would be believed."""
    lab.pytester.makepyfile(shop=SHOP)
    lab.write(TEST)
    if configuration:
        lab.path.joinpath(".coveragerc").write_text(configuration)
    result = lab.run_apart("--once-chaos=crash", "--cov=shop", "--cov-report=json:covered.json", *args)
    assert result.returncode == pytest.ExitCode.OK, result.stdout + result.stderr
    covered = json.loads(lab.path.joinpath("covered.json").read_text())["files"]["shop.py"]
    assert covered["missing_lines"] == [20]
    assert "overage" not in result.stderr, "a warning of coverage.py"
    assert [file.name for file in lab.path.glob(".coverage.*")] == [], "files of children are left"
