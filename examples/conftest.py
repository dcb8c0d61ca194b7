"""Tests of broken programs: under --once-chaos they must fail, with the verdict they document."""

from __future__ import annotations

import json
from collections.abc import Generator

import pytest

CONVICTED = "convicted"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{CONVICTED}(verdict, because=...): this program is broken on purpose; --once-chaos must fail it with "
        "exactly this verdict, and then it counts as passed",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    marker = item.get_closest_marker(CONVICTED)
    # A replay is asked for to see the failure.
    if marker is not None and report.when == "call" and _chaos(item.config) and not _replays(item.config):
        _judge(report, *_documented(*marker.args, **marker.kwargs))
    return report


def _documented(verdict: str, *, because: str) -> tuple[str, str]:
    return verdict, because


def _chaos(config: pytest.Config) -> bool:
    return bool(config.getoption("--once-chaos") or config.getini("once_chaos"))


def _replays(config: pytest.Config) -> bool:
    return config.getoption("--once-replay") is not None


def _judge(report: pytest.TestReport, verdict: str, because: str) -> None:
    explored = dict(report.user_properties).get("once")
    found = json.loads(str(explored))["verdict"] if explored else "no verdict"
    story = report.longreprtext
    if report.failed and found == verdict:
        report.outcome = "passed"
        report.longrepr = None
        conviction = {"test": report.nodeid, "because": because, "story": story}
        report.user_properties.append((CONVICTED, json.dumps(conviction)))
    elif not report.skipped:
        report.outcome = "failed"
        report.longrepr = (
            f"documented as convicted of {verdict}, because {because}; but this run says {found}."
            f"{f' Its report:{chr(10)}{chr(10)}{story}' if story else ''}"
        )


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    convictions = [
        json.loads(str(value))
        for report in terminalreporter.stats.get("passed", ())
        for name, value in report.user_properties
        if name == CONVICTED
    ]
    if not convictions:
        return
    terminalreporter.section("convicted, as documented")
    for number, conviction in enumerate(convictions):
        if number:
            terminalreporter.line("")
        terminalreporter.write_sep("_", conviction["test"])
        terminalreporter.line(f"broken on purpose: {conviction['because']}\n")
        terminalreporter.line(conviction["story"])
    terminalreporter.line(f"\n{len(convictions)} convicted, as documented")
