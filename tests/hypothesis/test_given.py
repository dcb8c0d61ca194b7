"""@given tests with the marker: each example is a test of its own; the failing one is the simplest, and told once."""

from __future__ import annotations

import re

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pytest_once.given import EXAMPLES, prepare
from tests.plugin.conftest import Lab
from tests.plugin.test_replay import commands

HEAD = """
import asyncio
import unittest
import pytest
from hypothesis import HealthCheck, Phase, assume, example, given, settings, strategies as st

few = settings(max_examples=3, derandomize=True, database=None)

def refund(once, amount, contract="client_key"):
    reply = once.provider("pay", contract=contract).call("refund", {"order": "o1", "amount": amount}, key="o1")
    assert reply.status == 200
"""

FROM_18_ON = """
@pytest.mark.once_effect
@given(amount=st.integers(0, 40))
def test_refund(once, amount):
    refund(once, amount, "none" if amount > 17 else "client_key")
"""


@pytest.mark.slow
def test_the_simplest_failing_example_is_reported_once_and_replays(lab: Lab) -> None:
    """The point of Hypothesis is the smallest input, and the point of a report is that it can be repeated."""
    lab.write(HEAD + FROM_18_ON.replace("@given", "@settings(database=None, max_examples=30)\n@given"))
    result = lab.explore("--hypothesis-seed=3")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["DUPLICATE  amount=18 order=o1 (pay refund): 2 effects, 1 intended", "*amount=18,", "*@reproduce_failure(*"]
    )
    text = result.stdout.str()
    assert text.count("explored: exhausted") == 1
    (command,) = commands(result)
    assert any(word.startswith("--once-example=") for word in command)
    replayed = lab.run(*command)
    replayed.assert_outcomes(failed=1)
    replayed.stdout.fnmatch_lines(["DUPLICATE  amount=18 order=o1*", "  incarnation 2"])
    assert commands(replayed) == [command]


def test_examples_that_pass_are_one_result(lab: Lab) -> None:
    """A session with a hundred lines a test is read by nobody; and green means those examples, no more."""
    lab.write(
        HEAD + "\n@pytest.mark.once_effect\n@few\n@given(st.integers(0, 9))\ndef test_refund(once, amount):\n"
        "    refund(once, amount)\n"
    )
    result = lab.explore()
    result.assert_outcomes(passed=1)
    text = " ".join(result.stdout.str().split())
    assert text.count("EXACTLY_ONCE") == 1
    assert "holds for the 3 examples that Hypothesis has drawn" in text


@pytest.mark.parametrize("explored", [True, False], ids=["explored", "plain"])
def test_each_example_begins_on_an_empty_world(lab: Lab, explored: bool) -> None:
    """What one example left would decide the next one, and no example would replay alone."""
    lab.write(
        HEAD
        + """
drawn = st.integers(0, 10**6)

@pytest.mark.once_effect
@few
@given(amount=drawn)
def test_refund(once, tmp_path, amount):
    for directory in (once.path, tmp_path):
        (directory / str(amount)).mkdir(exist_ok=True)
        assert [found.name for found in directory.iterdir()] == [str(amount)], "another example was here"
    refund(once, amount)
"""
    )
    (lab.explore() if explored else lab.run()).assert_outcomes(passed=1)


def test_function_scoped_fixtures_are_rebuilt_in_each_incarnation(lab: Lab) -> None:
    """Hypothesis' warning against them is about something that cannot happen here."""
    lab.write(
        HEAD
        + """
made = []

@pytest.fixture
def account():
    made.append(1)
    return len(made)

@pytest.mark.once_effect
@few
@given(amount=st.integers(0, 9))
def test_refund(once, account, amount):
    assert account == 1
    refund(once, amount)
"""
    )
    lab.explore().assert_outcomes(passed=1)
    plain = lab.run()
    plain.assert_outcomes(errors=1)
    plain.stdout.fnmatch_lines(["*all examples share what pytest made for the first: account*function_scoped_fixture*"])


def test_an_assumption_in_the_body_rejects_the_example(lab: Lab) -> None:
    """The child that rejects must not be taken for one that fails, nor for one that has done its work."""
    lab.write(
        HEAD + "\n@pytest.mark.once_effect\n@few\n@given(st.integers(0, 9))\ndef test_refund(once, amount):\n"
        "    assume(amount % 2)\n    assert amount % 2\n    refund(once, amount)\n"
    )
    lab.explore().assert_outcomes(passed=1)
    lab.run().assert_outcomes(passed=1)


