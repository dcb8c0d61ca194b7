"""The same attempts through every HTTP client: what is announced, what arrives, and what the caller sees."""

from __future__ import annotations

import asyncio
import http.client
import threading
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from pytest_once.boundaries.aiohttp import AIOHTTP
from pytest_once.boundaries.http import READ_FAULTS, WRITE_FAULTS
from pytest_once.boundaries.http_client import HTTP_CLIENT, URLLIB3
from pytest_once.boundaries.httpx import HTTPX, HTTPX2
from pytest_once.boundaries.seam import Seam
from tests.boundaries.fake_server import Seen, lived, serving

httpx: Any = pytest.importorskip("httpx")
httpx2: Any = pytest.importorskip("httpx2")
boto3: Any = pytest.importorskip("boto3")
boto_config: Any = pytest.importorskip("botocore.config")
aiohttp: Any = pytest.importorskip("aiohttp")
requests: Any = pytest.importorskip("requests")
urllib3: Any = pytest.importorskip("urllib3")

SEAMS: list[Seam] = [HTTPX, HTTPX2, HTTP_CLIENT, URLLIB3, AIOHTTP]
BODY = b"pay"
Call = Callable[..., Any]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving() as address:
        yield address


def run(body: Callable[[], Any], server: str, fault: str | None = None) -> Seen:
    return lived(body, SEAMS, server, fault)


# One call, through each client: [status, body].


def by_httpx(method: str, url: str, body: bytes | None = BODY) -> Any:
    with httpx.Client(trust_env=False) as client:
        response = client.request(method, url, content=body)
        return [response.status_code, response.text]


def by_httpx_async(method: str, url: str, body: bytes | None = BODY, library: Any = httpx) -> Any:
    async def main() -> Any:
        async with library.AsyncClient(trust_env=False) as client:
            response = await client.request(method, url, content=body)
            return [response.status_code, response.text]

    return asyncio.run(main())


def by_httpx2(method: str, url: str, body: bytes | None = BODY) -> Any:
    with httpx2.Client(trust_env=False) as client:
        response = client.request(method, url, content=body)
        return [response.status_code, response.text]


def by_httpx2_async(method: str, url: str, body: bytes | None = BODY) -> Any:
    return by_httpx_async(method, url, body, httpx2)


def by_http_client(method: str, url: str, body: bytes | None = BODY) -> Any:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc)
    connection.request(method, url.removeprefix(f"http://{parts.netloc}"), body)
    response = connection.getresponse()
    return [response.status, response.read().decode()]


def by_urllib(method: str, url: str, body: bytes | None = BODY) -> Any:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, method=method)) as response:
            return [response.status, response.read().decode()]
    except urllib.request.HTTPError as error:
        with error:
            return [error.code, error.read().decode()]


def by_urllib3(method: str, url: str, body: bytes | None = BODY) -> Any:
    with urllib3.PoolManager() as pool:
        response = pool.request(method, url, body=body, retries=False)
        return [response.status, response.data.decode()]


def by_requests(method: str, url: str, body: bytes | None = BODY) -> Any:
    with requests.Session() as session:
        response = session.request(method, url, data=body)
        return [response.status_code, response.text]


def by_aiohttp(method: str, url: str, body: bytes | None = BODY) -> Any:
    async def main() -> Any:
        async with aiohttp.ClientSession() as session, session.request(method, url, data=body) as response:
            return [response.status, await response.text()]

    return asyncio.run(main())


ERRORS: dict[Call, tuple[list[str], list[str], list[str]]] = {
    by_httpx: (["ConnectError"], ["ReadTimeout"], ["ReadError"]),
    by_httpx_async: (["ConnectError"], ["ReadTimeout"], ["ReadError"]),
    by_httpx2: (["ConnectError"], ["ReadTimeout"], ["ReadError"]),
    by_httpx2_async: (["ConnectError"], ["ReadTimeout"], ["ReadError"]),
    by_http_client: (["ConnectionRefusedError"], ["TimeoutError"], ["ConnectionResetError"]),
    by_urllib: (["URLError", "ConnectionRefusedError"], ["TimeoutError"], ["ConnectionResetError"]),
    by_urllib3: (
        ["NewConnectionError", "ConnectionRefusedError"],
        ["ReadTimeoutError", "TimeoutError"],
        ["ProtocolError", "ConnectionResetError"],
    ),
    by_requests: (
        ["ConnectionError", "MaxRetryError"],
        ["ReadTimeout", "ReadTimeoutError"],
        ["ConnectionError", "ProtocolError"],
    ),
    by_aiohttp: (["ClientConnectorError", "ConnectionRefusedError"], ["TimeoutError"], ["ClientOSError"]),
}
"""What each caller sees when it is refused, when nothing comes, and when the connection is reset."""


