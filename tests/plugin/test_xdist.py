"""Distributed over processes, the verdicts are the same and are told once."""

from __future__ import annotations

import re

import pytest

from tests.plugin.conftest import Lab
from tests.plugin.suites import BAD, GOOD

pytest.importorskip("xdist")

SUITE = f"""
{GOOD}
{BAD}
def test_forgotten(once):
    pass

@pytest.mark.once_effect(workers=2)
def test_wrong(once):
    pass
"""


def section(output: str) -> list[str]:
    lines = output.splitlines()
    start = next(n for n, line in enumerate(lines) if re.fullmatch(r"=+ once-chaos =+", line))
    end = next(n for n, line in enumerate(lines) if "short test summary" in line)
    return sorted(lines[start + 1 : end])


@pytest.mark.slow
def test_two_workers_give_the_same_verdicts_and_one_summary(lab: Lab) -> None:
    """Results travel in the reports; the controller alone tells them."""
    lab.write(SUITE)
    alone = lab.run_apart("--once-chaos=crash")
    shared = lab.run_apart("--once-chaos=crash", "-n", "2")
    assert alone.returncode == shared.returncode == pytest.ExitCode.TESTS_FAILED
    assert section(shared.stdout) == section(alone.stdout)
    text = "\n".join(section(shared.stdout))
    assert "1 exhausted, 1 violated, 1 without an answer" in text
    assert "not explored: test_it.py::test_forgotten" in text
    assert shared.stdout.count("confirmed by SIGKILL") == alone.stdout.count("confirmed by SIGKILL")


def test_a_replay_is_refused_for_several_tests_on_workers_too(lab: Lab) -> None:
    """xdist tells nothing of a usage error in a worker; the tests then fail with its text."""
    lab.write(GOOD + BAD)
    result = lab.run_apart("--once-replay=./.", "-n", "2")
    assert result.returncode == pytest.ExitCode.TESTS_FAILED
    assert "--once-replay repeats one schedule of one test" in result.stdout + result.stderr
