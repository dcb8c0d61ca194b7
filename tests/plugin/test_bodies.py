"""Every kind of test that pytest runs can be explored: classes, unittest, coroutines, with their usual plugins."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Lab
from tests.plugin.suites import GOOD

CALL = 'assert once.provider("pay", contract=contract).call("refund", {"order": "o1"}, key="o1").status == 200'


def suite(template: str) -> str:
    """A suite in which CALL is one effect, for the contract that the tests of `both` set."""
    return template.replace("CALL", CALL)


def both(lab: Lab, source: str, *args: str) -> None:
    """The same suite is convicted without the provider's help and exhausted with it."""
    for contract, outcome in (("none", "failed"), ("client_key", "passed")):
        lab.write(f"contract = {contract!r}\n{suite(source)}")
        result = lab.explore(*args)
        result.assert_outcomes(**{outcome: 1})
        result.stdout.fnmatch_lines(
            ["DUPLICATE  order=o1*2 effects, 1 intended"] if outcome == "failed" else ["EXACTLY_ONCE *", "1 exhausted"]
        )


def test_a_method_of_a_class_is_explored(lab: Lab) -> None:
    """Suites group tests in classes, with setup methods and the marker at the class."""
    both(
        lab,
        """
import pytest

@pytest.mark.once_effect
class TestRefund:
    def setup_method(self):
        self.order = "o1"

    def test_paid(self, once):
        assert self.order == "o1"
        CALL
""",
    )


def test_a_unittest_testcase_gets_the_fixture_from_an_autouse_fixture(lab: Lab) -> None:
    """A TestCase takes no arguments; pytest's documentation names this way."""
    both(
        lab,
        """
import unittest
import pytest

class RefundTest(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def _given(self, once):
        self.once = once

    def setUp(self):
        self.order = "o1"

    @pytest.mark.once_effect
    def test_paid(self):
        once = self.once
        self.assertEqual(self.order, "o1")
        CALL
""",
    )


def test_a_unittest_testcase_that_raises_has_not_completed(lab: Lab) -> None:
    """unittest catches what a test raises; it must not be taken for a return."""
    lab.write(
        """
import unittest
import pytest

class RefundTest(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def _given(self, once):
        self.once = once

    @pytest.mark.once_effect
    def test_paid(self):
        self.once.provider("pay").call("refund", {"order": "o1"})
        self.fail("broken here")
"""
    )
    result = lab.explore()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["INCONCLUSIVE  the fault-free run raised AssertionError: broken here*"])


def test_a_failing_unittest_testcase_fails_plainly_with_its_own_message(lab: Lab) -> None:
    """In a plain run the user's assertion is the news, not the missing effect."""
    lab.write(
        """
import unittest
import pytest

class RefundTest(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def _given(self, once):
        self.once = once

    @pytest.mark.once_effect
    def test_paid(self):
        self.fail("broken here")
"""
    )
    result = lab.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*AssertionError: broken here"])
    result.stdout.no_fnmatch_line("*no effect*")


def test_parametrised_tests_are_explored_one_by_one(lab: Lab) -> None:
    """Each parameter is a test of its own, with its own verdict and replay command."""
    lab.write(
        """
import pytest

@pytest.mark.once_effect
@pytest.mark.parametrize("contract", ["none", "client_key"])
def test_paid(once, contract):
    assert once.provider("pay", contract=contract).call("refund", {"order": "o1"}, key="o1").status == 200
"""
    )
    result = lab.explore()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["*--once-replay=*", "EXACTLY_ONCE  test_it.py::test_paid?client_key?: *", "1 exhausted, 1 violated"]
    )
    assert "pytest 'test_it.py::test_paid[none]' --once-replay=" in result.stdout.str()


COROUTINE = """
import pytest

MARKS
async def test_paid(once):
    CALL
"""


def test_a_coroutine_test_needs_no_plugin(lab: Lab) -> None:
    """asyncio is in the standard library, and so is all that is needed."""
    both(
        lab,
        COROUTINE.replace("MARKS", "@pytest.mark.once_effect"),
        *("-p", "no:asyncio", "-p", "no:anyio"),
    )


def test_a_coroutine_test_needs_no_plugin_in_a_plain_run(lab: Lab) -> None:
    """The same test must not fail as soon as it is not explored."""
    lab.write("contract = 'none'\n" + suite(COROUTINE.replace("MARKS", "@pytest.mark.once_effect")))
    lab.run("-p", "no:asyncio", "-p", "no:anyio").assert_outcomes(passed=1)


def test_pytest_asyncio_runs_its_own_coroutines(lab: Lab) -> None:
    """Strict mode: the test carries that plugin's marker beside ours, and uses its fixtures."""
    pytest.importorskip("pytest_asyncio")
    both(
        lab,
        """
import asyncio
import pytest
import pytest_asyncio

@pytest_asyncio.fixture
async def loop():
    yield asyncio.get_running_loop()

@pytest.mark.asyncio
@pytest.mark.once_effect
async def test_paid(once, loop):
    assert asyncio.get_running_loop() is loop
    CALL
""",
        "-p",
        "no:anyio",
    )


