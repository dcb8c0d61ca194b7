"""Retries through real clients, explored: the wrong one is convicted, its corrected twin is proven."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

from pytest_once import Once, Report, Verdict, explore, replay
from pytest_once.boundaries import announce
from pytest_once.boundaries.seam import Wiring
from pytest_once.faults import mark_of
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


class Toy:
    """A seam for a module of the standard library that no test here needs otherwise."""

    name = library = "colorsys"

    def originals(self) -> tuple[object, ...]:
        return ()

    def install(self, wiring: Wiring) -> None:
        module: Any = sys.modules[self.library]
        module.rgb_to_hsv = lambda *rgb: announce("toy", "converted")


def test_explore_and_replay_take_further_seams_as_an_argument() -> None:
    """The engine works without pytest, and so without its hooks."""

    def body(once: Once) -> None:
        import colorsys

        colorsys.rgb_to_hsv(0, 0, 0)
        careful(once).call("refund", ORDER, key="order_1")

    report = explore(body, soft_faults=0, boundaries=[Toy()])
    assert [boundary.target for boundary in report.boundaries] == ["converted", "pay refund"]
    assert not replay(body, f"x@{mark_of(report.boundaries[0])}/.", boundaries=[Toy()]).problem
