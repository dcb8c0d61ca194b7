"""P04: the key is a hash of the whole payload, and the payload holds a time stamp and a fresh ciphertext.

The shopper resubmits after a time-out, the body differs, the hash differs. Report: Adyen/adyen-commercetools#1305.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from once_fakes import CLIENT_KEY, Contract
from pytest_once import Once, Verdict, explore
from tests.incidents.models import arrivals, by_fault_alone, convicted, exactly_once

STABLE = ("amount", "order")
ADYEN = replace(CLIENT_KEY, name="adyen", on_mismatch="replay")


def payment() -> dict[str, Any]:
    return {"order": "order_1", "amount": 500, "created_at": time.time(), "card": secrets.token_hex(16)}


def digest(fields: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def stable_digest(fields: dict[str, Any]) -> str:
    return digest({name: fields[name] for name in STABLE})


def storefront(once: Once, key_of: Callable[[dict[str, Any]], str], contract: Contract) -> None:
    provider = once.provider("adyen", contract=contract)
    with provider.router, httpx.Client(base_url=provider.base_url, verify=False) as client:
        for _ in range(2):
            body = payment()
            try:
                client.post("/payments", json=body, headers={"Idempotency-Key": key_of(body)}).raise_for_status()
                return
            except httpx.ReadTimeout:
                time.sleep(30)  # the shopper presses the button again
    raise TimeoutError


def faulty(once: Once) -> None:
    storefront(once, digest, ADYEN)


def test_a_hash_of_volatile_fields_is_a_key_of_the_attempt(tmp_path: Path) -> None:
    report = explore(faulty, faults=("lost-response",), key="order_1", redeliver=0)
    convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="order_1")
    timed_out = by_fault_alone(report)[0]
    first, second = arrivals(faulty, timed_out, tmp_path, key="order_1")
    assert first.key != second.key
    one, other = json.loads(first.payload), json.loads(second.payload)
    assert {name for name in one if one[name] != other[name]} == {"created_at", "card"}


def test_a_hash_of_the_stable_fields_is_a_key_of_the_intent() -> None:
    exactly_once(explore(lambda once: storefront(once, stable_digest, ADYEN), faults=("lost-response",), key="order_1"))


def test_a_stable_key_over_a_body_that_is_made_anew_is_refused_by_a_strict_provider() -> None:
    """The cure needs the stored body too where a provider compares payloads: safe, but it never learns the outcome."""
    report = explore(
        lambda once: storefront(once, stable_digest, CLIENT_KEY), faults=("lost-response",), key="order_1", redeliver=0
    )
    convicted(report, Verdict.STUCK, expected=None, actual=None)
