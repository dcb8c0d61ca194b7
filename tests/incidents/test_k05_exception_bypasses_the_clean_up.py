"""K05: the application raises, an outer layer makes a 500 of it, the middleware sees no response to clear the key.

Every retry gets 409. An exception, not the death of a process. Report: snok/asgi-idempotency-header#16.
"""

from __future__ import annotations

import sqlite3

from pytest_once import Once, Verdict, explore
from tests.incidents.models import cell, convicted, database, exactly_once


class Conflict(Exception):
    """409: in progress."""


def application(once: Once) -> None:
    shop = once.provider("shop", contract="client_key")
    shop.call("order", {"order": "order_1"}, key="order_1")


def middleware(once: Once, db: sqlite3.Connection, *, refuses: bool) -> None:
    row = db.execute("SELECT state FROM keys").fetchone()
    if row is not None and row[0] == "done":
        return
    if row is not None and refuses:
        raise Conflict
    db.execute("INSERT OR IGNORE INTO keys VALUES ('order_1', 'in progress')")
    application(once)
    db.execute("UPDATE keys SET state = 'done'")


def server(once: Once, *, refuses: bool) -> None:
    with database(once, "redis", "keys(key TEXT PRIMARY KEY, state)") as db:
        try:
            middleware(once, db, refuses=refuses)
        except (ConnectionRefusedError, Conflict):
            once.claim("in_progress")  # 500 or 409: the client tries again


def test_an_error_leaves_the_key_in_progress() -> None:
    report = explore(lambda once: server(once, refuses=True), faults=("refused",))
    convicted(report, Verdict.STUCK, expected=1, actual=0, key="order_1")
    assert cell(report, "refused", "shop order") == "stuck"


def test_a_retry_takes_the_key_over_and_passes_it_on() -> None:
    """Clearing the key on an exception would leave the crash; a key at the effect cures both."""
    exactly_once(explore(lambda once: server(once, refuses=False), faults=("refused",)))
