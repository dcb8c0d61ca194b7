"""S03: the lease is created, the reply is lost, the same request is sent again and refused: somebody holds it already.

Its own holder gives way to itself, nobody works, and the lease blocks the others. Report: marin-community/marin#8556.
"""

from __future__ import annotations

import pytest

from pytest_once import Once, Verdict, explore
from tests.incidents.models import cell, convicted, database, exactly_once


class PreconditionFailed(Exception):
    """412: it exists."""


def worker(once: Once, *, knows_its_own: bool) -> None:
    work = once.provider("work", contract="client_key")
    with database(once, "store", "leases(name TEXT PRIMARY KEY, holder)") as db:

        def create(holder: str) -> None:
            if not db.execute("INSERT OR IGNORE INTO leases VALUES ('lease_1', ?)", (holder,)).rowcount:
                raise PreconditionFailed

        put = once.tool(create, name="put if-none-match", counted=False)
        try:
            try:
                put("worker_1")
            except TimeoutError:
                put("worker_1")  # the library sends a lost request again
        except PreconditionFailed:
            holder = db.execute("SELECT holder FROM leases").fetchone()[0]
            if not (knows_its_own and holder == "worker_1"):
                once.claim("in_progress")  # another holder has it
                return
        work.call("run", {"task": "task_1"}, key="task_1")


@pytest.mark.slow
def test_its_own_lease_is_taken_for_another_holders() -> None:
    report = explore(lambda once: worker(once, knows_its_own=False), faults=("lost-response",), redeliver=0)
    convicted(report, Verdict.STUCK, expected=1, actual=0, key="task_1")
    assert cell(report, "lost-response", "put if-none-match") == "stuck"


def test_reading_the_lease_back_shows_its_own_token() -> None:
    exactly_once(explore(lambda once: worker(once, knows_its_own=True), faults=("lost-response",)))
