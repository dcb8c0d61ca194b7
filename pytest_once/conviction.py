"""What is raised where a test case is not exactly once: one class for each verdict, with the report."""

from __future__ import annotations

from pytest_once.checks import Verdict
from pytest_once.report import Report


class NotOnce(AssertionError):
    """A test case that is not exactly once, or of which it is not known. `report` says what was seen."""

    def __init__(self, report: Report, text: str) -> None:
        super().__init__(text)
        self.report = report


_CLASSES = {verdict: type(str(verdict), (NotOnce,), {}) for verdict in Verdict}


def conviction(report: Report, text: str) -> NotOnce:
    """The exception for a report. Its class is that of the verdict: what shrinks a failure must not find another."""
    raised: NotOnce = _CLASSES[report.verdict](report, text)
    return raised
