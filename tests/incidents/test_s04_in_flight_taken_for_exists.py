"""S04: the store answers 409, "a request is in flight, try again", and the client reads "it exists already".

Two claimants get it at once, nothing has landed, both are told that a holder exists, and nobody claims.
Reports: apache/arrow-rs-object-store#852, NOFireAI/ravel#1365.
"""

from __future__ import annotations

import pytest

from pytest_once import Once, Verdict, explore
from tests.incidents.models import by_fault_alone, convicted, database, exactly_once


class InFlight(Exception):
    """409: nothing is decided yet."""


class Exists(Exception):
    """412: there is a holder."""


def claimants(once: Once, *, settled: tuple[type[Exception], ...]) -> None:
    """settled: what a claimant takes for the news that somebody else has it."""
    work = once.provider("work", contract="client_key")
    with database(once, "store", "claims(name TEXT PRIMARY KEY, holder)") as db:

        def create(holder: str) -> None:
            if not db.execute("INSERT OR IGNORE INTO claims VALUES ('task_1', ?)", (holder,)).rowcount:
                raise Exists

        put = once.tool(create, name="put if-none-match", counted=False, refused_error=InFlight)
        for holder in ("claimant_1", "claimant_2"):
            try:
                put(holder)
            except settled:
                pass
        row = db.execute("SELECT holder FROM claims").fetchone()
        if row is not None:
            work.call("run", {"task": "task_1"}, key="task_1")


@pytest.mark.slow
def test_both_believe_in_a_holder_that_does_not_exist() -> None:
    report = explore(lambda once: claimants(once, settled=(InFlight, Exists)), faults=("refused",))
    convicted(report, Verdict.OMISSION, expected=1, actual=0, key="task_1")
    assert by_fault_alone(report)[0].startswith("RF@")


def test_in_flight_is_an_error_to_be_tried_again() -> None:
    exactly_once(explore(lambda once: claimants(once, settled=(Exists,)), faults=("refused",)))
