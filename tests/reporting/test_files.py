"""--once-report: where a report may be written is known before the run starts, and one is written however it ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_once.reporting import document, files
from tests.plugin.conftest import Lab
from tests.plugin.suites import BAD, GOOD
from tests.reporting.conftest import Run, run_in, wanted


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("report.pdf", "*--once-report=report.pdf: *valid endings are .html, .json, .xml, .txt*"),
        ("report", "*--once-report=report: *valid endings are .html, .json, .xml, .txt*"),
        ("absent/report.json", "*--once-report=absent/report.json: there is no directory *absent; make it first*"),
        ("there.json", "*--once-report=there.json: this is a directory*"),
    ],
)
def test_a_report_that_cannot_be_written_ends_the_run_before_it_starts(lab: Lab, path: str, said: str) -> None:
    """Nobody should wait ten minutes for a slip of the pen."""
    lab.write(GOOD)
    (lab.path / "there.json").mkdir()
    result = lab.explore(f"--once-report={path}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([said])


def test_a_report_of_a_run_that_explores_nothing_is_refused(lab: Lab) -> None:
    """It would be missing in the end, and nobody would know why."""
    lab.write(GOOD)
    result = lab.run("--once-report=report.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--once-report needs --once-chaos or --once-replay*"])


def test_the_ini_file_names_reports_too(lab: Lab) -> None:
    """Relative to itself; a plain run ignores it."""
    lab.ini("once_report = report.json report.txt")
    lab.write(GOOD)
    lab.run().assert_outcomes(passed=1)
    assert not (lab.path / "report.json").exists()
    lab.explore().stdout.fnmatch_lines(["report: report.json", "report: report.txt"])
    assert (lab.path / "report.json").exists()
    assert (lab.path / "report.txt").exists()


def test_all_formats_are_written_and_named_and_nothing_else_is_left(run: Run) -> None:
    """One run, several readers."""
    names = ["report.html", "report.json", "report.txt", "report.xml"]
    assert sorted(path.name for path in run.path.glob("*report.*")) == names
    for name in names:
        assert f"\nreport: {name}\n" in run.output


def test_an_interrupted_run_writes_what_is_known(tmp_path: Path) -> None:
    """Ctrl-C after an hour must not lose the hour; but it must not look like the end either."""
    suite = GOOD + "\ndef test_long():\n    raise KeyboardInterrupt\n" + BAD
    run = run_in(tmp_path, suite, "--once-chaos=crash", *wanted("json", "txt", "html"))
    assert "KeyboardInterrupt" in run.output
    assert run.document["ended"] == "interrupted"
    assert run.document["unfinished"] == ["test_it.py::test_long"]
    assert [test["test"] for test in run.document["tests"]] == ["test_it.py::test_good"]
    assert "interrupted: this is what was known by then" in run.text("txt")
    assert "Interrupted." in run.text("html")


def test_a_run_that_stops_at_the_first_failure_says_so(lab: Lab) -> None:
    """With -x the later tests are missing; a reader must not take them for absent."""
    lab.write(BAD + GOOD)
    lab.explore("-x", "--once-report=report.json")
    found = Run(lab.path, "").document
    assert found["ended"] == "stopped"
    assert [test["test"] for test in found["tests"]] == ["test_it.py::test_bad"]


def test_a_report_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads while it is written, or after a full disk, finds the old one."""
    path = tmp_path / "report.json"
    path.write_text("old")
    monkeypatch.setattr(os, "replace", _full)
    with pytest.raises(OSError, match="full"):
        files.write(path, document.whole([]))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def _full(source: object, target: object) -> None:
    raise OSError(28, "disk full")


def test_a_report_that_cannot_be_written_in_the_end_fails_the_run(lab: Lab) -> None:
    """The directory may vanish meanwhile. A green run without the report that was asked for would go unnoticed."""
    (lab.path / "out").mkdir()
    lab.write(GOOD + "\ndef test_away():\n    import pathlib\n    pathlib.Path('out').rmdir()\n")
    result = lab.explore("--once-report=out/report.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["NOT WRITTEN  --once-report=out/report.json: *"])
