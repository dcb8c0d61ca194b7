"""P06: candidates are read from a replica and not looked at again on the primary; each run makes its own key.

The replica lags, so the next run of the task still finds the funds to be released. Report: saleor/saleor#19812.
"""

from __future__ import annotations

import sqlite3
import time
import uuid

from pytest_once import Once, Verdict, explore
from tests.incidents.models import convicted, database, exactly_once

LAG_S = 30


def due_on_replica(db: sqlite3.Connection) -> list[str]:
    """What the replica shows: changes of the last half minute are not there yet."""
    rows = db.execute("SELECT id FROM orders WHERE released_s IS NULL OR released_s > ?", (time.time() - LAG_S,))
    return [str(order) for (order,) in rows.fetchall()]


def release_funds(once: Once, *, looks_again: bool) -> None:
    provider = once.provider("psp", contract="client_key")
    with database(once, "shop", "orders(id TEXT PRIMARY KEY, released_s REAL)") as db:
        db.execute("INSERT OR IGNORE INTO orders VALUES ('order_1', NULL)")
        for order in due_on_replica(db):
            released = db.execute("SELECT released_s FROM orders WHERE id = ?", (order,)).fetchone()[0]
            if looks_again and released is not None:
                continue
            provider.call("release", {"order": order}, key=order if looks_again else str(uuid.uuid4()))
            db.execute("UPDATE orders SET released_s = ? WHERE id = ?", (time.time(), order))


def test_the_next_run_finds_on_the_replica_what_is_released_already() -> None:
    report = explore(lambda once: release_funds(once, looks_again=False), soft_faults=0, restart_after=("0s", "1m"))
    violation = convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="order_1")
    assert str(violation.schedule) == "./."  # nothing failed: the task ran, and ran again a second later


def test_a_second_look_on_the_primary_and_one_key_an_order() -> None:
    exactly_once(explore(lambda once: release_funds(once, looks_again=True), soft_faults=0, restart_after=("0s", "1m")))
