"""S11: the consumer's offset is deleted and then inserted anew; a kill in between leaves none.

The restart then begins at the start, or at the end, by configuration: duplicates or a gap. Report:
Altinity/clickhouse-sink-connector#1297. Rows and deletion commit together, so that only the missing offset can harm.
"""

from __future__ import annotations

import pytest

from pytest_once import Once, Verdict, explore
from tests.incidents.models import convicted, database, exactly_once

EVENTS = ("event_1", "event_2")
TABLES = "offset(position); rows(event)"


def consumer(once: Once, *, without_offset: str, in_one_step: bool) -> None:
    once.count("sink.db", "SELECT event, count(*) FROM rows GROUP BY event")
    with database(once, "sink", TABLES) as db:
        row = db.execute("SELECT position FROM offset").fetchone()
        fresh = db.execute("SELECT 1 FROM rows").fetchone() is None
        start = 0 if without_offset == "earliest" or fresh else len(EVENTS)
        for position in range(start if row is None else row[0], len(EVENTS)):
            db.execute("BEGIN")
            db.execute("INSERT INTO rows VALUES (?)", (EVENTS[position],))
            db.execute("DELETE FROM offset")
            if not in_one_step:
                db.execute("COMMIT")
            db.execute("INSERT INTO offset VALUES (?)", (position + 1,))
            if in_one_step:
                db.execute("COMMIT")


def test_from_the_start_the_rows_are_inserted_again() -> None:
    report = explore(lambda once: consumer(once, without_offset="earliest", in_one_step=False), soft_faults=0)
    violation = convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="event_1")
    assert violation.schedule.crashes == 1
    assert violation.story[0].ending == "killed before sink.db INSERT INTO offset"


def test_from_the_end_the_rest_is_never_read() -> None:
    report = explore(lambda once: consumer(once, without_offset="latest", in_one_step=False), soft_faults=0)
    violation = convicted(report, Verdict.OMISSION, expected=1, actual=0, key="event_2")
    assert violation.story[0].ending == "killed before sink.db INSERT INTO offset"


@pytest.mark.parametrize("mode", ["earliest", "latest"])
def test_rows_and_offset_in_one_transaction(mode: str) -> None:
    exactly_once(explore(lambda once: consumer(once, without_offset=mode, in_one_step=True), soft_faults=0))
