from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from pytest_once.boundaries import announce, register_endpoint
from pytest_once.boundaries import httpx as seam
from pytest_once.faults import HTTP_FAULTS, KINDS
from pytest_once.site import Site
from tests.boundaries.recording import Recording, recorded

SERVER = """
import socket, sys
count = 0
listener = socket.socket(fileno=int(sys.argv[1]))
while True:
    connection, _ = listener.accept()
    data = b""
    while b"\\r\\n\\r\\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\\r\\n\\r\\n")
    length = [int(line[15:]) for line in head.lower().split(b"\\r\\n") if line.startswith(b"content-length:")]
    while length and len(body) < length[0]:
        body += connection.recv(65536)
    if head.startswith(b"GET /count"):
        answer = str(count).encode()
    else:
        count += 1
        answer = b'{"id": %d, "body": "%s"}' % (count, body)
    connection.sendall(
        b"HTTP/1.1 200 OK\\r\\nConnection: close\\r\\nOnce-Arrival: a%d\\r\\nContent-Length: %d\\r\\n\\r\\n%s"
        % (count, len(answer), answer)
    )
    connection.close()
"""


@pytest.fixture
def server() -> Iterator[str]:
    """A real provider's address; it counts what arrives."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = subprocess.Popen([sys.executable, "-c", SERVER, str(listener.fileno())], pass_fds=[listener.fileno()])
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        process.send_signal(signal.SIGKILL)
        process.wait()


def arrivals(base: str) -> int:
    return int(httpx.get(f"{base}/count", trust_env=False).text)


def sync_call(method: str, url: str, **named: Any) -> httpx.Response:
    with httpx.Client(trust_env=False) as client:
        return client.request(method, url, **named)


def async_call(method: str, url: str, **named: Any) -> httpx.Response:
    async def main() -> httpx.Response:
        async with httpx.AsyncClient(trust_env=False) as client:
            return await client.request(method, url, **named)

    return asyncio.run(main())


def trio_call(method: str, url: str, **named: Any) -> httpx.Response:
    import trio

    async def main() -> httpx.Response:
        async with httpx.AsyncClient(trust_env=False) as client:
            return await client.request(method, url, **named)

    response: httpx.Response = trio.run(main)
    return response


CALLS = [
    sync_call,
    async_call,
    pytest.param(
        trio_call,
        marks=pytest.mark.skipif(importlib.util.find_spec("trio") is None, reason="trio is not installed"),
    ),
]
Call = Callable[..., httpx.Response]


def run(body: Callable[[], Any], base: str | None, fault: str | None = None) -> Recording:
    """result: [what the body returned or the name of what it raised, what was told, the outside calls]."""
    told: list[Any] = []
    outside: list[Any] = []

    def tell(provider: str, operation: str, arrival: str | None, what: str) -> None:
        told.append([provider, operation, arrival, what])

    def on_outside(method: str, url: str, site: Site) -> None:
        outside.append([method, url, site.text])

    def install() -> None:
        if base is not None:
            register_endpoint(base + "/api", "payments")
        seam.install(on_outside, tell)

    def guarded() -> Any:
        try:
            result = body()
        except httpx.TransportError as error:
            result = [type(error).__name__, error.request.method]
        announce("point", "after")
        return [result, told, outside]

    return recorded(
        guarded,
        install=install,
        look=lambda: None if base is None else arrivals(base),
        fault=fault,
    )


OUTCOMES = {
    None: ([200, {"id": 1, "body": "pay"}], "a1", "status 200"),
    "refused": (["ConnectError", "POST"], None, "ConnectError"),
    "lost-request": (["ReadTimeout", "POST"], None, "ReadTimeout"),
    "lost-response": (["ReadTimeout", "POST"], "a1", "ReadTimeout"),
    "reset-response": (["ReadError", "POST"], "a1", "ReadError"),
    "error-before": ([503, "service_unavailable"], None, "status 503"),
    "error-after": ([500, "api_error"], "a1", "status 500"),
    "duplicate": ([200, {"id": 1, "body": "pay"}], "a1", "status 200"),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("fault", [None, *HTTP_FAULTS])
def test_each_fault_makes_the_arrivals_and_the_outcome_it_stands_for(
    fault: str | None, call: Call, server: str
) -> None:
    """What arrived and what the caller saw is the whole difference between the faults."""

    def body() -> Any:
        response = call("POST", f"{server}/api/refunds?x=1", content=b"pay")
        answer = response.json()
        return [response.status_code, answer["error"]["type"] if response.is_error else answer]

    recording = run(body, server, fault)

    outcome, arrival, what = OUTCOMES[fault]
    arrived = 1 if fault is None else KINDS[fault].arrivals
    assert recording.error is None
    assert recording.seen() == [("payments POST /refunds", 0), ("after", arrived)]
    assert recording.passed[0].provider == "payments"
    assert recording.passed[0].faults == list(HTTP_FAULTS)
    assert 'call("POST"' in recording.passed[0].line or "client.request" in recording.passed[0].line
    assert recording.result == [outcome, [["payments", "POST /refunds", arrival, what]], []]


def test_reads_are_not_offered_faults_that_only_matter_for_writes(server: str) -> None:
    """A read delivered twice changes nothing."""
    recording = run(lambda: sync_call("GET", f"{server}/api/refunds").status_code, server)

    assert recording.passed[0].faults == [
        "refused",
        "lost-request",
        "lost-response",
        "reset-response",
        "error-before",
    ]


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
        headers = {"content-length": "3"}
        return call("POST", f"{server}/api/refunds", content=content, headers=headers).json()

    recording = run(body, server, "duplicate")

    assert recording.result[0] == {"id": 1, "body": "pay"}
    assert recording.passed[-1].seen == 2


def test_a_buffered_response_can_still_be_streamed(server: str) -> None:
    """Clients that stream must not notice."""

    def body() -> Any:
        with (
            httpx.Client(trust_env=False) as client,
            client.stream("POST", f"{server}/api/refunds", content=b"pay") as response,
        ):
            raw = b"".join(response.iter_raw())
        return [json.loads(raw), response.http_version, response.elapsed.total_seconds() >= 0]

    assert run(body, server).result[0] == [{"id": 1, "body": "pay"}, "HTTP/1.1", True]


def test_concurrent_calls_reach_the_provider_one_after_the_other(server: str) -> None:
    """Otherwise the same schedule would give different ledgers."""

    def body() -> Any:
        async def main() -> Any:
            async with httpx.AsyncClient(trust_env=False) as client:
                calls = [client.post(f"{server}/api/{n}", content=str(n)) for n in range(5)]
                return [response.json() for response in await asyncio.gather(*calls)]

        return asyncio.run(main())

    recording = run(body, server)

    assert recording.result[0] == [{"id": n + 1, "body": str(n)} for n in range(5)]
    assert [seen for _, seen in recording.seen()] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("call", [sync_call, async_call])
def test_a_write_to_an_unknown_host_is_handed_over_before_it_is_sent(call: Call, server: str) -> None:
    """The run stops there: an effect nobody can count or undo."""

    def body() -> Any:
        call("GET", f"{server}/elsewhere?secret=1")
        return call("POST", f"{server}/elsewhere").status_code

    recording = run(body, None)

    assert recording.targets() == ["GET 127.0.0.1/elsewhere", "after"]
    (outside,) = recording.result[2]
    assert outside[:2] == ["POST", f"{server}/elsewhere"]


@pytest.mark.parametrize("call", ["sync", "async"])
def test_a_mock_transport_of_the_users_own_is_silent_unless_a_fake_is_behind_it(call: str) -> None:
    """In-process stand-ins are part of the process, fakes are not."""

    def handler(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"path": request.url.path}, headers={"once-arrival": "a7"})

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

    recording = run(body, None)

    assert recording.targets() == ["payments POST /refunds", "after"]
    assert recording.result == [
        ["/x", "/v1/refunds"],
        [["payments", "POST /refunds", "a7", "status 200"]],
        [],
    ]


def test_a_real_failure_is_told_too() -> None:
    """Nothing listens there: the caller learns what it would learn in production."""

    def body() -> Any:
        register_endpoint("http://127.0.0.1:1/api", "payments")
        return sync_call("POST", "http://127.0.0.1:1/api/refunds").status_code

    assert run(body, None).result[:2] == [
        ["ConnectError", "POST"],
        [["payments", "POST /refunds", None, "ConnectError"]],
    ]


def test_certificates_are_read_once_for_all_clients() -> None:
    """Reading them takes 20 ms, in every incarnation."""

    def body() -> Any:
        from httpx._transports import default

        context: Any = default
        made = [context.create_ssl_context(), context.create_ssl_context(verify=True)]
        return [made[0] is made[1], context.create_ssl_context(verify=False) is made[0]]

    seam.prepare()

    assert run(body, None).result[0] == [True, False]


def test_httpx_is_hooked_when_the_body_is_the_first_to_import_it(server: str) -> None:
    """Plugins must not import it for everybody, and bodies import lazily."""
    code = f"""
import sys
from pytest_once.boundaries import Announcer, GO, connect, register_endpoint
from pytest_once.boundaries import httpx as seam
assert "httpx" not in sys.modules
connect(Announcer(lambda boundary: print(boundary.target) or GO))
register_endpoint("{server}", "payments")
seam.install(lambda *outside: None)
import httpx
print(httpx.post("{server}/x", trust_env=False).status_code)
"""
    output = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )

    assert output.stdout.split("\n")[:2] == ["payments POST /x", "200"], output.stderr
