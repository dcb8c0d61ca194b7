"""pytest-once-chaos: does a side effect really happen exactly once?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_once.api import explore as explore
    from pytest_once.api import replay as replay
    from pytest_once.checks import Verdict as Verdict
    from pytest_once.once import Once as Once
    from pytest_once.process import ProcessFailed as ProcessFailed
    from pytest_once.report import Report as Report

_HOME = {
    "explore": "pytest_once.api",
    "replay": "pytest_once.api",
    "Verdict": "pytest_once.checks",
    "Once": "pytest_once.once",
    "ProcessFailed": "pytest_once.process",
    "Report": "pytest_once.report",
}
__all__ = ["Once", "ProcessFailed", "Report", "Verdict", "explore", "replay"]


def __getattr__(name: str) -> Any:
    # Loaded on first use: the plugin is imported by every pytest run, explored or not.
    if name not in _HOME:
        raise AttributeError(f"module 'pytest_once' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOME[name]), name)