def test_a_skip_in_an_example_skips_the_test(lab: Lab) -> None:
    """As without exploring."""
    lab.write(
        HEAD + "\n@pytest.mark.once_effect\n@few\n@given(st.integers(0, 9))\ndef test_refund(once, amount):\n"
        "    pytest.skip('not today')\n"
    )
    lab.explore("-rs").assert_outcomes(skipped=1)


def test_an_explicit_example_is_explored_and_its_schedule_replays_without_a_blob(lab: Lab) -> None:
    """@example cases are regression tests: they come first, and have no blob to copy."""
    lab.write(
        HEAD
        + """
@pytest.mark.once_effect
@few
@example(amount=3)
@example(amount=5)
@given(amount=st.integers(10, 20))
def test_refund(once, amount):
    refund(once, amount, "none" if amount == 5 else "client_key")
"""
    )
    result = lab.explore()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["DUPLICATE  amount=5 order=o1*", "*explicit example*", "*amount=5,"])
    (command,) = commands(result)
    assert not any(word.startswith("--once-example") for word in command)
    lab.run(*command).stdout.fnmatch_lines(["DUPLICATE  amount=5 order=o1*"])


@pytest.mark.slow
def test_a_failing_assertion_is_shrunk_like_any_other(lab: Lab) -> None:
    """Code that is broken without any fault comes first, with the simplest input and its traceback."""
    lab.write(
        HEAD + "\n@pytest.mark.once_effect\n@settings(database=None)\n@given(amount=st.integers(0, 1000))\n"
        "def test_refund(once, amount):\n    refund(once, amount)\n    assert amount < 10\n"
    )
    result = lab.explore("--hypothesis-seed=1")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["INCONCLUSIVE  the fault-free run raised AssertionError*", "*assert 10 < 10", "*amount=10,"]
    )


