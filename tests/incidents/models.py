"""What the incidents have in common: how a report is judged, and three programs that many of them run."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from pytest_once import Once, Report, Verdict, replay
from pytest_once.ledger import Arrival, Ledger
from pytest_once.report import Violation


class NoAnswer(Exception):
    """The program does not know whether its request was carried out."""


# Judging


def convicted(
    report: Report, verdict: Verdict, *, expected: int | None, actual: int | None, key: str = ""
) -> Violation:
    """The first violation: confirmed, with this verdict and these counts, about a key that contains `key`."""
    assert report.verdict is verdict, told(report)
    violation = report.violations[0]
    assert violation.verdict is verdict and violation.confirmed, told(report)
    assert (violation.expected, violation.actual) == (expected, actual), told(report)
    assert key in str(violation.key or ""), told(report)
    return violation


def convicted_undisturbed(report: Report, verdict: Verdict, *, expected: int, actual: int, key: str) -> None:
    """Nothing has to fail for it: the fault-free run is against the stated intent already."""
    assert report.verdict is verdict and not report.passed, told(report)
    assert "already without any fault" in report.problem, told(report)
    assert key in report.problem, told(report)
    assert re.search(
        rf"\b{actual} effects for one intent; {expected} intended|with {actual} of {expected} effects", report.problem
    )


def exactly_once(report: Report) -> None:
    """The cure passes, and nothing was left to explore."""
    assert report.passed and report.verdict is Verdict.EXACTLY_ONCE and report.coverage == "exhausted", told(report)


def escalated(report: Report) -> None:
    """Safe, not always complete, and allowed by the test: the best there is where nothing can be asked."""
    assert report.passed and report.verdict is Verdict.ESCALATED and report.coverage == "exhausted", told(report)


def cell(report: Report, what: str, target: str) -> str:
    """What one crash before, or one fault at, the only boundary whose name ends so leads to: "once", "2x", "stuck"."""
    targets = [row.boundary.target if row.boundary else "the end" for row in report.matrix]
    assert [name.endswith(target) for name in targets].count(True) == 1, targets
    (row,) = [row for row, name in zip(report.matrix, targets, strict=True) if name.endswith(target)]
    return row.outcomes.get(what, "-")


def by_fault_alone(report: Report) -> list[str]:
    """The confirmed schedules under the report's verdict in which a call fails and no process dies."""
    found = [violation for violation in report.violations if violation.verdict is report.verdict]
    schedules = [schedule for violation in found for schedule in (violation.schedule, *violation.variants)]
    return [str(schedule) for schedule in schedules if schedule.soft_faults and not schedule.crashes]


def arrivals(body: Callable[[Once], object], schedule: str, keep: Path, **marker: object) -> list[Arrival]:
    """The requests that reach the providers when one schedule is replayed."""
    replay(body, schedule, keep=keep, **marker)  # type: ignore[arg-type]
    return Ledger(keep / "ledger.db").arrivals()


def told(report: Report) -> str:
    """A report in a few lines, for the message of a failed assertion."""
    lines = [f"{report.verdict} {report.coverage} {report.bound} {report.problem}"]
    for violation in report.violations:
        counts = f"{violation.actual} of {violation.expected}"
        lines.append(f"{violation.verdict} {violation.key} {counts} {violation.schedule} {violation.detail}")
        for life in violation.story:
            lines += [f"  {step.boundary.target} [{step.fault}] {step.effects}" for step in life.steps]
            lines.append(f"  -- {life.ending}")
    return "\n".join(lines)


# Programs


@contextmanager
def database(once: Once, name: str, schema: str) -> Iterator[sqlite3.Connection]:
    """A database of the world, in which each statement commits by itself unless the program says BEGIN."""
    with closing(sqlite3.connect(once.path / f"{name}.db", isolation_level=None)) as db:
        tables = [table.strip() for table in schema.split(";")]
        if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] < len(tables):
            db.execute("BEGIN")
            for table in tables:
                db.execute(f"CREATE TABLE {table}")
            db.execute("COMMIT")
        yield db


def asks_once(once: Once, act: Callable[[], object]) -> None:
    """A program that never asks twice by itself: after a crash or an error it says that it does not know.

    What still happens twice was repeated below it, by its library.
    """
    with database(once, "program", "asked(done)") as db:
        row = db.execute("SELECT done FROM asked").fetchone()
        if row is None:
            db.execute("INSERT INTO asked VALUES (0)")
            act()
            db.execute("UPDATE asked SET done = 1")
        elif not row[0]:
            once.claim("unknown")


QUEUE = "messages(id TEXT PRIMARY KEY, due_s REAL, hidden_until_s REAL, acked)"


class Broker:
    """A queue with a visibility time-out: a message that was fetched and not acknowledged comes back after it."""

    def __init__(self, db: sqlite3.Connection, lease_s: float) -> None:
        self.db = db
        self.lease_s = lease_s

    def put(self, message: str, delay_s: float = 0) -> None:
        """Publish a message, once under its id."""
        due_s = time.time() + delay_s
        self.db.execute("INSERT OR IGNORE INTO messages VALUES (?, ?, 0, 0)", (message, due_s))

    def fetch(self) -> tuple[str, float] | None:
        """The next visible message and when it is due, hidden from now on for the lease."""
        now_s = time.time()
        row = self.db.execute(
            "SELECT id, due_s FROM messages WHERE NOT acked AND hidden_until_s <= ? ORDER BY rowid", (now_s,)
        ).fetchone()
        if row is None:
            return None
        self.db.execute("UPDATE messages SET hidden_until_s = ? WHERE id = ?", (now_s + self.lease_s, row[0]))
        return str(row[0]), float(row[1])

    def ack(self, message: str) -> None:
        self.db.execute("UPDATE messages SET acked = 1 WHERE id = ?", (message,))

    def waiting(self) -> bool:
        """Whether any message, visible or hidden, has not been acknowledged."""
        return self.db.execute("SELECT 1 FROM messages WHERE NOT acked").fetchone() is not None
