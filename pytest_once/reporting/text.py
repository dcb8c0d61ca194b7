"""The document as plain text: what the terminal says, in 80 columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pytest_once.reporting import terminal

# Whatever a program under test printed or raised: colours, cursor movements, other control characters.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def rendered(document: Mapping[str, Any]) -> str:
    """The whole file: every test that does not pass in full, then the summary."""
    lines: list[str] = []
    for test in document["tests"]:
        if not test["passed"]:
            lines += [
                test["test"],
                "=" * min(terminal.WIDTH, len(test["test"])),
                "",
                *test["text"].splitlines(),
                "",
                "",
            ]
    lines += ["once-chaos", "==========", ""]
    if document["ended"] != "finished":
        lines.append(f"{document['ended']}: this is what was known by then")
        lines += [f"  not finished: {name}" for name in document["unfinished"]]
    lines += terminal.summary([terminal.in_summary(test) for test in document["tests"]], document["unmarked"])
    return "\n".join(_ESCAPES.sub("", line).rstrip() for line in lines) + "\n"
