"""P12: the customer is made at the provider, its id is not saved, and the key then blocks every later sync.

The next sync sends the same key with slightly different parameters and is refused, for ever. The fix looks the customer
up by a business attribute. Report: getlago/lago-api#1985.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from pytest_once import Once, Verdict, explore
from tests.incidents.models import cell, convicted, database, exactly_once

CREATED = "SELECT external, count(*) FROM customers GROUP BY external"


class Refused(Exception):
    """Another payload under a key that is known."""


class Crm:
    """The remote side: one customer a key, compared with the payload it was made from, and a look-up."""

    def __init__(self, once: Once) -> None:
        self.once = once
        once.count("crm.db", CREATED)
        self.create = once.tool(self._create, counted=False)

    def _create(self, key: str, payload: dict[str, Any]) -> int:
        with database(self.once, "crm", "customers(id INTEGER PRIMARY KEY, external, key UNIQUE, payload)") as db:
            sent = json.dumps(payload, sort_keys=True)
            known = db.execute("SELECT id, payload FROM customers WHERE key = ?", (key,)).fetchone()
            if known is None:
                row = (payload["external"], key, sent)
                db.execute("INSERT INTO customers(external, key, payload) VALUES (?, ?, ?)", row)
                known = db.execute("SELECT id, payload FROM customers WHERE key = ?", (key,)).fetchone()
            if known[1] != sent:
                raise Refused(key)
            return int(known[0])

    def find(self, external: str) -> int | None:
        with database(self.once, "crm", "customers(id INTEGER PRIMARY KEY, external, key UNIQUE, payload)") as db:
            found = db.execute("SELECT id FROM customers WHERE external = ?", (external,)).fetchall()
            return int(found[0][0]) if len(found) == 1 else None


def sync(once: Once, *, looks_up: bool) -> None:
    crm = Crm(once)
    with database(once, "billing", "customers(external TEXT PRIMARY KEY, remote)") as db:
        db.execute("INSERT OR IGNORE INTO customers VALUES ('customer_1', NULL)")
        if db.execute("SELECT remote FROM customers").fetchone()[0] is not None:
            return
        remote = crm.find("customer_1") if looks_up else None
        if remote is None:
            remote = crm.create("create:customer_1", {"external": "customer_1", "synced_at": int(time.time())})
        db.execute("UPDATE customers SET remote = ?", (remote,))


@pytest.mark.slow
def test_the_key_refuses_every_sync_after_the_lost_one() -> None:
    report = explore(lambda once: sync(once, looks_up=False), faults=("lost-response",))
    violation = convicted(report, Verdict.STUCK, expected=None, actual=None)
    assert "every intended effect is there, but it cannot say so" in violation.detail
    assert violation.story[-1].ending.startswith("raised Refused")
    assert cell(report, "crash", "billing.db UPDATE customers") == "stuck"
    assert cell(report, "crash", "_create") == "once"


def test_a_look_up_by_the_business_attribute_finds_it() -> None:
    exactly_once(explore(lambda once: sync(once, looks_up=True), faults=("lost-response",)))
