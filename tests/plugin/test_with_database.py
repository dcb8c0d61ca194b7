"""Failing schedules are kept from one run to the next, and are never more than a short cut."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pytest_once.database import KEPT_SCHEDULES, KEPT_TESTS, Failures, terms
from pytest_once.faults import Schedule
from pytest_once.scenario import Expectations, Limits
from tests.plugin.conftest import LOADED, Lab
from tests.plugin.suites import AGENT, BAD, GOOD


def failures(directory: Path | None, test: str = "test_a.py::test_one", under: str = "t") -> Failures:
    return Failures(directory, test, under)


def schedules(*texts: str) -> tuple[Schedule, ...]:
    return tuple(map(Schedule.parse, texts))


# -- the directory ---------------------------------------------------------------------------------------


def test_what_is_kept_is_there_for_this_test_under_these_terms_only(tmp_path: Path) -> None:
    """Another test, or fewer faults than the schedule needs: it would say nothing there, or something wrong."""
    failures(tmp_path).keep(schedules("x@end/.", "x@abcdef/."))
    assert failures(tmp_path).fetch() == schedules("x@end/.", "x@abcdef/.")
    assert failures(tmp_path, test="test_a.py::test_two").fetch() == ()
    assert failures(tmp_path, under="u").fetch() == ()


def test_terms_are_what_decides_which_schedules_a_search_tries() -> None:
    """A schedule found with more faults, or more deliveries, would convict code that a search now acquits."""
    plain = terms(Expectations(), Limits())
    assert terms(Expectations(key="o1", ignore=("a.b",)), Limits(max_states=1, deadline_s=1.0)) == plain
    changed = [
        terms(Expectations(redeliver=0), Limits()),
        terms(Expectations(restart_after_s=(0.0, 60.0)), Limits()),
        *(terms(Expectations(), limits) for limits in (Limits(soft_faults=0), Limits(in_flight=0), Limits(choices=1))),
        terms(Expectations(), Limits(fault_kinds=("refused",))),
    ]
    assert len({plain, *changed}) == 1 + len(changed)


def test_nothing_that_fails_any_more_is_nothing_kept(tmp_path: Path) -> None:
    """A directory of tests that once failed would grow for ever."""
    failures(tmp_path).keep(schedules("x@end/."))
    failures(tmp_path).keep(())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe", b"[]", b"{}", b"null", b"[" * 5000, b'{"format": 1', b"x" * 100_000],
    ids=["empty", "no text", "list", "no fields", "null", "deep", "cut short", "long"],
)
def test_foreign_content_is_absent(tmp_path: Path, content: bytes) -> None:
    """It lies in a directory where anybody may write, and which outlives versions."""
    failures(tmp_path).keep(schedules("x@end/."))
    (file,) = tmp_path.iterdir()
    file.write_bytes(content)
    assert failures(tmp_path).fetch() == ()
    failures(tmp_path).keep(schedules("x@end/."))
    assert failures(tmp_path).fetch() == schedules("x@end/.")


@pytest.mark.parametrize("change", [{"format": 2}, {"test": "other"}, {"schedules": ["?"]}, {"schedules": 3}])
def test_a_field_that_is_not_as_expected_makes_it_absent(tmp_path: Path, change: dict[str, object]) -> None:
    """A later version may write something else there."""
    failures(tmp_path).keep(schedules("x@end/."))
    (file,) = tmp_path.iterdir()
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    assert failures(tmp_path).fetch() == ()


def test_where_nothing_can_be_written_nothing_is_kept_and_nothing_is_said(tmp_path: Path) -> None:
    """Read-only checkouts are usual in CI; a cache is no reason to fail there."""
    tmp_path.joinpath("file").write_text("not a directory")
    for directory in (None, tmp_path / "file", tmp_path / "file" / "below"):
        failures(directory).keep(schedules("x@end/."))
        assert failures(directory).fetch() == ()


def test_it_stays_small(tmp_path: Path) -> None:
    """Renamed and deleted tests are never heard of again."""
    for number in range(KEPT_TESTS):
        old = tmp_path / f"{number}.json"
        old.write_text("{}")
        os.utime(old, (number, number))
    failures(tmp_path).keep(schedules(*(f"x@{number:06x}/." for number in range(100))))
    assert len(list(tmp_path.iterdir())) == KEPT_TESTS
    assert not (tmp_path / "0.json").exists()
    assert len(failures(tmp_path).fetch()) == KEPT_SCHEDULES


# -- in pytest -------------------------------------------------------------------------------------------


def explored(lab: Lab, *args: str) -> pytest.RunResult:
    """As a user runs it, with pytest's cache."""
    return lab.pytester.runpytest_inprocess(*LOADED, "-p", "no:randomly", "-W", "default", "--once-chaos=crash", *args)