@pytest.mark.parametrize("call", ERRORS)
@pytest.mark.parametrize("fault", [None, *WRITE_FAULTS])
def test_each_fault_does_what_it_says(call: Call, fault: str | None, server: str) -> None:
    """Arrivals, the caller's own exception or answer, and what is told, through every client."""
    seen = run(lambda: call("POST", f"{server}/api/refunds?x=1"), server, fault)

    refused, timed_out, reset = ERRORS[call]
    number = {None: 1, "lost-response": 1, "reset-response": 1, "error-after": 1, "duplicate": 2, "late-copy": 1}
    assert [[method, path, body] for method, path, _, body in seen.arrivals] == [
        ["POST", "/api/refunds?x=1", "pay"]
    ] * number.get(fault, 0)
    errors = {
        "refused": refused,
        "lost-request": timed_out,
        "lost-response": timed_out,
        "reset-response": reset,
        "late": timed_out,
        "late-twice": timed_out,
    }
    if fault in errors:
        assert seen.returned == errors[fault]
    elif fault in ("error-before", "error-after"):
        assert seen.returned[0] == (503 if fault == "error-before" else 500)
        assert '"error"' in seen.returned[1]
    else:
        assert seen.returned[0] == 200
        assert '"body": "pay"' in seen.returned[1]
    assert seen.targets == ["payments POST /refunds", "after"]
    assert seen.recording.passed[0].faults == list(WRITE_FAULTS)
    assert "method" in seen.recording.passed[0].line or "url" in seen.recording.passed[0].line
    ((provider, operation, arrival, what),) = seen.told
    assert (provider, operation) == ("payments", "POST /refunds")
    assert arrival == (1 if fault in number else None)
    assert what.startswith("status") != (fault in errors)
    held = [["payments", "POST /refunds", "POST", "/refunds?x=1", "pay"]]
    assert seen.held == held * {"late": 1, "late-copy": 1, "late-twice": 2}.get(fault or "", 0)
    assert seen.outside == []


@pytest.mark.parametrize(
    ("call", "method"), [*((call, "GET") for call in ERRORS), (by_requests, "HEAD"), (by_aiohttp, "HEAD")]
)
def test_a_read_can_be_answered_from_before_the_latest_change(call: Call, method: str, server: str) -> None:
    """A replica that lags: the fake is asked for it, and the caller sees an ordinary answer."""
    seen = run(lambda: call(method, f"{server}/api/refunds?x=1", None), server, "stale-read")

    assert seen.recording.passed[0].faults == list(READ_FAULTS)
    ((_, _, headers, _),) = seen.arrivals
    assert headers["once-order"] == "stale"
    assert seen.returned[0] == 200
    assert bool(seen.returned[1]) == (method == "GET")
    assert seen.told[0][3] == "status 200"


@pytest.mark.parametrize("call", ERRORS)
def test_a_write_to_an_unknown_server_is_handed_over_before_it_is_sent(call: Call, server: str) -> None:
    """The run stops there, as nobody could count or undo it; a read is only announced."""

    def body() -> Any:
        call("GET", f"{server}/elsewhere?x=1", None)
        return call("POST", f"{server}/elsewhere")

    seen = run(body, server)

    assert seen.targets == ["GET 127.0.0.1/elsewhere", "after"]
    assert [outside[:2] for outside in seen.outside] == [["POST", f"{server}/elsewhere"]]


@pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
def test_coroutines_call_one_after_the_other_through_httpx(library: Any, server: str) -> None:
    """Otherwise the same schedule would give different ledgers."""

    def body() -> Any:
        async def main() -> Any:
            async with library.AsyncClient(trust_env=False) as client:
                await asyncio.gather(*(client.post(f"{server}/api/{n}") for n in range(5)))

        return asyncio.run(main())

    seen = run(body, server)

    assert [path for _, path, _, _ in seen.arrivals] == [f"/api/{n}" for n in range(5)]


def test_coroutines_call_one_after_the_other_through_aiohttp(server: str) -> None:
    """The connections are made at once otherwise, and whichever is quicker comes first."""

    def body() -> Any:
        async def main() -> Any:
            async with aiohttp.ClientSession() as session:

                async def post(number: int) -> Any:
                    async with session.post(f"{server}/api/{number}", data=b"x" * number) as response:
                        return (await response.json())["body"]

                return await asyncio.gather(*(post(number) for number in range(5)))

        return asyncio.run(main())

    seen = run(body, server)

    assert [path for _, path, _, _ in seen.arrivals] == [f"/api/{n}" for n in range(5)]
    assert seen.returned == ["x" * number for number in range(5)]


