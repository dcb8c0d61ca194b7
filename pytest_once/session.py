"""pytest's side of the reports: gathers the results of all tests, from all xdist workers, and tells them at the end."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_once.events import Listener

PROPERTY = "once"
"""Name under which a test's result travels, as JSON, in its report's user_properties: to JUnit, and across xdist."""
DOCUMENT = "once_document"
"""The same for all that is known of the test. It is taken out before anybody else reads the properties."""


def note(item: pytest.Item, document: dict[str, Any]) -> None:
    """Send a test's result on its way to the summary and the reports."""
    from pytest_once.reporting import junit, terminal

    item.user_properties.append((PROPERTY, json.dumps(terminal.in_summary(document))))
    item.user_properties.append((DOCUMENT, json.dumps(document)))
    item.user_properties += junit.properties(document)


def check_reports(config: pytest.Config) -> None:
    """Raise UsageError unless a report can be written to each path that is wanted."""
    for path, written in _wanted(config):
        from pytest_once.reporting.files import why_not

        if problem := why_not(path):
            raise pytest.UsageError(f"{written}: {problem}")


def _wanted(config: pytest.Config) -> list[tuple[Path, str]]:
    """The reports to write, each with how a person has asked for it; relative ones from where they are asked for."""
    given = config.getoption("--once-report")
    if given:
        return [(config.invocation_params.dir / path, f"--once-report={path}") for path in given]
    base = config.inipath.parent if config.inipath is not None else config.rootpath
    return [(base / path, f"once_report = {path}") for path in config.getini("once_report")]


@contextmanager
def progress(config: pytest.Config) -> Iterator[Listener]:
    """A listener that shows how an exploration goes on, where somebody can see it."""
    from pytest_once.events import silent
    from pytest_once.reporting.progress import ProgressLine

    terminal = config.pluginmanager.getplugin("terminalreporter")
    capture = config.pluginmanager.getplugin("capturemanager")
    quiet = terminal is None or capture is None or config.get_verbosity() < 0 or config.getoption("capture") == "no"
    if quiet or not terminal.isatty or os.environ.get("TERM", "dumb") == "dumb":
        yield silent
        return

    def write(text: str) -> None:
        with capture.global_and_fixture_disabled():
            sys.stdout.write(text)
            sys.stdout.flush()

    line = ProgressLine(write, shutil.get_terminal_size().columns, config.get_terminal_writer().width_of_current_line)
    try:
        yield line
    finally:
        line.clear()


class Results:
    """Registered as a plugin where reports are told: in the only process, or in the xdist controller."""

    def __init__(self, config: pytest.Config, marker: str) -> None:
        from pytest_once.secrets import Secrets

        self._config = config
        self._marker = marker
        self._tests: dict[str, dict[str, Any]] = {}
        self._unmarked: list[str] = []
        self._running: set[str] = set()
        self._ended = "finished"
        self._said: list[str] = []
        self._secrets = Secrets(config.getini("once_secret_fields"))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running.add(nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running.discard(nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        from pytest_once.reporting import document

        found = {name: json.loads(str(value)) for name, value in report.user_properties if name in (PROPERTY, DOCUMENT)}
        report.user_properties = [one for one in report.user_properties if one[0] != DOCUMENT]
        if report.when == "call" and "unmarked" in found.get(PROPERTY, ()):
            self._unmarked.append(report.nodeid)
        elif report.when == "call" and DOCUMENT in found:
            self._tests[report.nodeid] = {**found[DOCUMENT], "seconds": round(report.duration, 3)}
        elif self._marker in report.keywords and report.failed and DOCUMENT not in found:
            file, line, _ = report.location
            path = os.path.relpath(self._config.rootpath / file, self._config.invocation_params.dir)
            self._tests[report.nodeid] = document.without_answer(
                report.nodeid, file=path, line=(line or 0) + 1, problem=self._secrets.hidden(report.longreprtext)
            )

    def pytest_keyboard_interrupt(self) -> None:
        self._ended = "interrupted"

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._ended == "finished" and (session.shouldfail or session.shouldstop):
            self._ended = "stopped"
        for path, written in _wanted(self._config):
            from pytest_once.reporting import files

            try:
                files.write(path, self._document())
            except OSError as error:
                self._said.append(f"NOT WRITTEN  {written}: {error}")
                if session.exitstatus == pytest.ExitCode.OK:
                    session.exitstatus = pytest.ExitCode.TESTS_FAILED
            else:
                self._said.append(f"report: {os.path.relpath(path, self._config.invocation_params.dir)}")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        from pytest_once.reporting.terminal import in_summary, summary

        terminalreporter.section("once-chaos")
        for line in summary([in_summary(test) for test in self._tests.values()], self._unmarked):
            terminalreporter.line(line)
        for line in [*self._said, *self._for_github()]:
            terminalreporter.line(line)

    def _for_github(self) -> list[str]:
        if os.environ.get("GITHUB_ACTIONS") != "true":
            return []
        from pytest_once.reporting import github

        workspace = os.environ.get("GITHUB_WORKSPACE")
        lines = github.workflow_commands(self._document(), Path(workspace) if workspace else None)
        if path := os.environ.get("GITHUB_STEP_SUMMARY"):
            try:
                with open(path, "a", encoding="utf-8", errors="backslashreplace") as summary:
                    summary.write(github.step_summary(self._document()))
            except OSError as error:
                lines.append(f"NOT WRITTEN  the step's summary: {error}")
        return lines

    def _document(self) -> dict[str, Any]:
        from pytest_once.reporting import document

        return document.whole(
            self._tests.values(), ended=self._ended, unfinished=self._running, unmarked=self._unmarked
        )
