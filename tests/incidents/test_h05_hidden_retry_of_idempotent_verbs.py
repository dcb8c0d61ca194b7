"""H05: the client library repeats a PUT once by itself, and the program's own retries come on top.

The verb is called idempotent, but this PUT appends. Report: aio-libs/aiohttp#10790.
"""

from __future__ import annotations

from pathlib import Path

import httpx

from pytest_once import Once, Verdict, explore
from tests.incidents.models import arrivals, asks_once, cell, convicted, escalated

ATTEMPTS = 3  # what the program's policy declares


def library_put(client: httpx.Client, body: dict[str, str], *, hidden_retry: bool) -> None:
    try:
        client.put("/log", json=body)
    except httpx.ReadError:
        if not hidden_retry:
            raise
        client.put("/log", json=body)


def append(client: httpx.Client, attempts: int, *, hidden_retry: bool) -> None:
    for attempt in range(1, attempts + 1):
        try:
            library_put(client, {"line": "paid order_1"}, hidden_retry=hidden_retry)
            return
        except httpx.ReadError:
            if attempt == attempts:
                raise


def program(once: Once, attempts: int, *, hidden_retry: bool) -> None:
    log = once.provider("log")
    with log.router, httpx.Client(base_url=log.base_url, verify=False) as client:
        asks_once(once, lambda: append(client, attempts, hidden_retry=hidden_retry))


def test_one_attempt_is_two() -> None:
    """Even a policy of a single attempt, which claims nothing it could not keep."""

    def body(once: Once) -> None:
        program(once, 1, hidden_retry=True)

    report = explore(body, blocked=("unknown",), faults=("reset-response",))
    violation = convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="order_1")
    assert violation.schedule.crashes == 0
    assert cell(report, "reset-response", "PUT /log") == "2x"


def test_attempts_multiply(tmp_path: Path) -> None:
    def body(once: Once) -> None:
        program(once, ATTEMPTS, hidden_retry=True)

    schedule = str(explore(body, blocked=("unknown",), faults=("reset-response",)).violations[0].schedule)
    sent = arrivals(body, schedule.replace("rr@", "RR@"), tmp_path, blocked=("unknown",))
    assert len(sent) == 2 * ATTEMPTS > ATTEMPTS


def test_a_single_attempt_without_hidden_retry_is_safe() -> None:
    escalated(
        explore(lambda once: program(once, 1, hidden_retry=False), blocked=("unknown",), faults=("reset-response",))
    )