def kept(lab: Lab) -> list[Path]:
    return sorted(lab.path.joinpath(".pytest_cache", "d", "once").glob("*"))


def said(result: pytest.RunResult) -> str:
    return " ".join(result.stdout.str().split())


@pytest.mark.slow
def test_a_failure_is_found_again_at_once_and_is_forgotten_when_it_is_mended(lab: Lab) -> None:
    """Somebody edits and runs, edits and runs: what was wrong a minute ago is what they want to know."""
    lab.write(AGENT)
    first = explored(lab)
    first.assert_outcomes(failed=2)
    assert "found again" not in said(first)
    assert len(kept(lab)) == 2
    replays = [line for line in first.stdout.lines if line.startswith("  replay:")]

    again = explored(lab)
    again.assert_outcomes(failed=2)
    assert [line for line in again.stdout.lines if line.startswith("  replay:")] == replays
    assert said(again).count("bounded by the schedules of the last run: a failure was found again, so nothing") == 2

    lab.write(
        AGENT.replace(
            'provider.call("refund", {"order": "o1"})', 'provider.call("refund", {"order": "o1"}, key="o1")'
        ).replace('once.provider("pay")', 'once.provider("pay", contract="client_key")')
    )
    mended = explored(lab)  # of the two, the one that acts first
    mended.assert_outcomes(passed=1, failed=1)
    assert "EXACTLY_ONCE  test_it.py::test_act_then_mark: exhausted" in mended.stdout.str()
    assert len(kept(lab)) == 1


def test_a_schedule_that_fits_the_code_no_more_says_nothing(lab: Lab) -> None:
    """Its lines are gone; the search says what is true of the new ones."""
    lab.write(AGENT)
    explored(lab, "-k", "act_then_mark").assert_outcomes(failed=1)
    lab.write(GOOD.replace("test_good", "test_act_then_mark"))
    result = explored(lab)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["1 exhausted"])
    assert kept(lab) == []


@pytest.mark.parametrize("way", ["--once-database=off", "once_database = off", "-p no:cacheprovider"])
def test_it_can_be_switched_off(lab: Lab, way: str) -> None:
    """Whoever wants no files, or the whole search each time, says so."""
    lab.write(BAD)
    if way.startswith("once_"):
        lab.ini(way)
        args = []
    else:
        args = way.split()
    for _ in range(2):
        result = explored(lab, *args)
        result.assert_outcomes(failed=1)
        assert "exhausted for any number of crashes" in said(result)
    assert kept(lab) == []


@pytest.mark.parametrize("ini", [False, True], ids=["option", "ini"])
def test_another_directory_may_be_named(lab: Lab, ini: bool) -> None:
    """One that CI keeps, for instance."""
    lab.write(BAD)
    if ini:
        lab.ini("once_database = kept/here")
    explored(lab, *(() if ini else ("--once-database=kept/here",))).assert_outcomes(failed=1)
    assert len(list(lab.path.joinpath("kept", "here").iterdir())) == 1
    assert kept(lab) == []


def test_a_run_without_an_answer_mends_nothing(lab: Lab) -> None:
    """The body is broken for a moment, the schedule is still the one to try."""
    lab.write(BAD)
    explored(lab).assert_outcomes(failed=1)
    lab.write(BAD + "    raise RuntimeError\n")
    explored(lab).assert_outcomes(failed=1)
    assert len(kept(lab)) == 1


def test_it_never_convicts_what_a_search_would_acquit(lab: Lab) -> None:
    """The failure needs a second delivery, which the test does not ask for any more."""
    lab.write(BAD)
    explored(lab).assert_outcomes(failed=1)
    (file,) = kept(lab)
    document = json.loads(file.read_text())
    file.write_text(json.dumps({**document, "schedules": ["./."]}))  # no crash: delivered again after completion
    assert "found again" in said(explored(lab))
    lab.write(BAD.replace("once_effect", "once_effect(redeliver=0)"))
    result = explored(lab)
    assert "found again" not in said(result)
