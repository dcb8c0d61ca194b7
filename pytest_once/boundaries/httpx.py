"""The httpx seam: every attempt of a transport is announced before it is sent.

Transports, not clients, are hooked: a client's redirects and a caller's retries are attempts of their own.
Requests to a fake provider may be given soft faults, and their responses are read completely before the next
request of the process is announced, so that concurrent calls reach the provider in the same order every time.
"""

from __future__ import annotations

import contextvars
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from pytest_once import clock
from pytest_once.boundaries import announce, endpoint_of
from pytest_once.faults import (
    DUPLICATE,
    ERROR_AFTER,
    ERROR_BEFORE,
    HTTP_FAULTS,
    LOST_REQUEST,
    LOST_RESPONSE,
    REFUSED,
    RESET_RESPONSE,
)
from pytest_once.site import Site, call_site

if TYPE_CHECKING:
    import ssl
    from types import ModuleType

    import httpx

ARRIVAL_HEADER = "once-arrival"
"""Response header in which a fake provider names the arrival it answers."""

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_READ_FAULTS = tuple(fault for fault in HTTP_FAULTS if fault not in (DUPLICATE, ERROR_AFTER))
_UNSENT = frozenset({REFUSED, LOST_REQUEST, ERROR_BEFORE})


class Told(Protocol):
    """Told the ledger: what the caller of `operation` learned.

    arrival: the provider's id of the (first) arrival, None if none is known. what: "status 200", or the
    name of the exception.
    """

    def __call__(self, provider: str, operation: str, arrival: str | None, what: str) -> None: ...


def _silent(provider: str, operation: str, arrival: str | None, what: str) -> None:
    """Nobody keeps a record of what callers are told."""


_on_outside: Callable[[str, str, Site], None] = lambda method, url, site: None  # noqa: E731
_told: Told = _silent


def install(on_outside: Callable[[str, str, Site], None], told: Told = _silent) -> None:
    """Announce the requests of httpx from now on; for a forked child only. Waits for httpx to be imported.

    on_outside: called before a writing request to a URL behind which no fake is registered; need not return.
    """
    global _on_outside, _told
    _on_outside, _told = on_outside, told
    module = sys.modules.get("httpx")
    if module is None:
        _install_on_import()
    else:
        _hook(module)


def _hook(module: ModuleType) -> None:
    for name, mocked in (("HTTPTransport", False), ("AsyncHTTPTransport", False), ("MockTransport", True)):
        transport: Any = getattr(module, name, None)
        if transport is None:
            continue
        if hasattr(transport, "handle_request"):
            transport.handle_request = _sync_handler(transport.handle_request, mocked)
        if hasattr(transport, "handle_async_request"):
            transport.handle_async_request = _async_handler(transport.handle_async_request, mocked)
    default: Any = sys.modules.get("httpx._transports.default")
    if default is not None and hasattr(default, "create_ssl_context"):
        default.create_ssl_context = _ssl_context_of(default.create_ssl_context)


# What happens to an attempt, the same for both kinds of transport.


class _Attempt:
    """One request on its way to a fake provider, and what the order makes of it."""

    def __init__(self, request: httpx.Request, provider: str, path: str) -> None:
        self._request = request
        self._provider = provider
        self._operation = f"{request.method} {path}"
        faults = _READ_FAULTS if request.method in _SAFE_METHODS else HTTP_FAULTS
        order = announce("http", f"{provider} {self._operation}", provider=provider, faults=faults)
        self.fault = order.fault
        self.sends = 0 if self.fault in _UNSENT else 2 if self.fault == DUPLICATE else 1
        self.bodies: list[bytes] = []
        self.responses: list[httpx.Response] = []

    def failed(self, error: BaseException) -> None:
        """The transport itself raised: that is what the caller learns."""
        self._tell(type(error).__name__)

    def outcome(self) -> httpx.Response:
        """The response the caller gets. Raises the httpx exception that the fault means instead."""
        import httpx

        request = self._request
        error: httpx.TransportError | None = None
        if self.fault == REFUSED:
            error = httpx.ConnectError("[Errno 111] Connection refused", request=request)
        elif self.fault in (LOST_REQUEST, LOST_RESPONSE):
            error = httpx.ReadTimeout("The read operation timed out", request=request)
        elif self.fault == RESET_RESPONSE:
            error = httpx.ReadError("[Errno 104] Connection reset by peer", request=request)
        if error is not None:
            self._tell(type(error).__name__)
            raise error
        if self.fault == ERROR_BEFORE:
            response = _error_response(503, "service_unavailable", "The service is overloaded; try later.")
        elif self.fault == ERROR_AFTER:
            response = _error_response(500, "api_error", "An unexpected error occurred.")
        else:
            received = self.responses[0]
            response = httpx.Response(
                received.status_code,
                headers=received.headers,
                stream=httpx.ByteStream(self.bodies[0]),
                extensions={
                    name: received.extensions[name]
                    for name in ("http_version", "reason_phrase")
                    if name in received.extensions
                },
            )
        response.request = request
        self._tell(f"status {response.status_code}")
        return response

    def _tell(self, what: str) -> None:
        arrival = self.responses[0].headers.get(ARRIVAL_HEADER) if self.responses else None
        _told(self._provider, self._operation, arrival, what)


