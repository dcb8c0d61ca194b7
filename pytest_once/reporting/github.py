"""What GitHub Actions shows: annotations at the lines concerned, and a summary of the step in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from pytest_once.reporting.document import outcome_of

MOST_ANNOTATIONS = 10
"""GitHub shows no more errors than this of one step."""
MOST_SUMMARY_BYTES = 256 * 1024
"""GitHub shows nothing at all of a step whose summary exceeds 1 MiB, and other tools write there too."""

_MARKS = {"exhausted": "✅", "replayed": "▶️", "violated": "❌", "without_answer": "❔"}
_ROOM_FOR_REST = 200


def workflow_commands(document: Mapping[str, Any], workspace: Path | None) -> list[str]:
    """Workflow commands, one a line, for the tests that do not pass. workspace: where the repository is."""
    failing = [test for test in document["tests"] if not test["passed"]]
    shown = failing if len(failing) <= MOST_ANNOTATIONS else failing[: MOST_ANNOTATIONS - 1]
    lines = [_annotation(test, workspace) for test in shown]
    if len(shown) < len(failing):
        lines.append(f"::error title=once-chaos::{len(failing) - len(shown)} more tests do not pass; see the log")
    return lines


def step_summary(document: Mapping[str, Any]) -> str:
    """Markdown for $GITHUB_STEP_SUMMARY: a table of all tests, then the report of each that does not pass."""
    counted = ", ".join(f"{n} {what.replace('_', ' ')}" for what, n in document["totals"].items() if n)
    head = ["## once-chaos", "", counted or "no test marked once_effect was explored", ""]
    if document["ended"] != "finished":
        head += [f"**{document['ended']}**: this is what was known by then.", ""]
    if document["tests"]:
        head += ["| | verdict | test | coverage | states | runs |", "|---|---|---|---|---:|---:|"]
    tests = sorted(document["tests"], key=lambda test: bool(test["passed"]))
    rows = [
        f"| {_MARKS[outcome_of(test)]} | {test['verdict']} | {_inline(test['test'])} | {test['coverage']} "
        f"| {test['states']} | {test['runs']} |"
        for test in tests
    ]
    details = [
        "\n".join(("", f"### {_inline(test['headline'])}", "", _inline(test["test"]), "", _fenced(test["text"])))
        for test in tests
        if not test["passed"]
    ]
    size = len("\n".join(head).encode()) + _ROOM_FOR_REST
    table, size = _fitting(rows, size)
    reports, _ = _fitting(details, size)
    if len(table) < len(rows):
        table.append(f"\n{len(rows) - len(table)} more tests do not fit here; see the log.")
    if len(reports) < len(details):
        reports.append(f"\n{len(details) - len(reports)} more reports do not fit here; see the log.")
    return "\n".join((*head, *table, *reports)) + "\n"


def _fitting(parts: list[str], size: int) -> tuple[list[str], int]:
    """As many of the parts, in order, as fit below the limit; and the size then, in bytes."""
    taken: list[str] = []
    for part in parts:
        bytes_more = len(part.encode("utf-8", "replace")) + 1
        if size + bytes_more > MOST_SUMMARY_BYTES:
            break
        taken.append(part)
        size += bytes_more
    return taken, size


def _annotation(test: Mapping[str, Any], workspace: Path | None) -> str:
    file, line = _place(test)
    place = f"file={_property(_in_repository(file, workspace))},line={line}," if file else ""
    told = [violation["detail"] for violation in test["violations"][:1]] or [test["problem"] or test["headline"]]
    replay = [f"replay: {violation['replay']}" for violation in test["violations"][:1]]
    message = "\n".join((test["test"], *told, *replay))
    return f"::error {place}title={_property(test['headline'])}::{_data(message)}"


def _place(test: Mapping[str, Any]) -> tuple[str, int]:
    """The line of the code under test at which it goes wrong, or else the test."""
    for violation in test["violations"][:1]:
        for life in reversed(violation["story"]):
            for step in reversed(life["steps"]):
                if step["effects"] and step["site"] is not None:
                    return step["site"]["file"], step["site"]["line"]
    return test["file"], test["line"]


def _in_repository(file: str, workspace: Path | None) -> str:
    path = Path(file).absolute()
    if workspace is not None and path.is_relative_to(workspace):
        return str(path.relative_to(workspace))
    return str(PurePath(file))


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _inline(text: str) -> str:
    """Text that Markdown shows as it is."""
    return "".join(f"\\{letter}" if letter in r"\`*_{}[]<>#|~&!" else letter for letter in " ".join(text.split()))


def _fenced(text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}text\n{text}\n{fence}"
