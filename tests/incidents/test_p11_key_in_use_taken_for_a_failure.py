"""P11: the first request is still being handled, the resend gets 409 "key in use", and the program hears "failed".

The outcome is unknown, not a failure: the first request is about to be committed. Report:
beam-community/stripity-stripe#564.
"""

from __future__ import annotations

import time

import pytest

from pytest_once import Once, Verdict, explore
from tests.incidents.models import cell, convicted, database, exactly_once

HANDLING_S = 60.0
CHARGE = {"order": "order_1"}


class KeyInUse(Exception):
    """409: the first request with this key is still being handled."""


class Gateway:
    """In front of the provider: a key that came less than a minute ago is in use, and its answer not ready."""

    def __init__(self, once: Once) -> None:
        self.once = once
        self.charge = once.tool(self._charge, name="gateway", counted=False)

    def _charge(self, key: str) -> None:
        with database(self.once, "gateway", "keys(key TEXT PRIMARY KEY, since_s REAL)") as db:
            row = db.execute("SELECT since_s FROM keys WHERE key = ?", (key,)).fetchone()
            if row is not None and time.time() < row[0] + HANDLING_S:
                raise KeyInUse
            self.once.provider("stripe", contract="client_key").call("charge", CHARGE, key=key)
            db.execute("INSERT OR IGNORE INTO keys VALUES (?, ?)", (key, time.time()))


def sdk_charge(gateway: Gateway, key: str) -> None:
    """Two tries, ten seconds apart."""
    try:
        gateway.charge(key)
    except TimeoutError:
        time.sleep(10)
        gateway.charge(key)


def shop(once: Once, *, knows_409: bool) -> None:
    try:
        sdk_charge(Gateway(once), "order_1")
    except KeyInUse:
        once.claim("in_progress" if knows_409 else "failed")


DELAYS = ("0s", "1h")


@pytest.mark.slow
def test_a_key_in_use_is_reported_as_a_failure() -> None:
    report = explore(
        lambda once: shop(once, knows_409=False), faults=("lost-response",), redeliver=0, restart_after=DELAYS
    )
    violation = convicted(report, Verdict.FALSE_FAILURE, expected=0, actual=1, key="order_1")
    assert violation.schedule.crashes + violation.schedule.soft_faults == 1
    assert cell(report, "lost-response", "gateway") == "lied"


@pytest.mark.slow
def test_a_key_in_use_is_asked_again_later() -> None:
    exactly_once(
        explore(lambda once: shop(once, knows_409=True), faults=("lost-response",), redeliver=0, restart_after=DELAYS)
    )