def _error_response(status: int, kind: str, message: str) -> httpx.Response:
    import httpx

    return httpx.Response(status, json={"error": {"type": kind, "message": message}})


def _passes_outside(request: httpx.Request, mocked: bool) -> None:
    """Deal with a request that no fake provider answers; returns if it may be sent."""
    if mocked:
        return  # the user's own stand-in, inside this process
    method = request.method
    if method in _SAFE_METHODS:
        announce("http", f"{method} {request.url.host}{request.url.path}")
    else:
        _on_outside(method, str(request.url), call_site())


def _sync_handler(send: Callable[[Any, httpx.Request], httpx.Response], mocked: bool) -> Callable[..., Any]:
    def handle_request(self: Any, request: httpx.Request) -> httpx.Response:
        endpoint = endpoint_of(str(request.url))
        if endpoint is None:
            _passes_outside(request, mocked)
            return send(self, request)
        with _alone_in_thread():
            request.read()  # the body may have to be sent twice
            attempt = _Attempt(request, *endpoint)
            with _waiting(mocked):
                for _ in range(attempt.sends):
                    try:
                        response = send(self, request)
                        attempt.responses.append(response)
                        stream: Any = response.stream
                        attempt.bodies.append(b"".join(stream))
                        response.close()
                    except BaseException as error:
                        attempt.failed(error)
                        raise
            return attempt.outcome()

    return handle_request


def _async_handler(send: Callable[[Any, httpx.Request], Any], mocked: bool) -> Callable[..., Any]:
    async def handle_async_request(self: Any, request: httpx.Request) -> httpx.Response:
        endpoint = endpoint_of(str(request.url))
        if endpoint is None:
            _passes_outside(request, mocked)
            response: httpx.Response = await send(self, request)
            return response
        async with _alone_in_loop():
            await request.aread()
            attempt = _Attempt(request, *endpoint)
            with _waiting(mocked):
                for _ in range(attempt.sends):
                    try:
                        response = await send(self, request)
                        attempt.responses.append(response)
                        stream: Any = response.stream
                        attempt.bodies.append(b"".join([chunk async for chunk in stream]))
                        await response.aclose()
                    except BaseException as error:
                        attempt.failed(error)
                        raise
            return attempt.outcome()

    return handle_async_request


def _waiting(mocked: bool) -> AbstractContextManager[None]:
    # A mock's handler runs in this process and may itself sleep: the clock must go on for it.
    return nullcontext() if mocked else clock.held()


# One call at a time.

_thread_turn = threading.RLock()
_loop_turns: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
_has_turn: contextvars.ContextVar[bool] = contextvars.ContextVar("pytest_once_httpx_has_turn", default=False)


@contextmanager
def _alone_in_thread() -> Iterator[None]:
    with _thread_turn:
        yield


@asynccontextmanager
async def _alone_in_loop() -> AsyncIterator[None]:
    if _has_turn.get():
        yield  # a mock's handler that calls on
        return
    async with _turn_of_loop():
        token = _has_turn.set(True)
        try:
            yield
        finally:
            _has_turn.reset(token)


def _turn_of_loop() -> Any:
    import asyncio

    loop: Any
    make: Callable[[], Any] = asyncio.Lock
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        import trio

        loop, make = trio.lowlevel.current_trio_token(), trio.Lock
    turn = _loop_turns.get(loop)
    if turn is None:
        turn = _loop_turns[loop] = make()
    return turn


# Certificates: reading them takes 20 ms for every client that is built.

_CERTIFICATE_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE")
_prepared: tuple[ssl.SSLContext, list[str | None]] | None = None


def prepare() -> None:
    """In the parent: read the certificate authorities once, for the clients of all children."""
    global _prepared
    default: Any = sys.modules.get("httpx._transports.default")
    create = getattr(default, "create_ssl_context", None)
    if create is not None and _prepared is None:
        _prepared = create(), _certificate_environment()


def _certificate_environment() -> list[str | None]:
    return [os.environ.get(name) for name in _CERTIFICATE_VARIABLES]


def _ssl_context_of(create: Callable[..., ssl.SSLContext]) -> Callable[..., ssl.SSLContext]:
    def create_ssl_context(*arguments: Any, **named: Any) -> ssl.SSLContext:
        ordinary = not arguments and named.get("verify", True) is True and named.get("cert") is None
        if ordinary and named.get("trust_env", True) and _prepared is not None:
            context, environment = _prepared
            if environment == _certificate_environment():
                return context
        return create(*arguments, **named)

    return create_ssl_context


# httpx imported later.


class _Hooking(importlib.abc.Loader):
    """Runs httpx's own loader, then hooks what it made."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _hook(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds httpx as the others do, and puts our loader around theirs."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "httpx":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Hooking(spec.loader)
        return spec


def _install_on_import() -> None:
    sys.meta_path.insert(0, _Finder())
