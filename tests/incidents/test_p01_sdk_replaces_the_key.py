"""P01: with network retries on, the SDK looks for the caller's key in the wrong place and makes its own.

The retries inside one call share that key, so they are safe; when the SDK gives up and the program calls again with
the same key of its own, the provider sees another one. Report: stripe/stripe-php#637.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from once_fakes import Provider
from pytest_once import Once, Verdict, explore
from tests.incidents.models import arrivals, by_fault_alone, convicted, exactly_once

CHARGE = {"order": "order_1", "amount": 500}


def sdk_charge(provider: Provider, options: Mapping[str, Any], *, reads_headers: bool) -> None:
    """A call of the SDK: one key, two tries."""
    given = options["headers"] if reads_headers else options
    key = given.get("Idempotency-Key") or str(uuid.uuid4())
    try:
        provider.call("charge", CHARGE, key=key)
    except TimeoutError:
        provider.call("charge", CHARGE, key=key)


def shop(once: Once, *, reads_headers: bool) -> None:
    provider = once.provider("stripe", contract="client_key")
    options = {"headers": {"Idempotency-Key": "order_1"}}
    try:
        sdk_charge(provider, options, reads_headers=reads_headers)
    except TimeoutError:
        sdk_charge(provider, options, reads_headers=reads_headers)


def faulty(once: Once) -> None:
    shop(once, reads_headers=False)


def test_the_key_of_the_sdk_is_new_in_each_call_of_the_program(tmp_path: Path) -> None:
    report = explore(faulty, faults=("lost-response",), redeliver=0)
    convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="order=order_1")
    every_reply_lost, *_ = by_fault_alone(report)
    assert every_reply_lost.startswith("LR@")
    keys = [arrival.key for arrival in arrivals(faulty, every_reply_lost, tmp_path)]
    assert len(keys) == 4 and len(set(keys)) == 2
    assert "order_1" not in keys


def test_the_callers_key_is_passed_on() -> None:
    exactly_once(explore(lambda once: shop(once, reads_headers=True), faults=("lost-response",)))
