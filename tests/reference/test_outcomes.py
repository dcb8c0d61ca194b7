"""What exceptions and answers prove: real ones of each client where a socket makes them."""

from __future__ import annotations

import asyncio
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pytest_once.reference.outcomes import (
    Ambiguous,
    Certainty,
    NoEffect,
    Rules,
    business_code,
    check,
    of_exception,
    of_response,
    of_status,
)

FAILED, NEVER, UNKNOWN, SUCCEEDED = Certainty.FAILED, Certainty.NEVER_ARRIVED, Certainty.UNKNOWN, Certainty.SUCCEEDED

CODED = {"error": {"code": "card_declined", "message": "no"}}


@contextmanager
def served(answer: bytes | None) -> Iterator[str]:
    """A server that reads one request and answers so; None: it closes without an answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with listener.accept()[0] as connection:
                connection.settimeout(5)
                connection.recv(65536)
                if answer is not None:
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/refunds"
        thread.join()


@contextmanager
def silent() -> Iterator[str]:
    """A server that accepts connections (its backlog does) and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/refunds"


@contextmanager
def nobody() -> Iterator[str]:
    """An address that refuses connections."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{unused.getsockname()[1]}/refunds"


def raw(status: str, body: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n{body}".encode()


def by_httpx(url: str) -> Any:
    import httpx

    with httpx.Client(verify=False, trust_env=False, timeout=0.2) as client:
        return check(client.post(url, json={"amount": 5}))


def by_requests(url: str) -> Any:
    import requests

    with requests.Session() as session:
        session.trust_env = False
        return check(session.post(url, json={"amount": 5}, timeout=0.2, allow_redirects=False))


def by_urllib3(url: str) -> Any:
    import urllib3

    with urllib3.PoolManager() as pool:
        return check(pool.request("POST", url, json={"amount": 5}, timeout=0.2, retries=False))


def by_urllib3_with_retries(url: str) -> Any:
    import urllib3

    with urllib3.PoolManager() as pool:
        return pool.request("POST", url, timeout=0.2, retries=urllib3.Retry(0))


def by_aiohttp(url: str) -> Any:
    import aiohttp

    async def post() -> Any:
        timeout = aiohttp.ClientTimeout(total=0.2)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(url, json={"amount": 5}, allow_redirects=False) as response,
        ):
            text = await response.text()
            return check(response, await response.json() if text else None)

    return asyncio.run(post())


def by_urllib(url: str) -> Any:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, data=b"{}", method="POST"), timeout=0.2) as response:
        return check(response)


CLIENTS = (by_httpx, by_requests, by_urllib3, by_aiohttp, by_urllib)


def certainty(call: Callable[[], Any]) -> Certainty:
    try:
        call()
    except Exception as error:
        return of_exception(error).certainty
    return SUCCEEDED


@pytest.mark.parametrize("client", [*CLIENTS, by_urllib3_with_retries])
def test_a_refused_connection_proves_that_nothing_arrived(client: Callable[[str], Any]) -> None:
    """S4.8: such errors may be retried freely, so each client's way of saying it must be known."""
    with nobody() as url:
        assert certainty(lambda: client(url)) is NEVER


@pytest.mark.parametrize("client", CLIENTS)
def test_a_name_that_does_not_resolve_proves_that_nothing_arrived(
    client: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """S4.8; the resolver itself is asked nothing here, since tests stay on this machine."""

    def unknown(*_: object, **__: object) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert certainty(lambda: client("http://payments.invalid/refunds")) is NEVER


@pytest.mark.parametrize("client", CLIENTS)
def test_silence_proves_nothing(client: Callable[[str], Any]) -> None:
    """S4.4: a time-out after sending is ambiguous; the provider may act when the client has gone."""
    with silent() as url:
        assert certainty(lambda: client(url)) is UNKNOWN


@pytest.mark.parametrize("client", CLIENTS)
def test_a_connection_that_ends_without_an_answer_proves_nothing(client: Callable[[str], Any]) -> None:
    """S4.4 (incident H03): the server may have acted before it closed."""
    with served(None) as url:
        assert certainty(lambda: client(url)) is UNKNOWN


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("answer", "proves"),
    [
        (raw("201 Created", "{}"), SUCCEEDED),
        (raw("202 Accepted", "{}"), UNKNOWN),
        (raw("500 Internal Server Error"), UNKNOWN),
        (raw("425 Too Early"), FAILED),
        (raw("404 Not Found"), UNKNOWN),
    ],
    ids=["201", "202", "500", "425", "404"],
)
def test_an_answer_is_judged_alike_through_each_client(
    client: Callable[[str], Any], answer: bytes, proves: Certainty
) -> None:
    """S4.4, S1.9: whether the client raises for the status or hands the response out."""
    with served(answer) as url:
        assert certainty(lambda: client(url)) is proves


@pytest.mark.parametrize("client", [by_httpx, by_requests, by_urllib3, by_aiohttp])
def test_a_business_code_is_read_from_the_body(client: Callable[[str], Any]) -> None:
    """S4.4: 4xx with a business code is FAILED."""
    with served(raw("402 Payment Required", '{"error": {"code": "card_declined"}}')) as url:
        assert certainty(lambda: client(url)) is FAILED


