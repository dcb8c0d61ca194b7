"""H03: the server acts and closes the connection without a reply; the client takes that for a stale connection.

A pooled connection that was closed before any byte was read may be tried again; one that was closed after the request
was sent may not. Report: jawah/urllib3.future#280.
"""

from __future__ import annotations

import httpx

from pytest_once import Once, Verdict, explore
from tests.incidents.models import asks_once, cell, convicted, escalated


def post(client: httpx.Client, path: str, *, tells_apart: bool) -> httpx.Response:
    """A pool that sends again on another connection when the one it took turns out to be closed."""
    try:
        return client.post(path, json={"order": "order_1"})
    except httpx.ConnectError:
        return client.post(path, json={"order": "order_1"})  # nothing was sent
    except httpx.ReadError:
        if tells_apart:
            raise
        return client.post(path, json={"order": "order_1"})


def program(once: Once, *, tells_apart: bool) -> None:
    shop = once.provider("shop")
    with shop.router, httpx.Client(base_url=shop.base_url, verify=False) as client:
        asks_once(once, lambda: post(client, "/orders", tells_apart=tells_apart))


FAULTS = ("reset-response", "refused")


def test_a_connection_closed_before_the_reply_sends_the_order_again() -> None:
    report = explore(lambda once: program(once, tells_apart=False), blocked=("unknown",), faults=FAULTS)
    violation = convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="order_1")
    assert str(violation.schedule).startswith("rr@")
    assert cell(report, "refused", "POST /orders") == "once"


def test_only_what_was_never_sent_is_sent_again() -> None:
    report = explore(lambda once: program(once, tells_apart=True), blocked=("unknown",), faults=FAULTS)
    escalated(report)
    assert cell(report, "refused", "POST /orders") == "once"
