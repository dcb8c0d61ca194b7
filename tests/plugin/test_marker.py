"""The marker: its spelling, its arguments, and tests that have it without being explorable."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Lab
from tests.plugin.suites import GOOD


@pytest.mark.parametrize("typo", ["once_efect", "once_effects", "onceeffect", "Once_Effect"])
@pytest.mark.parametrize("options", [(), ("--once-chaos",)], ids=["plain", "chaos"])
def test_a_misspelt_marker_is_an_error(lab: Lab, typo: str, options: tuple[str, ...]) -> None:
    """pytest only warns about unknown markers, and the test would silently run unexplored."""
    lab.write(GOOD.replace("once_effect", typo))
    result = lab.run(*options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: test_it.py::test_good is marked '{typo}'*did you mean 'once_effect'*"])


def test_a_misspelt_marker_of_a_module_or_class_is_an_error_too(lab: Lab) -> None:
    """pytestmark is where a suite with many such tests puts it."""
    lab.write("import pytest\npytestmark = pytest.mark.once_efect\ndef test_one(once): pass\n")
    assert lab.run().ret == pytest.ExitCode.USAGE_ERROR


def test_a_marker_that_somebody_else_has_registered_is_left_alone(lab: Lab) -> None:
    """A name that resembles ours may well be meant."""
    lab.ini("markers = no_effect: somebody's own")
    lab.write("import pytest\n@pytest.mark.no_effect\ndef test_one(): pass\n")
    lab.run().assert_outcomes(passed=1)


def test_strict_markers_report_the_typo_themselves(lab: Lab) -> None:
    """Where pytest is strict, its own message comes first."""
    lab.write(GOOD.replace("once_effect", "once_efect"))
    result = lab.run("--strict-markers")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*'once_efect' not found in `markers`*"])


BAD_ARGUMENTS = [
    ("colour='red'", "once_effect has no argument 'colour'; valid: key, keys, faults*"),
    ("'a', 'b'", "once_effect takes one positional argument, the key*"),
    ("'a', key='b'", "once_effect got the key twice*"),
    ("key=3", "key=3: give the logical key as text, or a function*"),
    ("keys={'a': -1}", "*intended count is 0 or more*"),
    ("keys=3", "keys=3: give a sequence of texts*"),
    ("faults=('lost-respnse',)", "fault kind 'lost-respnse' is unknown; valid: refused, lost-request, lost-response*"),
    ("soft_faults=1.5", "soft_faults=1.5: give a whole number*"),
    ("soft_faults=-1", "soft_faults=-1: give 0 or more*"),
    ("redeliver=-1", "redeliver=-1: a call is redelivered 0 times or more*"),
    ("restart_after=('soon',)", "'soon' is no duration*"),
    ("restart_after=()", "restart_after is empty*"),
    ("blocked=('Timeout',)", "blocked=('Timeout',): give exception classes or 'unknown'*"),
    ("definite_failure=1", "definite_failure=1: give exception classes*"),
    ("ignore=3", "ignore=3: give a sequence of texts*"),
    ("workers=2", "workers=2: exploring several live workers is not supported; use 1*"),
    ("max_states=0", "max_states=0: a limit is greater than 0*"),
    ("deadline='later'", "'later' is no duration*"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_ARGUMENTS, ids=[given for given, _ in BAD_ARGUMENTS])
def test_a_wrong_marker_argument_is_an_error_that_says_what_is_right(lab: Lab, arguments: str, message: str) -> None:
    """An argument that is ignored would change what a pass means."""
    lab.write(GOOD.replace("once_effect", f"once_effect({arguments})"))
    result = lab.explore()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"@pytest.mark.once_effect: {message}"])


def test_wrong_marker_arguments_are_an_error_in_a_plain_run_too(lab: Lab) -> None:
    """They should be found where the test is written, not in the nightly exploration."""
    lab.write(GOOD.replace("once_effect", "once_effect(workers=2)"))
    lab.run().assert_outcomes(errors=1)


@pytest.mark.parametrize("options", [(), ("--once-chaos",)], ids=["plain", "chaos"])
def test_a_test_without_any_effect_fails_and_says_how_to_have_one_counted(lab: Lab, options: tuple[str, ...]) -> None:
    """Nothing happened exactly once too: the emptiest of passes."""
    lab.write("import pytest\n@pytest.mark.once_effect\ndef test_idle(once): pass\n")
    result = lab.run(*options)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["INCONCLUSIVE  the fault-free run had no effect*"])
    text = " ".join(result.stdout.str().split())
    assert "Point the client at once.provider(...).url, wrap the acting function with once.tool(...)" in text


@pytest.mark.parametrize("options", [(), ("--once-chaos",)], ids=["plain", "chaos"])
def test_a_marked_test_without_the_fixture_is_refused_with_the_remedy(lab: Lab, options: tuple[str, ...]) -> None:
    """No effect of it could be counted, so no verdict could be true."""
    lab.write("import pytest\n@pytest.mark.once_effect\ndef test_alone(): pass\n")
    result = lab.run(*options)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["INCONCLUSIVE  test_it.py::test_alone is marked once_effect but has no `once` fixture*"]
    )


def test_an_unmarked_test_that_uses_the_fixture_is_named_in_the_summary(lab: Lab) -> None:
    """The marker is easily forgotten, and everything would be green."""
    lab.write(GOOD + "\ndef test_forgotten(once): pass\n")
    result = lab.explore()
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["not explored: test_it.py::test_forgotten uses `once` but is not marked*"])


def test_a_skipped_test_is_skipped_before_its_marker_is_judged(lab: Lab) -> None:
    """A test that is switched off may be half written."""
    lab.write("import pytest\n@pytest.mark.skip\n@pytest.mark.once_effect(workers=2)\ndef test_off(): pass\n")
    lab.explore().assert_outcomes(skipped=1)


def test_a_doctest_is_not_taken_for_a_test_function(lab: Lab) -> None:
    """Only functions can be restarted; anything else that is marked gets an answer, never a pass."""
    lab.pytester.makeconftest(
        "import pytest\ndef pytest_collection_modifyitems(items):\n"
        "    for item in items: item.add_marker(pytest.mark.once_effect)\n"
    )
    lab.write('def add():\n    """\n    >>> 1 + 1\n    2\n    """\n', "module")
    result = lab.explore("--doctest-modules")
    result.assert_outcomes(errors=1)
