"""P02: with retries set to zero the SDK makes no key, yet a stale socket makes it send the POST once more.

Report: stripe/stripe-node#2816.
"""

from __future__ import annotations

import uuid

from once_fakes import Provider
from pytest_once import Once, Verdict, explore
from tests.incidents.models import asks_once, cell, convicted, escalated

CHARGE = {"order": "order_1", "amount": 500}


def sdk_charge(provider: Provider, *, retries: int, always_a_key: bool) -> None:
    key = str(uuid.uuid4()) if retries or always_a_key else None
    for attempt in range(retries + 1):
        try:
            provider.call("charge", CHARGE, key=key)
            return
        except ConnectionResetError:  # the runtime was frozen meanwhile, so the socket must have been stale
            provider.call("charge", CHARGE, key=key)
            return
        except TimeoutError:
            if attempt == retries:
                raise


def shop(once: Once, *, always_a_key: bool) -> None:
    provider = once.provider("stripe", contract="client_key")
    asks_once(once, lambda: sdk_charge(provider, retries=0, always_a_key=always_a_key))


def test_no_retries_are_one_retry_without_a_key() -> None:
    report = explore(lambda once: shop(once, always_a_key=False), blocked=("unknown",))
    violation = convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="order_1")
    assert violation.schedule.crashes == 0
    assert cell(report, "reset-response", "stripe charge") == "2x"
    assert cell(report, "lost-response", "stripe charge") == "esc."  # here zero means zero


def test_a_key_in_every_request_makes_the_hidden_resend_harmless() -> None:
    report = explore(
        lambda once: shop(once, always_a_key=True), blocked=("unknown",), faults=("reset-response", "lost-response")
    )
    escalated(report)
    assert cell(report, "reset-response", "stripe charge") == "once"
