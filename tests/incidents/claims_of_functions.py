"""A function behind a record of its claim (K08 and K09): in progress, then completed; with or without an expiry."""

from __future__ import annotations

import time

from pytest_once import Once
from tests.incidents.models import database


class AlreadyInProgress(Exception):
    """Another invocation has the claim."""


def withdraw(once: Once, *, expires_s: float | None, after_expiry: str = "takes over") -> None:
    """One delivery. after_expiry: "takes over", "takes over with a key", or "asks a person"."""
    bank = once.provider("bank", contract="client_key")
    with database(once, "records", "records(key TEXT PRIMARY KEY, state, until_s REAL)") as db:
        row = db.execute("SELECT state, until_s FROM records").fetchone()
        if row is not None and row[0] == "completed":
            return
        if row is not None and (expires_s is None or time.time() < row[1]):
            raise AlreadyInProgress
        if row is not None and after_expiry == "asks a person":
            once.claim("unknown")
            return
        until_s = time.time() + (expires_s or 0)
        db.execute("INSERT OR REPLACE INTO records VALUES ('withdrawal_1', 'in progress', ?)", (until_s,))
        key = "withdrawal_1" if after_expiry == "takes over with a key" else None
        bank.call("withdraw", {"withdrawal": "withdrawal_1"}, key=key)
        db.execute("UPDATE records SET state = 'completed'")