def test_threads_call_one_at_a_time_through_requests(server: str) -> None:
    """Each request is announced, sent and answered before the next is announced."""

    def body() -> Any:
        threads = [threading.Thread(target=by_requests, args=("POST", f"{server}/api/{n}")) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return None

    seen = run(body, server)

    announced = [target.rpartition("/")[2] for target in seen.targets[:-1]]
    assert announced == [path.rpartition("/")[2] for _, path, _, _ in seen.arrivals]
    assert sorted(announced) == ["0", "1", "2", "3"]


# What a library sends again by itself.


def urllib3_put(server: str) -> Any:
    with urllib3.PoolManager() as pool:
        return pool.request("PUT", f"{server}/api/refunds", body=BODY).status


def urllib3_post(server: str) -> Any:
    with urllib3.PoolManager() as pool:
        return pool.request("POST", f"{server}/api/refunds", body=BODY).status


def aiohttp_put(server: str) -> Any:
    return by_aiohttp("PUT", f"{server}/api/refunds")[0]


def requests_with_retries(server: str) -> Any:
    retry = urllib3.Retry(3, allowed_methods=None, status_forcelist=[503])
    with requests.Session() as session:
        session.mount("http://", requests.adapters.HTTPAdapter(max_retries=retry))
        return session.post(f"{server}/api/refunds", data=BODY).status_code


def requests_put(server: str) -> Any:
    return by_requests("PUT", f"{server}/api/refunds")[0]


@pytest.mark.parametrize(
    ("body", "fault", "arrivals", "announced"),
    [
        (urllib3_put, "lost-response", 2, 2),
        (urllib3_put, "reset-response", 2, 2),
        (urllib3_put, "refused", 1, 2),
        (urllib3_post, "lost-response", 1, 1),
        (urllib3_post, "refused", 1, 2),
        (aiohttp_put, "reset-response", 2, 2),
        (aiohttp_put, "lost-response", 1, 1),
        (aiohttp_put, "refused", 0, 1),
        (requests_put, "reset-response", 1, 1),
        (requests_with_retries, "reset-response", 2, 2),
        (requests_with_retries, "error-before", 1, 2),
    ],
)
def test_what_a_library_sends_again_is_an_attempt_of_its_own(
    body: Callable[[str], Any], fault: str, arrivals: int, announced: int, server: str
) -> None:
    """The caller sees one call, the provider two requests: hooking calls instead of attempts would miss it."""
    seen = run(lambda: body(server), server, fault)

    assert len(seen.arrivals) == arrivals
    assert len(seen.targets) == announced + 1
    assert len(seen.told) == announced
    if announced == 2:
        assert seen.returned == 200


def aws(service: str, server: str, tries: int = 3) -> Any:
    import time

    time.sleep = lambda _: None  # between its tries
    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "eu-west-1"}
    config = boto_config.Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": tries})
    return boto3.client(service, endpoint_url=f"{server}/api", config=config, **keys)


def test_boto3_sends_a_message_again_and_its_caller_hears_of_one(server: str) -> None:
    """One call of send_message, no exception, two messages: the caller cannot know."""

    def body() -> Any:
        answer = aws("sqs", server).send_message(QueueUrl=f"{server}/api/orders", MessageBody="order_1")
        return answer["ResponseMetadata"]["RetryAttempts"]

    seen = run(body, server, "lost-response")

    assert seen.returned == 1
    assert seen.targets == ["payments POST /", "payments POST /", "after"]
    assert ["order_1" in body for _, _, _, body in seen.arrivals] == [True, True]


def test_boto3_does_not_wait_for_leave_to_send_a_body(server: str) -> None:
    """S3 asks for "100 Continue" before a body, on a socket through which nothing has gone yet."""

    def body() -> Any:
        return aws("s3", server, tries=1).put_object(Bucket="b", Key="k", Body=b"x" * 1000)

    seen = run(body, server)

    assert seen.targets == ["payments PUT /b/k", "after"]
    ((_, _, headers, sent),) = seen.arrivals
    assert (headers["expect"], "x" * 1000 in sent) == ("100-continue", True)


# Bodies and answers of all kinds.


