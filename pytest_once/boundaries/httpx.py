"""The httpx seam, for httpx and httpx2: every attempt of a transport is announced before it is sent.

Transports, not clients, are hooked: a client's redirects and a caller's retries are attempts of their own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from pytest_once import audit, clock
from pytest_once.boundaries import ARRIVAL_HEADER, ORDER_HEADER, UNDECIDED_HEADER, endpoint_of
from pytest_once.boundaries.http import (
    Answer,
    Attempt,
    Failure,
    alone_in_loop,
    alone_in_thread,
    answered_by_fake,
    keep_secret,
)
from pytest_once.boundaries.seam import Wiring

if TYPE_CHECKING:
    import ssl

    import httpx


class HttpxSeam:
    """The seam of httpx, or of a library that is built like it. library: its import name."""

    def __init__(self, library: str) -> None:
        self.name = self.library = library
        self._prepared: tuple[ssl.SSLContext, list[str | None]] | None = None

    def originals(self) -> tuple[object, ...]:
        """None: classes are hooked, not names. Reads the certificate authorities once, for all children's clients."""
        create = getattr(self._transports(), "create_ssl_context", None)
        if create is not None and self._prepared is None:
            self._prepared = create(), _certificate_environment()
        return ()

    def install(self, wiring: Wiring) -> None:
        """Announce the requests of the library from now on; for a forked child only."""
        module = sys.modules[self.library]
        if module.__name__ != self.library:
            return  # an alias (httpx2.alias_httpx) of what the other seam hooks
        for name, mocked in (("HTTPTransport", False), ("AsyncHTTPTransport", False), ("MockTransport", True)):
            transport: Any = getattr(module, name, None)
            if transport is None:
                continue
            calls = _Calls(wiring, module, mocked)
            if hasattr(transport, "handle_request"):
                transport.handle_request = calls.sync(transport.handle_request)
            if hasattr(transport, "handle_async_request"):
                transport.handle_async_request = calls.asynchronous(transport.handle_async_request)
        default = self._transports()
        if hasattr(default, "create_ssl_context"):
            default.create_ssl_context = _ssl_context_of(default.create_ssl_context, self._prepared)

    def _transports(self) -> Any:
        return sys.modules.get(f"{self.library}._transports.default")


HTTPX = HttpxSeam("httpx")
HTTPX2 = HttpxSeam("httpx2")


class _Calls:
    """Stands in for a transport's handlers. module: the library; mocked: the transport answers in this process."""

    def __init__(self, wiring: Wiring, module: Any, mocked: bool) -> None:
        self._wiring = wiring
        self._module = module
        self._mocked = mocked

    def sync(self, send: Callable[[Any, httpx.Request], httpx.Response]) -> Callable[..., Any]:
        def handle_request(transport: Any, request: httpx.Request) -> httpx.Response:
            endpoint = self._endpoint(request)
            if endpoint is None:
                with self._announced():
                    return send(transport, request)
            with alone_in_thread():
                request.read()  # the body may have to be sent twice
                keep_secret(self._wiring, request.headers.multi_items())
                attempt = Attempt(self._wiring, request.method, _address(request), endpoint)
                call = _Call(attempt, request, self._module)
                with self._waiting():
                    while call.to_send:
                        try:
                            call.order()
                            response = send(transport, request)
                            stream: Any = response.stream
                            call.received(response, b"".join(stream))
                            response.close()
                        except BaseException as error:
                            call.attempt.told(error)
                            raise
                return call.outcome()

        return handle_request

    def asynchronous(self, send: Callable[[Any, httpx.Request], Any]) -> Callable[..., Any]:
        async def handle_async_request(transport: Any, request: httpx.Request) -> httpx.Response:
            endpoint = self._endpoint(request)
            if endpoint is None:
                with self._announced():
                    unfaked: httpx.Response = await send(transport, request)
                return unfaked
            async with alone_in_loop():
                await request.aread()
                keep_secret(self._wiring, request.headers.multi_items())
                attempt = Attempt(self._wiring, request.method, _address(request), endpoint)
                call = _Call(attempt, request, self._module)
                with self._waiting():
                    while call.to_send:
                        try:
                            call.order()
                            response = await send(transport, request)
                            stream: Any = response.stream
                            call.received(response, b"".join([chunk async for chunk in stream]))
                            await response.aclose()
                        except BaseException as error:
                            call.attempt.told(error)
                            raise
                return call.outcome()

        return handle_async_request

    def _endpoint(self, request: httpx.Request) -> tuple[str, str] | None:
        if self._mocked:
            # The user's own stand-in, inside this process, unless a fake is behind it.
            return endpoint_of(_address(request))
        return answered_by_fake(self._wiring, request.method, _address(request))

    def _announced(self) -> AbstractContextManager[None]:
        # anyio and trio connect in a task of their own, in which nobody could tell whose connection it is.
        return nullcontext() if self._mocked else audit.announced()

    def _waiting(self) -> AbstractContextManager[None]:
        # A mock's handler runs in this process and may itself sleep: the clock must go on for it.
        return nullcontext() if self._mocked else clock.held()


