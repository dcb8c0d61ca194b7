"""D07: the activity publishes and dies before its first heartbeat is flushed; "no details" means "not started".

Reports: gitroomhq/postiz-app#2013, TracecatHQ/tracecat#3266. Missing evidence is evidence only of what is written
first.
"""

from __future__ import annotations

from pytest_once import Once, Verdict, explore
from tests.incidents.models import cell, convicted, database, escalated


def activity(once: Once, *, says_so_first: bool) -> None:
    network = once.provider("social")
    with database(once, "engine", "heartbeats(post TEXT PRIMARY KEY, details)") as db:
        row = db.execute("SELECT details FROM heartbeats").fetchone()
        if row is not None:
            if row[0] != "published":
                once.claim("unknown")  # it may have been published
            return
        if says_so_first:
            db.execute("INSERT INTO heartbeats VALUES ('post_1', 'publishing')")
        network.call("publish", {"post": "post_1"})
        db.execute("INSERT OR REPLACE INTO heartbeats VALUES ('post_1', 'published')")  # buffered until here


def test_a_crash_before_the_flush_publishes_again() -> None:
    report = explore(lambda once: activity(once, says_so_first=False), soft_faults=0, blocked=("unknown",))
    violation = convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="post_1")
    assert violation.schedule.crashes == 1
    assert violation.story[0].ending == "killed before engine.db INSERT INTO heartbeats"


def test_an_intention_that_is_written_first_makes_it_unknown() -> None:
    report = explore(lambda once: activity(once, says_so_first=True), soft_faults=0, blocked=("unknown",))
    escalated(report)
    assert cell(report, "crash", "social publish") == "esc."  # nothing happened, but nobody can know
