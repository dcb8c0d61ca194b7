"""How pytest finds the plugin, and what that costs a run that explores nothing."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.plugin.conftest import INSTALLED, Lab
from tests.plugin.suites import BAD, GOOD

HEAVY = (
    *("httpx", "respx", "hypothesis", "aiosqlite", "rich", "time_machine", "uvicorn", "sqlite3", "once_fakes"),
    *("httpx2", "requests", "urllib3", "aiohttp", "botocore", "http.client", "smtplib"),
    *("asyncio", "multiprocessing.connection", "pytest_once.exploration", "pytest_once.scenario"),
)


@pytest.fixture
def entry_point(lab: Lab) -> dict[str, str]:
    """An environment in which pytest finds the plugin as it does once the distribution is installed."""
    if INSTALLED:
        return lab.environment()
    site = lab.pytester.mkdir("site")
    info = site / "pytest_once_chaos-0.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: pytest-once-chaos\nVersion: 0\n")
    info.joinpath("entry_points.txt").write_text("[pytest11]\nonce = pytest_once.plugin\n")
    paths = lab.environment()["PYTHONPATH"]
    return lab.environment(PYTHONPATH=f"{site}:{paths}")


def run(lab: Lab, environment: dict[str, str], *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", *args],
        cwd=lab.path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_pytest_finds_the_plugin_through_its_entry_point(lab: Lab, entry_point: dict[str, str]) -> None:
    """Installing the distribution is all that a user does."""
    lab.write(BAD)
    result = run(lab, entry_point, "--once-chaos=crash")
    assert result.returncode == pytest.ExitCode.TESTS_FAILED, result.stdout + result.stderr
    assert "DUPLICATE  order=o1" in result.stdout


@pytest.mark.slow
def test_p_no_once_switches_it_off(lab: Lab, entry_point: dict[str, str]) -> None:
    """Whoever suspects the plugin can do without: no option, no fixture, no marker."""
    lab.write("def test_plain(): pass\n")
    assert run(lab, entry_point, "-p", "no:once").returncode == pytest.ExitCode.OK
    assert run(lab, entry_point, "-p", "no:once", "--once-chaos").returncode == pytest.ExitCode.USAGE_ERROR
    lab.write(GOOD)
    result = run(lab, entry_point, "-p", "no:once")
    assert "fixture 'once' not found" in result.stdout


@pytest.mark.parametrize("test", ["def test_plain(): pass\n", "def test_plain(tmp_path): pass\n"])
def test_an_unrelated_run_imports_nothing_heavy(lab: Lab, test: str) -> None:
    """Every pytest run of everybody who has installed it pays for what is imported here."""
    lab.write(test)
    lab.pytester.makeconftest(
        f"""
import json, sys
def pytest_unconfigure():
    with open("loaded.json", "w") as file:
        json.dump([name for name in {HEAVY!r} if name in sys.modules], file)
"""
    )
    arguments = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    environment = lab.environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    loaded = []
    for plugin in ((), ("-p", "pytest_once.plugin")):
        subprocess.run([*arguments, *plugin], cwd=lab.path, env=environment, capture_output=True, check=True)
        loaded.append(set(json.loads((lab.path / "loaded.json").read_text())))
    bare, ours = loaded
    assert ours <= bare, "beyond what pytest itself imports"
    assert not ours & {
        "httpx",
        "respx",
        "hypothesis",
        "aiosqlite",
        "rich",
        "time_machine",
        "uvicorn",
        "sqlite3",
        "requests",
        "aiohttp",
    }
