"""Q25: the lease is written by one node's clock and judged by another's, which is twelve seconds ahead.

The owner is healthy, the other sees an expired lease, both consume. Reports: johanhaleby/occurrent#659,
mlflow/mlflow#25199. One order of events; a store's own clock is the cure while nobody dies.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time

import pytest

from pytest_once import Once, Verdict, explore
from tests.incidents.models import convicted, convicted_undisturbed, database, exactly_once

LEASE_S = 20.0
RENEW_S = 10.0
EVENT_AT_S = 35.0


async def node(once: Once, db: sqlite3.Connection, name: str, ahead_s: float, starts_s: float, *, keyed: bool) -> None:
    """Takes the lease when it looks free, renews it, and consumes the event if it thinks that it is the owner."""

    def now_s() -> float:
        return time.time() + ahead_s

    begun_s = time.time()
    await asyncio.sleep(starts_s)
    owner = False
    while time.time() - begun_s < EVENT_AT_S:
        holder, until_s = db.execute("SELECT holder, until_s FROM lease").fetchone()
        if holder in ("", name) or until_s < now_s():
            db.execute("UPDATE lease SET holder = ?, until_s = ?", (name, now_s() + LEASE_S))
            owner = True
        await asyncio.sleep(RENEW_S)
    if owner:
        sink = once.provider("sink", contract="client_key")
        sink.call("consume", {"event": "event_1"}, key="event_1" if keyed else None)


async def nodes(once: Once, ahead_s: float, *, keyed: bool = False) -> None:
    with database(once, "lease", "lease(holder, until_s REAL)") as db:
        if db.execute("SELECT 1 FROM lease").fetchone() is None:
            db.execute("INSERT INTO lease VALUES ('', 0)")
        await asyncio.gather(node(once, db, "a", 0, 0, keyed=keyed), node(once, db, "b", ahead_s, 9, keyed=keyed))


async def skewed(once: Once) -> None:
    await nodes(once, 12)


async def one_clock(once: Once) -> None:
    await nodes(once, 0)


async def skewed_with_key(once: Once) -> None:
    await nodes(once, 12, keyed=True)


def test_two_clocks_make_two_owners() -> None:
    report = explore(skewed, soft_faults=0, keys=["event_1"], max_states=20)
    convicted_undisturbed(report, Verdict.DUPLICATE, expected=1, actual=2, key="event_1")


def test_with_one_clock_only_a_crash_makes_two() -> None:
    report = explore(one_clock, soft_faults=0, keys=["event_1"], redeliver=0, restart_after=("0s", "1h"))
    violation = convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="event_1")
    assert violation.schedule.crashes >= 1


@pytest.mark.slow
def test_a_key_at_the_sink_needs_no_clock() -> None:
    exactly_once(explore(skewed_with_key, soft_faults=0, keys=["event_1"], restart_after=("0s", "1h")))
