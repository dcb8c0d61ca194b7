"""What the bodies of these tests have in common: a table of tasks, and a provider that remembers keys."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from pytest_once import Once, Report

if TYPE_CHECKING:
    from once_fakes import Provider


class NoAnswer(Exception):
    """The code does not know whether its request was carried out."""


class Rejected(Exception):
    """The code is certain that its request was not carried out."""


@contextmanager
def tasks(once: Once) -> Iterator[sqlite3.Connection]:
    """A connection to the table tasks(id, state, note), which is made when needed."""
    with closing(sqlite3.connect(once.path / "tasks.db", isolation_level=None)) as db:
        db.execute("CREATE TABLE IF NOT EXISTS tasks(id TEXT PRIMARY KEY, state TEXT, note)")
        yield db


def state(db: sqlite3.Connection, task: str = "t") -> str | None:
    row = db.execute("SELECT state FROM tasks WHERE id = ?", (task,)).fetchone()
    return None if row is None else str(row[0])


def put(db: sqlite3.Connection, value: str, task: str = "t", note: object = None) -> None:
    db.execute("INSERT OR REPLACE INTO tasks VALUES (?, ?, ?)", (task, value, note))


def careful(once: Once) -> Provider:
    """A provider that remembers keys."""
    return once.provider("pay", contract="client_key")


def careless(once: Once) -> Provider:
    """A provider that acts on every request."""
    return once.provider("pay", contract="none")


def verdicts(report: Report) -> set[str]:
    return {str(violation.verdict) for violation in report.violations}


def told(report: Report) -> str:
    """Everything a report says, for asking whether it says a thing."""
    details = [violation.detail for violation in report.violations]
    return "\n".join([report.problem, report.bound, *details, *report.assumptions])


def proven(report: Report) -> bool:
    """Passed, exhausted, and nothing to say against it."""
    return report.passed and report.coverage == "exhausted" and not report.violations and not report.problem
