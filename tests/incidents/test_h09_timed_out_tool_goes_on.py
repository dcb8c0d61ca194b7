"""H09: a tool is given a deadline, but what runs cannot be cancelled; the caller tries again, and both effects land.

Report: NousResearch/hermes-agent#17428. A shielded task stands for the thread whose future refuses to be cancelled.
"""

from __future__ import annotations

import asyncio

from pytest_once import Once, Verdict, explore
from tests.incidents.models import convicted_undisturbed, exactly_once

DEADLINE_S = 30.0


async def call_with_deadline(running: list[asyncio.Task[None]], once: Once, takes_s: float, key: str | None) -> None:
    async def tool() -> None:
        await asyncio.sleep(takes_s)
        once.provider("tickets", contract="client_key").call("open", {"ticket": "ticket_1"}, key=key)

    running.append(asyncio.create_task(tool()))
    await asyncio.wait_for(asyncio.shield(running[-1]), DEADLINE_S)


async def agent(once: Once, key: str | None) -> None:
    """The first try is slow, the second is not; the process outlives both."""
    running: list[asyncio.Task[None]] = []
    try:
        await call_with_deadline(running, once, 60, key)
    except TimeoutError:
        await call_with_deadline(running, once, 5, key)
    await asyncio.gather(*running)


async def faulty(once: Once) -> None:
    await agent(once, None)


async def corrected(once: Once) -> None:
    await agent(once, "call_1")


def test_the_first_try_lands_after_the_second() -> None:
    report = explore(faulty, soft_faults=0, keys=["ticket_1"])
    convicted_undisturbed(report, Verdict.DUPLICATE, expected=1, actual=2, key="ticket_1")


def test_a_key_for_the_call_and_not_for_the_try() -> None:
    exactly_once(explore(corrected, soft_faults=0, keys=["ticket_1"]))
