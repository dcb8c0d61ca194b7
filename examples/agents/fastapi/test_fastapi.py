"""FastAPI: the client asks again with the same key when it had no answer; what the middleware then knows decides."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from examples.agents.fastapi.service import claiming_first, plain, storing_the_answer
from examples.agents.refunds import (
    AFTER_THE_LEASE,
    AT_ONCE,
    DECIDES_NOTHING,
    WITHOUT_KEYS,
    protected,
    reconcile,
    unprotected,
)
from pytest_once import Once
from pytest_once.reference.databases import SQLite


def ask(app: FastAPI) -> None:
    """A client of the service, which runs in this process; asks again for ever, since each restart does."""

    async def post() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
            headers = {"Idempotency-Key": "order_123"}
            answer = await client.post("/refunds", json={"order": "order_123", "amount": 500}, headers=headers)
            answer.raise_for_status()

    asyncio.run(post())


@pytest.mark.once_effect(soft_faults=0)
@pytest.mark.convicted("DUPLICATE", because="the key is stored after the refund, and the client asks again")
def test_a_middleware_that_stores_the_answer_refunds_twice(once: Once, tmp_path: Path) -> None:
    """S3.9: the key is known only once there is an answer."""
    payments = once.provider("payments")
    ask(storing_the_answer(unprotected(payments.url), tmp_path / "answers.db"))


@pytest.mark.once_effect(soft_faults=0)
@pytest.mark.convicted("STUCK", because="the claim of a process that died is never given up: 409 for ever")
def test_a_middleware_that_claims_first_is_stuck(once: Once, tmp_path: Path) -> None:
    """S4.5: a claim without a lease."""
    payments = once.provider("payments")
    ask(claiming_first(unprotected(payments.url), tmp_path / "answers.db"))


@pytest.mark.once_effect(faults=("lost-response",), restart_after=AFTER_THE_LEASE, ignore=DECIDES_NOTHING)
def test_an_endpoint_behind_the_gate_refunds_once(once: Once, gates: SQLite) -> None:
    """S4.8: the key reaches a provider that knows it again, so a lost answer is asked for once more."""
    payments = once.provider("payments", contract="client_key")
    ask(plain(protected(payments.url, gates)))


@pytest.mark.once_effect(faults=("refused", "lost-response"), restart_after=AFTER_THE_LEASE, ignore=DECIDES_NOTHING)
def test_without_keys_the_gate_waits_for_the_look_up(once: Once, gates: SQLite) -> None:
    """S3.9, S4.6: no answer is UNKNOWN and refuses; the look-up confirms it later, without a second refund."""
    payments = once.provider("payments", contract=WITHOUT_KEYS)
    reconcile(payments.url, gates)
    ask(plain(protected(payments.url, gates, AT_ONCE)))
