"""Suites as people have them: packages, conftest files, doctests, xfail and skip, strict settings, no capturing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.plugin.conftest import Lab
from tests.plugin.suites import BAD, GOOD


@pytest.mark.slow
def test_a_src_layout_with_conftest_files_in_sub_directories(lab: Lab) -> None:
    """Nothing depends on where pytest was started: places are told from there, and commands work there."""
    package = lab.pytester.mkdir("src") / "shop"
    package.mkdir()
    package.joinpath("__init__.py").write_text("")
    package.joinpath("pay.py").write_text('def pay(provider):\n    provider.call("refund", {"order": "o1"})\n')
    tests = lab.pytester.mkdir("tests")
    inner = tests / "inner"
    inner.mkdir()
    tests.joinpath("conftest.py").write_text(
        "import pytest\n@pytest.fixture\ndef provider(once, contract): return once.provider('pay', contract=contract)\n"
    )
    inner.joinpath("conftest.py").write_text("import pytest\n@pytest.fixture\ndef contract():\n    return 'none'\n")
    inner.joinpath("test_pay.py").write_text(
        "import pytest\nfrom shop.pay import pay\n@pytest.mark.once_effect\ndef test_pay(provider): pay(provider)\n"
    )
    lab.ini("pythonpath = src", "addopts = --import-mode=importlib")
    done = subprocess.run(
        lab.command("--once-chaos=crash"), cwd=tests, env=lab.environment(), capture_output=True, text=True, check=False
    )
    assert "src/shop/pay.py:2" in done.stdout, done.stdout + done.stderr
    assert "replay: pytest inner/test_pay.py::test_pay --once-replay=" in done.stdout


def test_doctests_beside_marked_tests_are_left_alone(lab: Lab) -> None:
    """They have no markers and no business here."""
    lab.write('"""\n>>> 1 + 1\n2\n"""\n' + GOOD)
    result = lab.explore("--doctest-modules")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["1 exhausted"])


def test_xfail_and_skipif_decide_as_they_do_elsewhere(lab: Lab) -> None:
    """A known conviction is expected; another kind of failure than the named one is not; what is off is off."""
    expected = BAD.replace("test_bad", "test_expected").replace("@pytest", "@pytest.mark.xfail(strict=True)\n@pytest")
    other = BAD.replace("test_bad", "test_other").replace("@pytest", "@pytest.mark.xfail(raises=ValueError)\n@pytest")
    off = BAD.replace("test_bad", "test_off").replace("@pytest", "@pytest.mark.skipif(True, reason='off')\n@pytest")
    lab.write(expected + other + off)
    lab.explore().assert_outcomes(xfailed=1, failed=1, skipped=1)


@pytest.mark.parametrize("args", [("-s",), ("--capture=sys",), ("--capture=tee-sys",)])
def test_without_capturing_what_incarnations_print_stays_theirs(lab: Lab, args: tuple[str, ...]) -> None:
    """A hundred lives would print a hundred times."""
    lab.write(BAD + "    print('from a life')\n")
    result = lab.explore(*args)
    result.assert_outcomes(failed=1)
    assert result.stdout.str().count("from a life") == 1, "once, as the output of the last incarnation"


def test_the_strictest_settings_find_nothing_of_ours(lab: Lab) -> None:
    """Warnings as errors, strict markers, strict configuration, all at once and with a class and parameters."""
    lab.ini("filterwarnings = error", "addopts = --strict-markers --strict-config", "xfail_strict = true")
    lab.write(
        """
import pytest

@pytest.mark.once_effect
@pytest.mark.parametrize("order", ["o1", "o2"])
class TestPay:
    def test_paid(self, once, order):
        once.provider("pay", contract="client_key").call("refund", {"order": order}, key=order)
"""
    )
    result = lab.explore("-W", "error")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["2 exhausted"])


def test_without_the_plugin_strict_markers_name_the_marker(lab: Lab) -> None:
    """Nothing of ours runs then; what pytest says must at least lead to what is missing."""
    lab.write(GOOD)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:once", "-p", "no:cacheprovider", "--strict-markers"],
        cwd=lab.path,
        env=lab.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == pytest.ExitCode.INTERRUPTED
    assert "'once_effect' not found in `markers` configuration option" in done.stdout
