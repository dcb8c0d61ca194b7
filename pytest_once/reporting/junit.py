"""The document as JUnit XML: a case for each test, its verdict and numbers as properties."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

from pytest_once.reporting.document import outcome_of

# What XML 1.0 cannot hold, not even escaped (https://www.w3.org/TR/xml/#charsets).
_UNPRINTABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def properties(test: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a CI system should find beside a test, as names and values."""
    schedules = [violation["schedule"] for violation in test["violations"]]
    named = {
        "once_verdict": test["verdict"],
        "once_coverage": test["coverage"],
        "once_states": str(test["states"]),
        "once_runs": str(test["runs"]),
        "once_crash_points": str(test["crash_points"]),
        "once_crash_diameter": str(test["crash_diameter"]),
    }
    return [*named.items(), *(("once_schedule", schedule) for schedule in schedules)]


def rendered(document: Mapping[str, Any]) -> str:
    """The whole file. A test that is refuted is a failure, one without an answer an error."""
    tests = document["tests"]
    totals = document["totals"]
    suite = ElementTree.Element(
        "testsuite",
        {
            "name": "once-chaos",
            "tests": str(len(tests)),
            "failures": str(totals["violated"]),
            "errors": str(totals["without_answer"]),
            "skipped": "0",
            "time": f"{sum(test['seconds'] for test in tests):.3f}",
        },
    )
    _properties(suite, [("once_ended", document["ended"])])
    for test in tests:
        _case(suite, test)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root, " ")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(suite: ElementTree.Element, test: Mapping[str, Any]) -> None:
    path, _, name = test["test"].partition("::")
    *classes, name = (name or path).split("::")
    case = ElementTree.SubElement(
        suite,
        "testcase",
        {
            "classname": _printable(".".join([path.removesuffix(".py").replace("/", "."), *classes])),
            "name": _printable(name),
            "file": _printable(test["file"]),
            "line": str(test["line"]),
            "time": f"{test['seconds']:.3f}",
        },
    )
    _properties(case, properties(test))
    if not test["passed"]:
        failure = ElementTree.SubElement(
            case,
            "failure" if outcome_of(test) == "violated" else "error",
            {"type": test["verdict"], "message": _printable(test["headline"])},
        )
        failure.text = _printable(test["text"])


def _properties(parent: ElementTree.Element, named: list[tuple[str, str]]) -> None:
    holder = ElementTree.SubElement(parent, "properties")
    for name, value in named:
        ElementTree.SubElement(holder, "property", {"name": name, "value": _printable(value)})


def _printable(text: str) -> str:
    return _UNPRINTABLE.sub(lambda match: f"#x{ord(match[0]):02X}", text)
