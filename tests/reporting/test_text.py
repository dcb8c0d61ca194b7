"""report.txt, and what pytest lists of a failing test: plain, narrow, one line where one line is meant."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_once.reporting import document, text
from tests.plugin.suites import BAD
from tests.reporting.conftest import Run, run_in
from tests.reporting.samples import VERDICTS, violated


def test_it_is_what_the_terminal_says(run: Run) -> None:
    """Whoever has only the file must not know less; mails and tickets wrap at 80 columns."""
    told = run.text("txt")
    of_pytest = run.test("test_broken_fixture")["text"].splitlines()
    for line in told.splitlines():
        assert line in of_pytest or len(line) <= 80 or re.match(r"  (replay|also): ", line), line
    failing = [name for name, verdict in VERDICTS.items() if verdict != "EXACTLY_ONCE"]
    for name in failing:
        assert run.test(name)["text"].splitlines()[0] in told
    assert re.search(r"^EXACTLY_ONCE  test_it.py::test_good: exhausted, \d+ states", told, re.MULTILINE)
    assert "1 exhausted, 4 violated, 3 without an answer" in told
    assert "test_it.py::test_forgotten uses `once`" in " ".join(told.split())


def test_escape_sequences_of_the_program_do_not_reach_it() -> None:
    """A viewer would obey them: change colours, titles, or what was read before."""
    said = "\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b]8;;http://x\x1b\\link \x9b1mbold \x1bMup \x08\x7f\ttab"
    told = text.rendered(document.whole([violated("test_it.py::test_one", text=said)]))
    assert "red link bold up \ttab".replace("bold", "1mbold") in told
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", told)


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_in_ci_the_short_summary_has_one_line_a_test(tmp_path: Path, workers: int) -> None:
    """With CI=true pytest does not cut these lines, and would repeat the whole report there."""
    distributed = ("-n", str(workers)) if workers else ()
    output = run_in(tmp_path, BAD, "--once-chaos=crash", *distributed, CI="true").output
    summary = output.partition("short test summary info")[2].splitlines()
    assert summary[1] == "FAILED test_it.py::test_bad - DUPLICATE pay refund: 2 effects, 1 intended"
    assert re.match(r"=+ 1 failed", summary[2])
    assert output.count("confirmed: replayed from nothing") == 1
