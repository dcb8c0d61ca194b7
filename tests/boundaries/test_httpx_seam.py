"""What is httpx's own: transports, mocks, trio, certificates. The faults are in test_http_clients.py."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from pytest_once.boundaries import register_endpoint
from pytest_once.boundaries.httpx import HTTPX, HTTPX2
from tests.boundaries.fake_server import Seen, lived, serving


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving() as address:
        yield address


def run(body: Callable[[], Any], server: str = "", fault: str | None = None) -> Seen:
    return lived(body, [HTTPX, HTTPX2], server, fault)


def sync_call(method: str, url: str, **named: Any) -> httpx.Response:
    with httpx.Client(trust_env=False) as client:
        return client.request(method, url, **named)


def async_call(method: str, url: str, **named: Any) -> httpx.Response:
    async def main() -> httpx.Response:
        async with httpx.AsyncClient(trust_env=False) as client:
            return await client.request(method, url, **named)

    return asyncio.run(main())


Call = Callable[..., httpx.Response]


@pytest.mark.parametrize("fault", [None, "lost-response"])
def test_under_trio_coroutines_call_one_after_the_other(fault: str | None, server: str) -> None:
    """Another event loop, another kind of lock, the same order."""
    trio: Any = pytest.importorskip("trio")

    def body() -> Any:
        seen: dict[int, str] = {}

        async def call(client: httpx.AsyncClient, number: int) -> None:
            try:
                seen[number] = (await client.post(f"{server}/api/{number}", content=str(number))).json()["body"]
            except httpx.HTTPError as error:
                seen[number] = type(error).__name__

        async def main() -> None:
            async with httpx.AsyncClient(trust_env=False) as client, trio.open_nursery() as nursery:
                for number in range(4):
                    nursery.start_soon(call, client, number)

        trio.run(main)
        return sorted(seen.values())

    seen = run(body, server, fault)

    announced = [target.rpartition("/")[2] for target in seen.targets[:-1]]
    assert announced == [path.rpartition("/")[2] for _, path, _, _ in seen.arrivals]
    assert sorted(announced) == ["0", "1", "2", "3"]
    assert ("ReadTimeout" in seen.returned) == (fault is not None)


@pytest.mark.parametrize("call", [sync_call, async_call])
def test_a_body_that_can_be_read_once_is_still_delivered_twice(call: Call, server: str) -> None:
    """Generators and uploads are consumed by the first sending."""

    def body() -> Any:
        def chunks() -> Iterator[bytes]:
            yield b"pa"
            yield b"y"

        async def async_chunks() -> Any:
            yield b"pa"
            yield b"y"

        content = chunks() if call is sync_call else async_chunks()
        return call("POST", f"{server}/api/refunds", content=content, headers={"content-length": "3"}).json()["body"]

    seen = run(body, server, "duplicate")

    assert seen.returned == "pay"
    assert [body for _, _, _, body in seen.arrivals] == ["pay", "pay"]


def test_a_buffered_response_can_still_be_streamed(server: str) -> None:
    """Clients that stream must not notice."""

    def body() -> Any:
        with (
            httpx.Client(trust_env=False) as client,
            client.stream("POST", f"{server}/api/refunds", content=b"pay") as response,
        ):
            raw = b"".join(response.iter_raw())
        return [json.loads(raw)["body"], response.http_version, response.elapsed.total_seconds() >= 0]

    assert run(body, server).returned == ["pay", "HTTP/1.1", True]


@pytest.mark.parametrize("call", ["sync", "async"])
def test_a_mock_transport_of_the_users_own_is_silent_unless_a_fake_is_behind_it(call: str) -> None:
    """In-process stand-ins are part of the process, fakes are not."""

    def handler(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"path": request.url.path}, headers={"once-arrival": "7"})

    def body() -> Any:
        register_endpoint("https://pay.example/v1", "payments")
        transport = httpx.MockTransport(handler)
        urls = ["https://own.example/x", "https://pay.example/v1/refunds"]
        if call == "sync":
            with httpx.Client(transport=transport) as client:
                return [client.post(url).json()["path"] for url in urls]

        async def main() -> Any:
            async with httpx.AsyncClient(transport=transport) as client:
                return [(await client.post(url)).json()["path"] for url in urls]

        return asyncio.run(main())

    seen = run(body)

    assert seen.targets == ["payments POST /refunds", "after"]
    assert seen.returned == ["/x", "/v1/refunds"]
    assert seen.told == [["payments", "POST /refunds", 7, "status 200"]]
    assert seen.outside == []


def test_httpx2_under_the_name_of_httpx_is_announced_once(server: str) -> None:
    """httpx2.alias_httpx() makes two names of one module."""
    httpx2: Any = pytest.importorskip("httpx2")

    def body() -> Any:
        return httpx2.post(f"{server}/api/x", trust_env=False).status_code

    real = sys.modules["httpx"]
    sys.modules["httpx"] = httpx2
    try:
        seen = run(body, server)
    finally:
        sys.modules["httpx"] = real

    assert seen.targets == ["payments POST /x", "after"]
    assert len(seen.arrivals) == 1


def test_a_password_in_the_address_does_not_hide_the_fake(server: str) -> None:
    """Not part of where a request goes; httpx keeps it in the URL where others take it out."""

    def body() -> Any:
        return sync_call("POST", f"{server}/api/x".replace("http://", "http://user:secret@")).status_code

    seen = run(body, server)

    assert (seen.targets, seen.outside) == (["payments POST /x", "after"], [])


def test_certificates_are_read_once_for_all_clients() -> None:
    """Reading them takes 20 ms, in every incarnation."""

    def body() -> Any:
        from httpx._transports import default

        context: Any = default
        made = [context.create_ssl_context(), context.create_ssl_context(verify=True)]
        return [made[0] is made[1], context.create_ssl_context(verify=False) is made[0]]

    assert run(body).returned == [True, False]