@pytest.mark.parametrize(
    ("status", "document", "proves"),
    [
        (200, None, SUCCEEDED),
        (204, None, SUCCEEDED),
        (202, None, UNKNOWN),
        (207, None, UNKNOWN),
        (303, None, UNKNOWN),
        (307, None, UNKNOWN),
        (400, CODED, FAILED),
        (400, None, UNKNOWN),
        (401, None, FAILED),
        (404, {"error": "Not Found", "status": 404}, UNKNOWN),
        (408, CODED, UNKNOWN),
        (409, {"error": {"code": "conflict"}}, UNKNOWN),
        (409, CODED, UNKNOWN),
        (412, CODED, UNKNOWN),
        (422, {"name": "validation_error"}, FAILED),
        (422, {"error": {"type": "idempotency_error"}}, UNKNOWN),
        (400, {"errors": [{"code": "IDEMPOTENCY_KEY_REUSED"}]}, UNKNOWN),
        (422, {"errorCode": "704"}, UNKNOWN),
        (400, {"code": "InvalidAddress"}, FAILED),
        (425, None, FAILED),
        (429, None, FAILED),
        (500, None, UNKNOWN),
        (500, CODED, UNKNOWN),
        (503, None, UNKNOWN),
    ],
)
def test_what_a_status_proves(status: int, document: object, proves: Certainty) -> None:
    """S4.4, S1.9, S2.8; incidents P11, S03, S04: only a refusal by the provider itself proves no effect."""
    assert of_status(status, document).certainty is proves


def test_a_providers_own_documentation_goes_first() -> None:
    """What one provider promises of a status is not what the next does."""
    rules = Rules(
        statuses={409: FAILED, 429: UNKNOWN}, no_effect_codes=frozenset({"maintenance"}), accepted_is_done=True
    )
    assert of_status(409, None, rules).certainty is FAILED
    assert of_status(429, None, rules).certainty is UNKNOWN
    assert of_status(503, {"code": "maintenance"}, rules).certainty is FAILED
    assert of_status(202, None, rules).certainty is SUCCEEDED


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({"error": {"code": "card_declined"}}, "card_declined"),
        ({"error": {"type": "invalid_request", "message": "x"}}, "invalid_request"),
        ({"error": {"code": 400, "type": "x_y"}}, "x_y"),
        ({"errors": [{"code": "E7"}]}, "E7"),
        ({"name": "UNPROCESSABLE"}, "UNPROCESSABLE"),
        ({"__type": "ValidationException"}, "ValidationException"),
        ({"error": "invalid_grant"}, "invalid_grant"),
        ({"error": "Bad Request"}, None),
        ({"code": 400}, None),
        ({"code": True}, None),
        ({"message": "Bad Request"}, None),
        ({"errors": []}, None),
        ([], None),
        (None, None),
    ],
)
def test_where_a_business_code_is_found(document: object, code: str | None) -> None:
    """A proxy's page repeats the status; only a name of its own shows that the provider has judged the request."""
    assert business_code(document, 400) == code


def test_an_exception_that_nobody_knows_proves_nothing() -> None:
    """S3.5: a bug in the tool may strike after its request."""
    for error in (KeyError("id"), RuntimeError(), ValueError("x"), KeyboardInterrupt(), asyncio.CancelledError()):
        assert of_exception(error).certainty is UNKNOWN


def test_a_number_in_an_exit_is_no_status() -> None:
    """A known-bad guess: SystemExit has a `code`, and 425 would prove no effect."""
    assert of_exception(SystemExit(425)).certainty is UNKNOWN


def test_an_answer_that_could_not_be_read_is_no_proof_of_success() -> None:
    """The status said yes, but what was to be kept as the receipt is missing."""
    error = urllib.error.HTTPError("http://x", 200, "OK", None, None)  # type: ignore[arg-type]
    assert of_exception(error).certainty is UNKNOWN


class ApiError(Exception):
    """As SDKs have them: a status and a code of their own."""

    def __init__(self, status_code: int, code: str | None) -> None:
        super().__init__("refused")
        self.status_code = status_code
        self.code = code


def test_an_sdks_error_is_read_by_its_status_and_code() -> None:
    """S4.4: SDKs hide the response; both facts are on the exception."""
    assert of_exception(ApiError(402, "card_declined")).certainty is FAILED
    assert of_exception(ApiError(402, None)).certainty is UNKNOWN
    assert of_exception(ApiError(500, "card_declined")).certainty is UNKNOWN


def test_a_tool_may_say_itself_what_it_knows() -> None:
    """S4.2: FAILED needs proof; only the tool may have one that no class of exception shows."""
    assert of_exception(NoEffect("the dry run was refused")).certainty is FAILED
    assert of_exception(Ambiguous("half of it")).certainty is UNKNOWN


def test_what_has_no_status_is_refused() -> None:
    """A wrong argument must not pass for an answer."""
    with pytest.raises(TypeError, match="dict has no HTTP status"):
        of_response({"status": 200})
