"""`--once-selfcheck`: known-bad code must be convicted by the engine as it is installed."""

from __future__ import annotations

import pytest

from pytest_once import Verdict, selfcheck


@pytest.mark.slow
def test_every_control_is_judged_as_it_must_be(pytester: pytest.Pytester) -> None:
    """Every verdict there is has a control; no test of the suite is run."""
    pytester.makepyfile("def test_that_is_not_run(): assert False")
    result = pytester.runpytest_subprocess("--once-selfcheck")
    assert result.ret == pytest.ExitCode.OK
    total = len(selfcheck.CONTROLS)
    result.stdout.fnmatch_lines([f"{total} of {total} controls judged as they must be"])
    result.stdout.no_fnmatch_line("*WRONG*")
    result.stdout.no_fnmatch_line("*test_that_is_not_run*")


def test_a_control_that_escapes_fails_the_session(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A harness that acquits what it must convict says so, and exits accordingly."""
    good = next(control for control in selfcheck.CONTROLS if control.verdict is Verdict.EXACTLY_ONCE)
    mutant = selfcheck.Control("a bug that nobody sees", good.body, Verdict.DUPLICATE)
    monkeypatch.setattr(selfcheck, "CONTROLS", (mutant,))
    result = pytester.runpytest("-p", "no:randomly", "--once-selfcheck")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ["EXACTLY_ONCE*a bug that nobody sees", "*WRONG: DUPLICATE was expected*", "0 of 1 controls*"]
    )


def test_the_controls_cover_every_verdict() -> None:
    assert {control.verdict for control in selfcheck.CONTROLS} == set(Verdict)