def test_bodies_in_pieces_arrive_whole_and_are_held_whole(server: str) -> None:
    """Chunked or not, read from a file or a generator."""

    def pieces() -> Iterator[bytes]:
        yield b"pa"
        yield b"y" * 3

    async def pieces_async() -> Any:
        for piece in pieces():
            yield piece

    def body() -> Any:
        connection = http.client.HTTPConnection(urlsplit(server).netloc)
        connection.putrequest("POST", "/api/1")
        connection.putheader("Content-Length", "5")
        connection.endheaders()
        connection.send(b"pa")
        connection.send(bytearray(b"yyy"))
        connection.getresponse().read()
        connection.request("POST", "/api/2", pieces(), encode_chunked=False)
        connection.getresponse().read()
        requests.post(f"{server}/api/3", data=pieces())

        async def main() -> None:
            async with aiohttp.ClientSession() as session:
                await session.post(f"{server}/api/4", data=pieces_async())

        asyncio.run(main())

    for fault in (None, "late-copy"):
        seen = run(body, server, fault)
        assert [[path, body] for _, path, _, body in seen.arrivals] == [[f"/api/{n}", "payyy"] for n in (1, 2, 3, 4)]
        assert [one[4] for one in seen.held] == (["payyy"] if fault else [])
    for seen in (
        run(lambda: requests.post(f"{server}/api/3", data=pieces()).status_code, server, "late-copy"),
        run(lambda: by_aiohttp("POST", f"{server}/api/4", pieces_async()), server, "late-copy"),
    ):
        assert [one[4] for one in seen.held] == ["payyy"]


@pytest.mark.parametrize("call", [by_requests, by_urllib3, by_aiohttp, by_urllib])
def test_large_bodies_come_back_whole(call: Call, server: str) -> None:
    """Beyond every buffer on the way, so that flow control has its say."""
    seen = run(lambda: len(call("POST", f"{server}/api/x", b"z" * 600_000)[1]), server)

    assert seen.returned > 600_000


def test_a_connection_is_used_again_after_each_kind_of_answer(server: str) -> None:
    """A pool that got another request's answer would be worse than any fault."""

    def body() -> Any:
        with requests.Session() as session:
            seen = []
            for number in range(3):
                try:
                    seen.append(session.post(f"{server}/api/{number}", data=str(number)).json().get("body"))
                except requests.RequestException as error:
                    seen.append(type(error).__name__)
            return seen

    for fault, first in ((None, "0"), ("lost-response", "ReadTimeout"), ("reset-response", "ConnectionError")):
        assert run(body, server, fault).returned == [first, "1", "2"]
    assert run(body, server, "error-after").returned == [None, "1", "2"]


def test_streaming_sees_the_whole_answer(server: str) -> None:
    """What was read beforehand can still be streamed."""

    def body() -> Any:
        with requests.post(f"{server}/api/x", data=BODY, stream=True) as response:
            streamed = b"".join(response.iter_content(3)).decode()

        async def main() -> Any:
            async with aiohttp.ClientSession() as session, session.post(f"{server}/api/x", data=BODY) as response:
                return b"".join([chunk async for chunk in response.content.iter_chunked(3)]).decode()

        return [streamed, asyncio.run(main())]

    assert all('"body": "pay"' in text for text in run(body, server).returned)


def test_an_aiohttp_session_with_a_socket_time_out_sees_that_one(server: str) -> None:
    """Code that tells the two apart must meet the one it has asked for."""

    def body() -> Any:
        async def main() -> Any:
            timeout = aiohttp.ClientTimeout(sock_read=5)
            async with aiohttp.ClientSession(timeout=timeout) as session:
                await session.post(f"{server}/api/x", data=BODY)

        asyncio.run(main())

    assert run(body, server, "lost-response").returned == ["ServerTimeoutError"]


def test_a_cancelled_aiohttp_call_lets_the_others_go_on(server: str) -> None:
    """A turn that is never given back would hang every later call."""

    def body() -> Any:
        async def main() -> Any:
            async with aiohttp.ClientSession() as session:
                calls = [asyncio.create_task(session.post(f"{server}/api/{n}", data=BODY)) for n in range(3)]
                await asyncio.sleep(0)
                calls[0].cancel()
                calls[1].cancel()
                await asyncio.gather(*calls, return_exceptions=True)
                async with session.post(f"{server}/api/last", data=BODY) as response:
                    return response.status

        return asyncio.run(main())

    assert run(body, server).returned == 200


def test_a_real_failure_is_told_too() -> None:
    """Nothing listens there: each caller sees what it would see in production."""

    def body() -> Any:
        from pytest_once.boundaries import register_endpoint

        register_endpoint("http://127.0.0.1:1/api", "payments")
        seen = []
        for call in ERRORS:
            try:
                call("POST", "http://127.0.0.1:1/api/refunds")
            except Exception as error:
                seen.append(type(error).__name__)
        return seen

    seen = lived(body, SEAMS)

    assert seen.returned == [errors[0][0] for errors in ERRORS.values()]
    assert [operation for _, operation, _, _ in seen.told] == ["POST /refunds"] * len(ERRORS)
