"""One request through each way to reach a fake, for tests of what all of them must do alike."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx

from once_fakes import Provider


class NoAnswer(Exception):
    """The client saw a time-out."""


Answer = tuple[int, dict[str, Any]]
"""HTTP status and body."""
Send = Callable[[Provider, dict[str, Any], str], Answer]
"""Asks a provider for a refund, under a key. Raises NoAnswer where the client sees a time-out."""


def by_call(pay: Provider, payload: dict[str, Any], key: str) -> Answer:
    try:
        reply = pay.call("POST /refunds", payload, key=key)
    except TimeoutError as error:
        raise NoAnswer from error
    return reply.status, reply.body


def _by_httpx(client: httpx.Client, url: str, payload: dict[str, Any], key: str) -> Answer:
    try:
        answer = client.post(f"{url}/refunds", json=payload, headers={"idempotency-key": key})
    except httpx.TimeoutException as error:
        raise NoAnswer from error
    return answer.status_code, answer.json()


def by_router(pay: Provider, payload: dict[str, Any], key: str) -> Answer:
    with pay.router, httpx.Client(verify=False) as client:
        return _by_httpx(client, pay.base_url, payload, key)


def by_httpx(pay: Provider, payload: dict[str, Any], key: str) -> Answer:
    with httpx.Client(verify=False, trust_env=False) as client:
        return _by_httpx(client, pay.url, payload, key)


def by_async_httpx(pay: Provider, payload: dict[str, Any], key: str) -> Answer:
    async def main() -> Answer:
        async with httpx.AsyncClient(verify=False, trust_env=False) as client:
            answer = await client.post(f"{pay.url}/refunds", json=payload, headers={"idempotency-key": key})
            return answer.status_code, answer.json()

    try:
        return asyncio.run(main())
    except httpx.TimeoutException as error:
        raise NoAnswer from error


def by_requests(pay: Provider, payload: dict[str, Any], key: str) -> Answer:
    import requests

    try:
        answer = requests.post(f"{pay.url}/refunds", json=payload, headers={"idempotency-key": key})
    except requests.Timeout as error:
        raise NoAnswer from error
    return answer.status_code, answer.json()


def by_http_client(pay: Provider, payload: dict[str, Any], key: str) -> Answer:
    import http.client
    from urllib.parse import urlsplit

    address = urlsplit(pay.url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port)
    headers = {"content-type": "application/json", "idempotency-key": key}
    try:
        connection.request("POST", f"{address.path}/refunds", json.dumps(payload), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    except TimeoutError as error:
        raise NoAnswer from error
    finally:
        connection.close()


def by_aiohttp(pay: Provider, payload: dict[str, Any], key: str) -> Answer:
    import aiohttp

    async def main() -> Answer:
        async with aiohttp.ClientSession(headers={"idempotency-key": key}) as session:
            answer = await session.post(f"{pay.url}/refunds", json=payload)
            return answer.status, await answer.json()

    try:
        return asyncio.run(main())
    except TimeoutError as error:
        raise NoAnswer from error


TRANSPORTS: tuple[Send, ...] = (
    by_call,
    by_router,
    by_httpx,
    by_async_httpx,
    by_requests,
    by_http_client,
    by_aiohttp,
)
