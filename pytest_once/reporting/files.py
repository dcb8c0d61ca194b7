"""Reports as files: which formats there are, and how a file is written so that nobody finds half of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pytest_once.reporting import document, html, junit, text

FORMATS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    ".html": html.rendered,
    ".json": document.written,
    ".xml": junit.rendered,
    ".txt": text.rendered,
}
"""Ending of a file's name -> what renders the document for it."""


def why_not(path: Path) -> str:
    """Why no report can be written there, with the remedy; "" if nothing is known against it."""
    if path.suffix.lower() not in FORMATS:
        return f"the ending says the format; valid endings are {', '.join(FORMATS)}"
    if path.is_dir():
        return "this is a directory; name a file"
    if not path.parent.is_dir():
        return f"there is no directory {path.parent}; make it first (mkdir -p {path.parent})"
    if not os.access(path.parent, os.W_OK):
        return f"the directory {path.parent} may not be written to; change its mode, or name another"
    return ""


def write(path: Path, results: Mapping[str, Any]) -> None:
    """Write the report at once, or not at all. Raises OSError."""
    rendered = FORMATS[path.suffix.lower()](results)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_text(rendered, encoding="utf-8", errors="backslashreplace")
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
