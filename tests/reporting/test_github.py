"""GitHub Actions: annotations at the lines concerned and a summary of the step; silent anywhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_once.reporting import document, github
from tests.plugin.conftest import Lab
from tests.plugin.suites import BAD, GOOD
from tests.reporting.samples import site, unanswered, violated


def test_a_failing_test_is_annotated_at_the_line_that_repeats_the_effect(tmp_path: Path) -> None:
    """The line stands in the pull request's diff; the path must be the repository's."""
    test = violated("test_it.py::test_one")
    test["violations"][0]["story"][0]["steps"][0]["site"] = site(12, str(tmp_path / "src" / "agent.py"))
    (line,) = github.workflow_commands(document.whole([test]), tmp_path)
    assert line == (
        "::error file=src/agent.py,line=12,title=DUPLICATE pay POST /refunds%3A 2 effects%2C 1 intended"
        "::test_it.py::test_one%0A2 effects for one intent%0Areplay: pytest --once-replay=lr@abcdef"
    )


def test_without_a_story_the_test_itself_is_annotated() -> None:
    """There is always a place to look at."""
    (line,) = github.workflow_commands(document.whole([unanswered("test_it.py::test_one")]), None)
    assert line.startswith("::error file=test_it.py,line=7,title=INCONCLUSIVE")


def test_what_a_program_says_cannot_become_a_command() -> None:
    """A newline, or a percent sign, would end the message and begin whatever follows."""
    problem = "100%\r\n::set-output name=x::y, :"
    test = unanswered("test_it.py::test_one", problem=problem, headline=f"INCONCLUSIVE {problem}")
    (line,) = github.workflow_commands(document.whole([test]), None)
    assert "\n" not in line
    assert "\r" not in line
    assert line.endswith("::test_it.py::test_one%0A100%25%0D%0A::set-output name=x::y, :")
    assert "title=INCONCLUSIVE 100%25%0D%0A%3A%3Aset-output name=x%3A%3Ay%2C %3A::" in line


def test_no_more_annotations_than_are_shown() -> None:
    """GitHub drops what exceeds its limit without a word; so the last one says how many there are."""
    tests = [violated(f"test_it.py::test_{n}") for n in range(25)]
    lines = github.workflow_commands(document.whole(tests), None)
    assert len(lines) == github.MOST_ANNOTATIONS
    assert lines[-1].endswith("16 more tests do not pass; see the log")
    assert len(github.workflow_commands(document.whole(tests[:10]), None)) == 10


def test_the_summary_tells_all_tests_and_the_failing_ones_in_full() -> None:
    """It is what people see first; a name with Markdown in it must not break the table."""
    passing = unanswered("test_it.py::test_a[x|y]", verdict="EXACTLY_ONCE", coverage="exhausted", passed=True)
    told = github.step_summary(document.whole([passing, violated("test_it.py::test_b", text="all ``` of it")]))
    lines = told.splitlines()
    assert lines[:3] == ["## once-chaos", "", "1 exhausted, 1 violated"]
    rows = [line for line in lines if line.startswith("| ")][1:]
    assert rows[0].startswith(r"| ❌ | DUPLICATE | test\_it.py::test\_b |")
    assert rows[1].startswith(r"| ✅ | EXACTLY_ONCE | test\_it.py::test\_a\[x\|y\] |")
    assert "````text\nall ``` of it\n````" in told


def test_the_summary_is_bounded() -> None:
    """GitHub shows nothing of a summary that is too long."""
    tests = [violated(f"test_it.py::test_{n:05d}", text="é" * 3000) for n in range(500)]
    told = github.step_summary(document.whole(tests))
    assert len(told.encode()) <= github.MOST_SUMMARY_BYTES
    assert "more reports do not fit here; see the log." in told
    assert told.count("\n| ❌") == 500


@pytest.mark.parametrize("value", ["true", None])
def test_only_github_is_told(lab: Lab, monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    """Elsewhere the commands would be noise."""
    summary = lab.path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_WORKSPACE", str(lab.path))
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    if value is not None:
        monkeypatch.setenv("GITHUB_ACTIONS", value)
    lab.write(GOOD + BAD)
    result = lab.explore()
    found = [line for line in result.stdout.lines if line.startswith("::")]
    if value is None:
        assert found == []
        assert summary.read_text() == "before\n"
    else:
        (line,) = found
        assert line.startswith(
            "::error file=test_it.py,line=12,title=DUPLICATE pay refund%3A 2 effects%2C 1 intended::"
        )
        assert summary.read_text("utf-8").startswith("before\n## once-chaos\n")
        assert "DUPLICATE pay refund" in summary.read_text("utf-8")
