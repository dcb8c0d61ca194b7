"""`ignore=` is a claim that a value decides nothing; every state is tried with another value in its place."""

from __future__ import annotations

import ssl

from pytest_once import Once, Verdict, explore
from tests.engine.bodies import careful, proven, tasks, told

ORDER = {"order": "order_1"}


def counting(once: Once, limit: int | None) -> None:
    """Counts its starts; with a limit the count decides."""
    with tasks(once) as db:
        row = db.execute("SELECT state, note FROM tasks").fetchone()
        starts = 1 + (0 if row is None else int(row[1]))
        db.execute("INSERT OR REPLACE INTO tasks VALUES ('t', ?, ?)", (None if row is None else row[0], starts))
        if row is not None and row[0] == "done":
            return
        if limit is not None and starts > limit:
            return
        careful(once).call("refund", ORDER, key="order_1").raise_for_status()
        db.execute("UPDATE tasks SET state = 'done'")


def test_a_counter_that_is_only_kept_may_be_ignored() -> None:
    """Without ignore= the search would never close."""
    report = explore(lambda once: counting(once, None), name="counting", profile="crash", ignore=("tasks.note",))
    assert proven(report), told(report)
    assert "exchanged in every state" in told(report)


def test_a_counter_that_limits_attempts_may_not() -> None:
    """The states it tells apart were taken for one: no pass can rest on that."""
    report = explore(lambda once: counting(once, 5), name="counting", profile="crash", ignore=("tasks.note",))
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "tasks.note" in report.problem and "decides" in report.problem


def test_what_differs_each_time_is_not_blamed_on_what_is_ignored() -> None:
    """The reader would look for a decision that nobody takes; and lose time with the wrong column."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            row = db.execute("SELECT state, note FROM tasks").fetchone()
            starts = 1 + (0 if row is None else int(row[1]))
            db.execute("INSERT OR REPLACE INTO tasks VALUES ('t', ?, ?)", (None if row is None else row[0], starts))
            careful(once).call("refund", ORDER, key="order_1").raise_for_status()
            if row is not None:  # in the recovery only, where the recording has not seen it
                db.execute("UPDATE tasks SET state = ?", (int.from_bytes(ssl.RAND_bytes(4), "big"),))

    report = explore(body, name="unsteady", profile="crash", ignore=("tasks.note",))
    assert report.verdict is Verdict.NONDETERMINISTIC, told(report)
    assert "run twice from the same state" in report.problem
    assert "tasks.state" in report.problem


def test_a_pattern_that_names_nothing_is_told() -> None:
    """Misspelt, it would leave the reader believing that something is ignored."""
    report = explore(
        lambda once: counting(once, None), name="counting", profile="crash", ignore=("tasks.note", "task.notes")
    )
    assert proven(report)
    (slip,) = [said for said in report.assumptions if "slip of the pen" in said]
    assert slip.endswith(": task.notes")
