"""Retries through real clients, explored: the wrong one is convicted, its corrected twin is proven."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pytest_once import Once, Report, Verdict, explore
from tests.engine.bodies import careful, proven, told

aiohttp: Any = pytest.importorskip("aiohttp")
httpx2: Any = pytest.importorskip("httpx2")
requests: Any = pytest.importorskip("requests")
urllib3: Any = pytest.importorskip("urllib3")

ORDER = {"order": "order_1", "amount": 500}
Send = Callable[[str, dict[str, str]], None]


def by_requests(url: str, headers: dict[str, str]) -> None:
    try:
        requests.post(url, json=ORDER, headers=headers)
    except requests.Timeout:
        requests.post(url, json=ORDER, headers=headers)


def by_httpx2(url: str, headers: dict[str, str]) -> None:
    with httpx2.Client(trust_env=False, headers=headers) as client:
        try:
            client.post(url, json=ORDER)
        except httpx2.TimeoutException:
            client.post(url, json=ORDER)


def by_aiohttp(url: str, headers: dict[str, str]) -> None:
    async def main() -> None:
        async with aiohttp.ClientSession(headers=headers) as session:
            try:
                await session.post(url, json=ORDER)
            except TimeoutError:
                await session.post(url, json=ORDER)

    asyncio.run(main())


def by_urllib3_itself(url: str, headers: dict[str, str]) -> None:
    """Nobody has written a retry here."""
    with urllib3.PoolManager() as pool:
        pool.request("PUT", url, json=ORDER, headers=headers)


def retried(send: Send, headers: dict[str, str]) -> Report:
    """A caller that calls once, and code that tries again when it hears nothing."""

    def body(once: Once) -> None:
        once.caller("order_1", send, f"{careful(once).url}/refunds", headers)

    return explore(body, faults=["lost-response"], limits={"deadline_s": 60})


@pytest.mark.parametrize("send", [by_requests, by_httpx2, by_aiohttp, by_urllib3_itself])
def test_a_second_try_is_a_duplicate_without_a_key_and_one_effect_with_it(send: Send) -> None:
    """The most common mistake, through each family of clients, on a real socket."""
    wrong = retried(send, {})
    assert wrong.verdict is Verdict.DUPLICATE, told(wrong)
    assert wrong.violations[0].confirmed
    found = [each for violation in wrong.violations for each in (violation.schedule, *violation.variants)]
    assert any("lr@" in str(schedule).lower() for schedule in found)

    right = retried(send, {"Idempotency-Key": "order_1"})
    assert proven(right), told(right)
