"""Options and ini keys: what is valid, what the valid values are, and what is not swallowed."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Lab
from tests.plugin.suites import BAD, GOOD


def test_without_the_option_nothing_is_explored_and_nothing_is_said(lab: Lab) -> None:
    """An unexplored run must look like any other pytest run."""
    lab.write(BAD)
    result = lab.run()
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("=* once-chaos *=")


def test_the_bare_option_explores(lab: Lab) -> None:
    """The one thing a newcomer types."""
    lab.write(GOOD)
    result = lab.run("--once-chaos")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["EXACTLY_ONCE  test_it.py::test_good: *", "1 exhausted"])


def test_the_bare_option_leaves_the_path_after_it_alone(lab: Lab) -> None:
    """`pytest --once-chaos tests` must run tests, not look for a profile of that name."""
    lab.pytester.mkdir("tests_dir").joinpath("test_inside.py").write_text(GOOD)
    lab.write(BAD)
    result = lab.run("--once-chaos", "tests_dir")
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize("words", [["--once-chaos=crash"], ["--once-chaos", "crash"]])
def test_a_profile_may_follow_after_a_space_or_an_equals_sign(lab: Lab, words: list[str]) -> None:
    """Both spellings are usual for an option with a value."""
    lab.write(GOOD)
    result = lab.run(*words, "test_it.py")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["exhausted means: any number of crashes, no soft faults;*"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("profile", "reach"),
    [("standard", "up to 1 soft fault per*"), ("deep", "up to 2 soft faults per*")],
)
def test_each_profile_says_how_far_it_reaches(lab: Lab, profile: str, reach: str) -> None:
    """A pass under crash and one under deep are different claims."""
    lab.write(GOOD)
    result = lab.run(f"--once-chaos={profile}")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"exhausted means: any number of crashes, and {reach}"])


def test_ini_keys_stand_in_for_the_options(lab: Lab) -> None:
    """A project that always explores says so once."""
    lab.write(GOOD)
    lab.ini("once_chaos = crash", "once_max_states = 1", "once_deadline = 1m", "once_timeout = 5")
    result = lab.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*bounded by max-states=1*"])


def test_the_command_line_wins_over_the_ini_file(lab: Lab) -> None:
    """What is typed is meant."""
    lab.write(GOOD)
    lab.ini("once_chaos = crash", "once_max_states = 1")
    lab.run("--once-max-states=100").assert_outcomes(passed=1)


def test_the_options_work_in_addopts(lab: Lab) -> None:
    """pytest puts addopts before the command line, where the next word is a path."""
    lab.ini("addopts = --once-chaos")
    lab.write(BAD)
    lab.run("test_it.py").assert_outcomes(failed=1)


BAD_VALUES = [
    ("--once-chaos=crsh", "--once-chaos=crsh: valid values are crash, standard, deep"),
    ("--once-isolation=thread", "--once-isolation=thread: valid values are fork, none"),
    ("--once-max-states=0", "--once-max-states=0: give a whole number greater than 0"),
    ("--once-max-states=many", "--once-max-states=many: give a whole number*"),
    ("--once-max-states=-1", "--once-max-states=-1: give a whole number*"),
    ("--once-deadline=soon", "--once-deadline=soon: give a duration greater than 0, such as 500ms, 90s*"),
    ("--once-deadline=0", "--once-deadline=0: give a duration greater than 0*"),
    ("--once-timeout=5q", "--once-timeout=5q: give a duration*"),
    ("--once-timeout=", "--once-timeout=: give a duration*"),
    ("--once-replay=nonsense", "--once-replay: cannot read 'nonsense'*lr=lost-response*"),
    ("--once-replay=", "--once-replay: a schedule id is empty*"),
]


@pytest.mark.parametrize(("option", "message"), BAD_VALUES, ids=[option for option, _ in BAD_VALUES])
def test_a_bad_value_is_a_usage_error_that_names_the_valid_ones(lab: Lab, option: str, message: str) -> None:
    """A typo must not lead to a run that explores something else, or nothing."""
    lab.write(GOOD)
    result = lab.run(option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {message}"])


def test_a_bad_value_in_the_ini_file_is_quoted_as_it_stands_there(lab: Lab) -> None:
    """Who has typed no option must be able to find the place."""
    lab.write(GOOD)
    lab.ini("once_chaos = yes")
    result = lab.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: once_chaos = yes: valid values are crash, standard, deep"])


def test_help_describes_every_option(lab: Lab) -> None:
    """`pytest --help` is the documentation at hand."""
    result = lab.run("--help")
    result.stdout.fnmatch_lines(["exactly-once exploration:", "*--once-chaos*", "*--once-replay*", "*once_deadline*"])


def test_collect_only_collects_and_explores_nothing(lab: Lab) -> None:
    """Listing tests must stay quick and silent."""
    lab.write(BAD)
    result = lab.explore("--collect-only", "-q")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["test_it.py::test_bad"])
    result.stdout.no_fnmatch_line("=* once-chaos *=")


def test_x_stops_at_the_first_conviction(lab: Lab) -> None:
    """A conviction is a failure like any other."""
    lab.write(BAD + BAD.replace("test_bad", "test_second"))
    result = lab.explore("-x")
    result.assert_outcomes(failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_k_selects_what_is_explored(lab: Lab) -> None:
    """Deselected tests cost nothing and are not in the summary."""
    lab.write(BAD + GOOD)
    result = lab.explore("-k", "good")
    result.assert_outcomes(passed=1, deselected=1)
    result.stdout.fnmatch_lines(["1 exhausted"])


@pytest.mark.parametrize(("suite", "code"), [(GOOD, pytest.ExitCode.OK), (BAD, pytest.ExitCode.TESTS_FAILED)])
def test_exit_codes_are_those_of_pytest(lab: Lab, suite: str, code: pytest.ExitCode) -> None:
    """CI already knows what they mean."""
    lab.write(suite)
    assert lab.explore().ret == code


def test_warnings_as_errors_find_nothing_of_ours(lab: Lab) -> None:
    """Suites that run under -W error must be able to use the plugin."""
    lab.write(GOOD)
    lab.explore("-W", "error").assert_outcomes(passed=1)


def test_strict_markers_know_the_marker(lab: Lab) -> None:
    """It is registered; a suite need not declare it."""
    lab.write(GOOD)
    lab.explore("--strict-markers", "--strict-config").assert_outcomes(passed=1)


def test_isolation_none_runs_the_test_here_and_never_passes(lab: Lab) -> None:
    """It is for a debugger; a green run that explored nothing would be a lie."""
    lab.write(GOOD + '\n    print("ran in", __import__("os").getpid())\n')
    result = lab.explore("--once-isolation=none")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["INCONCLUSIVE  with --once-isolation=none*nothing was explored*--once-isolation=fork*", "1 without an answer"]
    )


def test_isolation_none_without_chaos_is_a_plain_run(lab: Lab) -> None:
    """A debugging setting left in the ini file breaks no ordinary run."""
    lab.write(GOOD)
    lab.run("--once-isolation=none").assert_outcomes(passed=1)