def test_pytest_asyncio_in_auto_mode_needs_no_marker_of_its_own(lab: Lab) -> None:
    """Auto mode takes every coroutine and every async fixture."""
    pytest.importorskip("pytest_asyncio")
    both(
        lab,
        """
import asyncio
import pytest

@pytest.fixture
async def loop():
    yield asyncio.get_running_loop()

@pytest.mark.once_effect
async def test_paid(once, loop):
    assert asyncio.get_running_loop() is loop
    CALL
""",
        "--asyncio-mode=auto",
    )


def test_an_event_loop_of_the_module_is_made_anew_in_each_incarnation(lab: Lab) -> None:
    """A restarted process has no event loop yet, even if a test before this one made one for the module."""
    pytest.importorskip("pytest_asyncio")
    lab.write(
        suite("""
import asyncio
import pytest

contract = "client_key"
pytestmark = pytest.mark.asyncio(loop_scope="module")

async def test_before():
    await asyncio.sleep(0)

@pytest.mark.once_effect
async def test_paid(once):
    await asyncio.sleep(0.01)
    await asyncio.get_running_loop().run_in_executor(None, print)
    CALL

async def test_after():
    await asyncio.sleep(0)
""")
    )
    lab.explore("--once-timeout=5s").assert_outcomes(passed=3)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_anyio_runs_its_coroutines_on_either_backend(lab: Lab, backend: str) -> None:
    """The plugin owns no event loop: whoever starts one in the incarnation is right."""
    pytest.importorskip(backend)
    both(
        lab,
        f"""
import pytest
import sniffio

@pytest.fixture
def anyio_backend():
    return {backend!r}

@pytest.fixture
async def library():
    yield sniffio.current_async_library()

@pytest.mark.anyio
@pytest.mark.once_effect
async def test_paid(once, library):
    assert library == {backend!r}
    CALL
""",
    )


@pytest.mark.parametrize(
    "skip",
    ["pytest.skip('not today')", "raise unittest.SkipTest('not today')", "pytest.importorskip('no_such', 'not today')"],
)
def test_a_skip_in_the_body_skips_the_test(lab: Lab, skip: str) -> None:
    """The child that skips must not be taken for one that fails or completes."""
    lab.write(f"import unittest\nimport pytest\n@pytest.mark.once_effect\ndef test_off(once):\n    {skip}\n")
    result = lab.explore("-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*test_it.py:*not today*" if "import" not in skip else "SKIPPED*test_it.py:*"])


def test_a_skip_in_a_unittest_testcase_skips_the_test(lab: Lab) -> None:
    """self.skipTest is an exception that unittest catches."""
    lab.write(
        """
import unittest
import pytest

class RefundTest(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def _given(self, once):
        self.once = once

    @pytest.mark.once_effect
    def test_off(self):
        self.skipTest("not today")
"""
    )
    lab.explore().assert_outcomes(skipped=1)


@pytest.mark.parametrize("scope", ["function", "module"])
def test_a_skip_in_a_fixture_skips_the_test(lab: Lab, scope: str) -> None:
    """A function fixture skips in the child, a wider one in the parent."""
    lab.write(
        f"""
import pytest

@pytest.fixture(scope={scope!r})
def provider_account():
    pytest.skip("no account")

@pytest.mark.once_effect
def test_off(once, provider_account):
    raise AssertionError
"""
    )
    result = lab.explore("-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*no account*"])


def test_xfail_documents_a_known_conviction(lab: Lab) -> None:
    """A wrong example that is kept on purpose is an expected failure."""
    lab.write(
        GOOD.replace('"client_key"', '"none"').replace("@pytest.mark.once", "@pytest.mark.xfail\n@pytest.mark.once")
    )
    lab.explore().assert_outcomes(xfailed=1)


def test_a_strict_xfail_fails_once_the_code_is_right(lab: Lab) -> None:
    """The mark must go when the code is corrected."""
    lab.write(GOOD.replace("@pytest.mark.once", "@pytest.mark.xfail(strict=True)\n@pytest.mark.once"))
    lab.explore().assert_outcomes(failed=1)


def test_a_body_that_fails_without_any_fault_is_told_with_its_traceback(lab: Lab) -> None:
    """Crashes say nothing about code that is broken anyway: that comes first, as pytest would show it."""
    lab.write(GOOD + "    total = 1 + 1\n    assert total == 3\n")
    result = lab.explore()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "INCONCLUSIVE  the fault-free run raised AssertionError*",
            ">       assert total == 3",
            "E       assert 2 == 3",
            "test_it.py:*: AssertionError",
        ]
    )
    assert "without --once-chaos first" in " ".join(result.stdout.str().split())


def test_what_the_body_prints_is_shown_when_it_fails(lab: Lab) -> None:
    """print() is the oldest debugger; a child must not swallow it."""
    lab.write(GOOD.replace('"client_key"', '"none"') + '    print("looked up the order")\n')
    result = lab.explore()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*output of the last incarnation*", "looked up the order"])