KINDS = {
    "class": """
@pytest.mark.once_effect
class TestRefund:
    def setup_method(self):
        self.order = "o1"

    @few
    @given(amount=st.integers(0, 9))
    def test_refund(self, once, amount):
        assert self.order == "o1"
        refund(once, amount, CONTRACT)
""",
    "unittest": """
class RefundTest(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def _given(self, once):
        self.once = once

    @pytest.mark.once_effect
    @few
    @given(amount=st.integers(0, 9))
    def test_refund(self, amount):
        refund(self.once, amount, CONTRACT)
""",
    "parametrised": """
@pytest.mark.once_effect
@pytest.mark.parametrize("order", ["o1"])
@few
@given(amount=st.integers(0, 9))
def test_refund(once, order, amount):
    assert order == "o1"
    refund(once, amount, CONTRACT)
""",
    "coroutine": """
@pytest.mark.once_effect
@few
@given(amount=st.integers(0, 9))
async def test_refund(once, amount):
    await asyncio.sleep(0)
    refund(once, amount, CONTRACT)
""",
    "asyncio": """
@pytest.mark.asyncio
@pytest.mark.once_effect
@few
@given(amount=st.integers(0, 9))
async def test_refund(once, amount):
    await asyncio.sleep(0)
    refund(once, amount, CONTRACT)
""",
    "anyio": """
@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"

@pytest.mark.anyio
@pytest.mark.once_effect
@few
@given(amount=st.integers(0, 9))
async def test_refund(once, amount, anyio_backend):
    await asyncio.sleep(0)
    refund(once, amount, CONTRACT)
""",
}
PLUGINS = {
    "coroutine": ("-p", "no:asyncio", "-p", "no:anyio"),
    "asyncio": ("-p", "no:anyio"),
    "anyio": ("-p", "no:asyncio"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_test_may_draw(lab: Lab, kind: str) -> None:
    """What pytest and its plugins can run, can be explored with drawn values: convicted, and with the key exhausted."""
    plugins = PLUGINS.get(kind, ())
    for contract, outcome in (("none", "failed"), ("client_key", "passed")):
        lab.write(f"CONTRACT = {contract!r}\n{HEAD}{KINDS[kind]}")
        result = lab.explore(*plugins)
        result.assert_outcomes(**{outcome: 1})
        if outcome == "failed":
            result.stdout.fnmatch_lines(["DUPLICATE  amount=0 order=o1*"])
    lab.run(*plugins).assert_outcomes(passed=1)


@pytest.mark.slow
def test_the_example_database_brings_the_failing_example_first(lab: Lab) -> None:
    """The second run of a failing test is short; and a plain run in between, which cannot fail, drops nothing."""
    lab.write(HEAD + FROM_18_ON)
    first = lab.run_apart("--once-chaos=crash")  # with a seed Hypothesis leaves the database alone
    assert "DUPLICATE  amount=18" in first.stdout
    assert lab.run_apart().returncode == 0
    again = lab.run_apart("--once-chaos=crash", "--hypothesis-show-statistics")
    assert "DUPLICATE  amount=18" in again.stdout
    assert "during reuse phase" in again.stdout, again.stdout[-1500:]
    assert "during generate phase" not in again.stdout


@pytest.mark.slow
def test_the_seed_decides_what_is_drawn(lab: Lab) -> None:
    """A run in CI is repeated at home with its seed."""
    lab.write(
        HEAD
        + FROM_18_ON.replace("@given", "@settings(database=None, phases=[Phase.generate])\n@given").replace(
            "1000", "10**9"
        )
    )
    seen = []
    for seed in (1, 1, 2):
        found = re.search(r"DUPLICATE  amount=(\d+)", lab.explore(f"--hypothesis-seed={seed}").stdout.str())
        assert found
        seen.append(found[1])
    assert seen[0] == seen[1] != seen[2]


def test_a_plain_run_counts_each_example(lab: Lab) -> None:
    """Without --once-chaos a marked test is still a test of its effects, example by example."""
    lab.write(
        HEAD
        + """
@pytest.mark.once_effect("o1")
@settings(database=None)
@given(amount=st.integers(0, 1000))
def test_refund(once, amount):
    for _ in range(2 if amount > 17 else 1):
        refund(once, amount, "none")
"""
    )
    result = lab.run("--hypothesis-seed=1")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*DUPLICATE  o1 (pay refund): 2 effects, 1 intended", "*amount=18,"])


def test_the_deadline_is_that_of_all_examples_together(lab: Lab) -> None:
    """A test may not take its deadline times the number of its examples; and what was not explored is no pass."""
    lab.write(
        HEAD + "\n@pytest.mark.once_effect\n@settings(database=None, max_examples=200)\n@given(st.integers())\n"
        "def test_refund(once, amount):\n    refund(once, amount)\n"
    )
    result = lab.explore("--once-deadline=1s", "--hypothesis-seed=1")
    result.assert_outcomes(failed=1)
    text = " ".join(result.stdout.str().split())
    assert re.search(r"bounded by deadline=1s for all examples together: \d+ of 200 examples were explored", text)
    assert "INCONCLUSIVE" in text


def test_values_that_are_drawn_while_the_test_runs_are_refused(lab: Lab) -> None:
    """Hypothesis would neither know nor shrink them; a restarted process would draw others."""
    lab.write(
        HEAD + "\n@pytest.mark.once_effect\n@few\n@given(data=st.data())\ndef test_refund(once, data):\n"
        "    refund(once, data.draw(st.integers()))\n"
    )
    result = lab.explore()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["INCONCLUSIVE  data=data() draws while the test runs*"])


def test_an_example_that_cannot_be_drawn_any_more_says_so(lab: Lab) -> None:
    """The strategy may have changed since the report was printed."""
    lab.write(HEAD + FROM_18_ON)
    result = lab.run("--once-replay=x@end/.", "--once-example=AXicY2BkYHBkcOQ")
    result.assert_outcomes(failed=1)
    assert "--once-example" in " ".join(result.stdout.str().split())


def test_a_schedule_without_an_example_to_replay_it_on_is_no_pass(lab: Lab) -> None:
    """With an empty database nothing is replayed at all."""
    lab.write(HEAD + FROM_18_ON.replace("@given", "@settings(database=None)\n@given"))
    result = lab.run("--once-replay=x@end/.")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["INCONCLUSIVE  Hypothesis knows no failing example*"])


def test_settings_of_the_test_are_respected() -> None:
    """Few examples are the default only: who says how many gets them, and their database and phases."""

    @given(st.integers())
    def plain(number: int) -> None: ...

    @settings(max_examples=7, phases=[Phase.generate, Phase.explain], deadline=5)
    @given(st.integers())
    def asked(number: int) -> None: ...

    for test, examples in ((plain, EXAMPLES), (asked, 7)):
        assert prepare(test, explored=True, shared=()) == ""
        used: hypothesis.settings = test._hypothesis_internal_use_settings  # type: ignore[attr-defined]
        assert used.max_examples == examples
        assert used.deadline is None
        assert Phase.explain not in used.phases
        assert HealthCheck.function_scoped_fixture in used.suppress_health_check
