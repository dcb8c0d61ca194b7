"""Plugins and options that reorder, select and repeat tests: the verdicts and the schedules stay what they are."""

from __future__ import annotations

import re

import pytest

from tests.plugin.conftest import LOADED, Lab
from tests.plugin.suites import AGENT, BAD, GOOD

RANDOM = """
import random, sqlite3, pytest

def refund(db, provider):
    connection = sqlite3.connect(db)
    connection.execute("CREATE TABLE IF NOT EXISTS done (id TEXT, nonce REAL)")
    provider.call("refund", {"order": "o1"})
    connection.execute("INSERT INTO done VALUES ('o1', ?)", (random.random(),))
    connection.commit()
    connection.close()

@pytest.mark.once_effect
def test_random(once, tmp_path):
    refund(tmp_path / "agent.db", once.provider("pay"))
"""


def verdicts(output: str) -> list[str]:
    """Verdict and replay command of each failure, and the line of each pass, whatever their order."""
    return sorted(re.findall(r"^ *(?:replay: .*|EXACTLY_ONCE .*|DUPLICATE .*|OMISSION .*)$", output, re.MULTILINE))


@pytest.mark.slow
def test_pytest_randomly_changes_no_verdict_and_no_schedule(lab: Lab) -> None:
    """It reorders, and seeds `random` anew before each test: an id copied from CI must replay at home."""
    pytest.importorskip("pytest_randomly")
    lab.write(RANDOM + GOOD)
    seen = [lab.run("--once-chaos=crash", "-p", "randomly", f"--randomly-seed={seed}").stdout.str() for seed in (1, 2)]
    assert "--randomly-seed=1" in seen[0]
    assert len(verdicts(seen[0])) == 3
    assert verdicts(seen[0]) == verdicts(seen[1])


def test_pytest_rerunfailures_repeats_a_failure_and_counts_it_once(lab: Lab) -> None:
    """An exploration is deterministic: what failed fails again."""
    pytest.importorskip("pytest_rerunfailures")
    lab.write(AGENT)
    result = lab.run("--once-chaos=crash", "--reruns", "1", "-k", "act_then")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["1 violated", "*1 failed, 1 deselected, *1 rerun in *"])
    assert len(verdicts(result.stdout.str())) == 2


def cached(lab: Lab, *args: str) -> pytest.RunResult:
    return lab.pytester.runpytest_inprocess(
        *LOADED, "-p", "no:randomly", "-W", "default", "--once-chaos=crash", "--once-database=off", *args
    )


@pytest.mark.parametrize(
    ("option", "outcomes"),
    [
        ("--lf", {"failed": 1, "deselected": 0}),
        ("--ff", {"passed": 1, "failed": 1}),
        ("--sw", {"failed": 1, "deselected": 1}),
    ],
)
def test_options_that_remember_failures_remember_convictions(lab: Lab, option: str, outcomes: dict[str, int]) -> None:
    """A conviction is a failure like any other."""
    lab.write(GOOD + BAD)
    cached(lab, *(["--sw"] if option == "--sw" else [])).assert_outcomes(passed=1, failed=1)
    result = cached(lab, option, "-v")
    result.assert_outcomes(**outcomes)
    names = re.findall(r"test_it\.py::(\w+) (?:PASSED|FAILED)", result.stdout.str())
    assert names[0] == "test_bad"


def test_maxfail_stops_and_durations_are_told(lab: Lab) -> None:
    """The time of an exploration is the time of its test."""
    lab.write(BAD + BAD.replace("test_bad", "test_more") + BAD.replace("test_bad", "test_last"))
    result = lab.explore("--maxfail=2", "--durations=1", "--durations-min=0")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*s call *test_it.py::test_*", "*stopping after 2 failures*"])
