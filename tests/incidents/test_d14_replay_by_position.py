"""D14: a run pauses, another version is deployed, and the replay looks results up by position only.

A step of the new code receives the result of another step and is skipped, without an error.
Report: durable-workflow/workflow#381.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable

from once_fakes import Provider
from pytest_once import Once, Verdict, explore
from tests.incidents.models import convicted, database, exactly_once

DEPLOYED_AFTER_S = 3600.0
OLD = ("audit", "charge")
NEW = ("charge", "notify")


def run(once: Once, position_of: Callable[[int, str], str]) -> None:
    shop = once.provider("shop", contract="client_key")
    with database(once, "engine", "log(place TEXT PRIMARY KEY, result); runs(begun_s REAL, done)") as db:
        if not db.execute("SELECT 1 FROM runs").fetchone():
            db.execute("INSERT INTO runs VALUES (?, 0)", (time.time(),))
        begun_s, done = db.execute("SELECT begun_s, done FROM runs").fetchone()
        if done:
            return
        code = NEW if time.time() > begun_s + DEPLOYED_AFTER_S else OLD
        for number, name in enumerate(code):
            _step(db, shop, position_of(number, name), name)
        db.execute("UPDATE runs SET done = 1")


def _step(db: sqlite3.Connection, shop: Provider, place: str, name: str) -> None:
    if db.execute("SELECT result FROM log WHERE place = ?", (place,)).fetchone():
        return  # its result is known
    if name == "charge":
        shop.call("charge", {"order": "order_1"}, key="order_1")
    db.execute("INSERT INTO log VALUES (?, ?)", (place, name))


DELAYS = ("0s", "2h")


def test_the_charge_receives_the_result_of_the_audit() -> None:
    report = explore(lambda once: run(once, lambda number, name: str(number)), soft_faults=0, restart_after=DELAYS)
    violation = convicted(report, Verdict.OMISSION, expected=1, actual=0, key="order_1")
    assert violation.schedule.crashes == 1
    assert "w7200" in str(violation.schedule)


def test_results_under_the_name_of_their_step() -> None:
    exactly_once(explore(lambda once: run(once, lambda number, name: name), soft_faults=0, restart_after=DELAYS))