def _address(request: httpx.Request) -> str:
    """Where the request goes, without a password, which is part of no address."""
    url = request.url
    return str(url.copy_with(username=None, password=None) if url.userinfo else url)


class _Call:
    """An attempt, in the library's words."""

    def __init__(self, attempt: Attempt, request: httpx.Request, module: Any) -> None:
        self.attempt = attempt
        self._request = request
        self._module = module
        self._received: httpx.Response | None = None
        self._body = b""
        self.to_send = attempt.sends

    def order(self) -> None:
        """Tell the provider what to do with the request that is sent next."""
        if self.attempt.order:
            self._request.headers[ORDER_HEADER] = self.attempt.order

    def received(self, response: httpx.Response, body: bytes) -> None:
        """The provider answered; the first answer is the one that the caller gets."""
        if self.attempt.undecided(response.headers.get(UNDECIDED_HEADER)):
            return
        self.to_send -= 1
        self.attempt.arrived(response.headers.get(ARRIVAL_HEADER))
        if self._received is None:
            self._received, self._body = response, body

    def outcome(self) -> httpx.Response:
        """The response the caller gets. Raises the library's exception that the fault means instead."""
        attempt, request = self.attempt, self._request
        request.headers.pop(ORDER_HEADER, None)
        if attempt.holds:
            attempt.hold(request.headers.multi_items(), request.content)
        error: Exception | None = None
        if attempt.failure is Failure.REFUSED:
            error = self._module.ConnectError("[Errno 111] Connection refused", request=request)
        elif attempt.failure is Failure.TIMED_OUT:
            error = self._module.ReadTimeout("The read operation timed out", request=request)
        elif attempt.failure is Failure.RESET:
            error = self._module.ReadError("[Errno 104] Connection reset by peer", request=request)
        if error is not None:
            attempt.told(error)
            raise error
        response = self._replayed() if attempt.made_up is None else self._made_up(attempt.made_up)
        response.request = request
        attempt.told(f"status {response.status_code}")
        return response

    def _replayed(self) -> httpx.Response:
        received = self._received
        assert received is not None
        response: httpx.Response = self._module.Response(
            received.status_code,
            headers=received.headers,
            stream=self._module.ByteStream(self._body),
            extensions={
                name: received.extensions[name]
                for name in ("http_version", "reason_phrase")
                if name in received.extensions
            },
        )
        return response

    def _made_up(self, answer: Answer) -> httpx.Response:
        response: httpx.Response = self._module.Response(
            answer.status, headers=list(answer.headers), content=answer.body
        )
        return response


# Certificates: reading them takes 20 ms for every client that is built.

_CERTIFICATE_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE")


def _certificate_environment() -> list[str | None]:
    return [os.environ.get(name) for name in _CERTIFICATE_VARIABLES]


def _ssl_context_of(
    create: Callable[..., ssl.SSLContext], prepared: tuple[ssl.SSLContext, list[str | None]] | None
) -> Callable[..., ssl.SSLContext]:
    def create_ssl_context(*arguments: Any, **named: Any) -> ssl.SSLContext:
        ordinary = not arguments and named.get("verify", True) is True and named.get("cert") is None
        if ordinary and named.get("trust_env", True) and prepared is not None:
            context, environment = prepared
            if environment == _certificate_environment():
                return context
        return create(*arguments, **named)

    return create_ssl_context
