"""The document as one HTML file that needs no server, no network and no script to be read."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_once.reporting import picture, sequence
from pytest_once.reporting.document import outcome_of

if TYPE_CHECKING:
    import jinja2

_PARTS = Path(__file__).parent / "page"

_WORDS = {
    "exhausted": "exhausted",
    "replayed": "replayed, one schedule only",
    "violated": "violated",
    "without_answer": "without an answer",
}
_CELLS = {"once": "good", "later": "soft", "esc.": "soft", "no": "soft", "?": "soft"}


def rendered(document: Mapping[str, Any]) -> str:
    """The whole file."""
    style, script = (_PARTS / "report.css").read_text("utf-8"), (_PARTS / "report.js").read_text("utf-8")
    return str(
        _environment()
        .get_template("report.html")
        .render(
            document=document,
            tests=[_told(test, number) for number, test in enumerate(document["tests"], 1)],
            totals=[(name, _WORDS[name], n) for name, n in document["totals"].items()],
            style=style,
            script=script,
            policy=f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
            "base-uri 'none'; form-action 'none'",
        )
    )


def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_PARTS),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _told(test: Mapping[str, Any], number: int) -> dict[str, Any]:
    """A test with its drawings, and what the page looks up instead of deciding."""
    name = f"t{number}"
    return {
        **test,
        "id": name,
        "outcome": outcome_of(test),
        "picture": picture.drawn(test["graph"], f"{name}-graph"),
        "violations": [
            {**violation, "diagram": sequence.drawn(violation["story"], f"{name}-story{n}")}
            for n, violation in enumerate(test["violations"], 1)
        ],
        "replay_diagram": sequence.drawn(test["replayed"], f"{name}-replayed"),
        "cells": _CELLS,
    }


def _digest(text: str) -> str:
    """What a content security policy calls this very text."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
