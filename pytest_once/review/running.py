"""Runs the checks, and turns what the engine found into answers."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from pytest_once.api import explore, replay
from pytest_once.checks import Verdict
from pytest_once.faults import mark_of
from pytest_once.once import Once
from pytest_once.report import Report, Violation
from pytest_once.review.adapter import Adapter
from pytest_once.review.questions import QUESTIONS, Question
from pytest_once.review.scene import MUST_NOT_BE, Check, Scene, put_key


class Said(StrEnum):
    """UNKNOWN: it could not be asked, or not be answered; never a yes."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table. evidence: for each check what was run, and what came of it."""

    number: int
    question: Question
    said: Said
    evidence: tuple[str, ...]


_WORST = (Said.NO, Said.UNKNOWN, Said.YES)


def review(
    adapter: Adapter, *, questions: Collection[int] | None = None, max_states: int = 400, deadline_s: float = 120.0
) -> Iterator[Row]:
    """Ask the questions in turn. questions: their numbers, from 1; all of them by default.

    max_states, deadline_s: for each check; one that is not finished is unknown.
    """
    limits = {"max_states": max_states, "deadline_s": deadline_s}
    for number, question in enumerate(QUESTIONS, 1):
        if questions is not None and number not in questions:
            continue
        answers = [_checked(adapter, check, limits) for check in question.checks]
        said = min((said for said, _ in answers), key=_WORST.index)
        yield Row(number, question, said, tuple(text for _, text in answers))


def _checked(adapter: Adapter, check: Check, limits: dict[str, Any]) -> tuple[Said, str]:
    with tempfile.TemporaryDirectory() as directory:
        adapter.prepare(Path(directory))
        missing = _missing(adapter, Path(directory), check)
    if missing:
        return Said.UNKNOWN, f"{check.what}: cannot be asked, the adapter has no {', '.join(missing)}"
    said, text = _explored(adapter, check, limits)
    return said, f"{check.what}: {text}"


def _missing(adapter: Adapter, directory: Path, check: Check) -> list[str]:
    outbox = adapter.open(directory, *getattr(adapter, "databases", ()))
    try:
        needs = [*check.needs, *(["shown"] if "order" in check.needs and _is_snapshot(outbox) else [])]
        return [name for name in needs if getattr(outbox, name, None) is None]
    finally:
        outbox.close()


def _is_snapshot(outbox: object) -> bool:
    return getattr(outbox, "order", None) == "snapshot"


def _explored(adapter: Adapter, check: Check, limits: dict[str, Any]) -> tuple[Said, str]:
    keys = {MUST_NOT_BE: 0, **{put_key(number): 1 for number in check.puts}}
    how: dict[str, Any] = {"keys": keys, "limits": limits, "redeliver": 0}
    how["ignore"] = tuple(getattr(adapter, "ignore", ()))
    how |= {"profile": "deep", "soft_faults": 1, "faults": check.faults} if check.faults else {"profile": "crash"}
    with _body(adapter, check) as body:
        report = explore(body, name=check.what, **how)
    if report.violations:
        return Said.NO, _told(report.violations[0])
    if report.verdict in (Verdict.DUPLICATE, Verdict.OMISSION):
        return Said.NO, _without_fault(report.problem)
    if not report.passed:
        return Said.UNKNOWN, report.problem or f"not finished: {report.bound}"
    drilled = [_drilled(adapter, check, report, name, how) for name in check.drills]
    said = min([Said.YES, *(said for said, _ in drilled)], key=_WORST.index)
    text = f"{report.states} states, {report.runs} lives, nothing wrong"
    return said, "; ".join([text, *(told for _, told in drilled)])


@contextmanager
def _body(adapter: Adapter, check: Check) -> Iterator[Callable[[Once], None]]:
    """A life of the check, on databases that are empty."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        adapter.prepare(directory)

        def body(once: Once) -> None:
            world = once.track(directory)
            urls = [once.track(url) for url in getattr(adapter, "databases", ())]
            outbox = adapter.open(world, *urls)
            try:
                check.act(Scene(once, adapter, world, urls, outbox))
            finally:
                outbox.close()

        yield body


def _drilled(adapter: Adapter, check: Check, report: Report, name: str, how: dict[str, Any]) -> tuple[Said, str]:
    """Killed at a named point, from nothing, and started again."""
    marks = [mark_of(boundary) for boundary in report.boundaries if boundary.target == name]
    if not marks:
        return Said.UNKNOWN, f"{name}: never reached"
    schedule = f"x@{marks[0]}/."
    with _body(adapter, check) as body:
        seen = replay(body, schedule, name=check.what, **how)
    if seen.problem:
        return Said.UNKNOWN, f"{name} ({schedule}): {seen.problem}"
    if seen.violations:
        return Said.NO, f"{name} ({schedule}): {_told(seen.violations[0])}"
    return Said.YES, f"{name} ({schedule}): killed, started again, applied once"


def _without_fault(problem: str) -> str:
    noted = re.search(rf"{MUST_NOT_BE} \((.*?)\):", problem)
    return f"{noted[1]}, without any fault" if noted else problem.partition(". ")[0]


def _told(violation: Violation) -> str:
    noted = violation.key is not None and violation.key.name == MUST_NOT_BE
    what = violation.key.provider if noted and violation.key else f"{violation.verdict} ({violation.detail})"
    return f"{what}, on {violation.schedule}"
