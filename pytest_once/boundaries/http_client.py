"""The seam of http.client: so of urllib, urllib3, requests and botocore (boto3), each attempt for itself.

What a connection sends to a fake is kept back until the request is complete; then it is announced, and performed
over the connection's own socket. The answer waits, completely read, for `getresponse()`. Failures are raised where
the library would meet them, as the plain OSError it would meet, and it wraps them as it always does.
"""

from __future__ import annotations

import errno
import functools
import io
import os
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

from pytest_once import clock
from pytest_once.boundaries import ARRIVAL_HEADER, UNDECIDED_HEADER
from pytest_once.boundaries.http import (
    Answer,
    Attempt,
    Failure,
    alone_in_thread,
    answered_by_fake,
    headers_of,
    keep_secret,
    ordered,
)
from pytest_once.boundaries.seam import Wiring

_KEPT_BACK = "_pytest_once_request"
"""Attribute of a connection: the request that it believes to send, if that goes to a fake."""


class _Outgoing:
    """A request to a fake, and what came of it. answer: bytes as a server sends them, or what to raise."""

    def __init__(self, method: str, url: str, endpoint: tuple[str, str]) -> None:
        self.method = method
        self.url = url
        self.endpoint = endpoint
        self.pieces: list[bytes] = []
        self.complete = False
        self.answer: bytes | BaseException = b""


class HttpClientSeam:
    """Hooks the connections of http.client, which all libraries named above build upon."""

    name = "http.client"
    library = "http.client"

    def originals(self) -> tuple[object, ...]:
        """None: methods are hooked, not names."""
        return ()

    def install(self, wiring: Wiring) -> None:
        """Announce what is sent through http.client from now on; for a forked child only."""
        connection: Any = sys.modules[self.library].__dict__["HTTPConnection"]
        connection.putrequest = _putrequest(connection.putrequest, wiring)
        connection.send = _send(connection.send)
        connection.getresponse = _getresponse(connection.getresponse, wiring)
        connection.close = _close(connection.close)
        connection.request = _request(connection.request, wiring)


class Urllib3Seam:
    """urllib3's connections send a body after their headers by themselves: only they know when a request ends."""

    name = "urllib3"
    library = "urllib3.connection"

    def originals(self) -> tuple[object, ...]:
        """None: methods are hooked, not names."""
        return ()

    def install(self, wiring: Wiring) -> None:
        """Let a request of urllib3 be performed at its end; for a forked child only."""
        connection: Any = sys.modules[self.library].__dict__["HTTPConnection"]
        connection.request = _request(connection.request, wiring)


HTTP_CLIENT = HttpClientSeam()
URLLIB3 = Urllib3Seam()


def _putrequest(put: Callable[..., None], wiring: Wiring) -> Callable[..., None]:
    @functools.wraps(put)
    def putrequest(self: Any, method: str, url: str, *positional: Any, **named: Any) -> None:
        address = _address(self, url)
        setattr(self, _KEPT_BACK, None)
        endpoint = answered_by_fake(wiring, method.upper(), address)
        if endpoint is not None:
            setattr(self, _KEPT_BACK, _Outgoing(method.upper(), address, endpoint))
            if getattr(self, "_expect_header_set", False):
                self._expect_header_set = False  # botocore would wait on a socket that nothing was sent through
        put(self, method, url, *positional, **named)

    return putrequest


def _address(connection: Any, url: str) -> str:
    if url.startswith(("http://", "https://")):
        return url  # through a proxy
    host, port = connection.host, connection.port
    if connection._tunnel_host:
        host, port = connection._tunnel_host, connection._tunnel_port
    scheme = "https" if connection.default_port == 443 else "http"
    shown = f"[{host}]" if ":" in host and not host.startswith("[") else host
    suffix = "" if port in (None, connection.default_port) else f":{port}"
    return f"{scheme}://{shown}{suffix}{url or '/'}"


def _send(send_now: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(send_now)
    def send(self: Any, data: Any) -> None:
        outgoing: _Outgoing | None = getattr(self, _KEPT_BACK, None)
        if outgoing is None or outgoing.complete:
            send_now(self, data)
        elif self.sock is None and not self.auto_open:
            send_now(self, data)  # says that it is not connected
        elif hasattr(data, "read"):
            while block := data.read(self.blocksize):
                outgoing.pieces.append(block.encode("iso-8859-1") if isinstance(block, str) else bytes(block))
        else:
            try:
                outgoing.pieces.append(bytes(memoryview(data)))
            except TypeError:
                outgoing.pieces += map(bytes, data)

    return send


def _request(request_now: Callable[..., Any], wiring: Wiring) -> Callable[..., Any]:
    @functools.wraps(request_now)
    def request(self: Any, *positional: Any, **named: Any) -> Any:
        result = request_now(self, *positional, **named)
        _perform(self, wiring)
        return result

    return request


def _getresponse(respond: Callable[..., Any], wiring: Wiring) -> Callable[..., Any]:
    @functools.wraps(respond)
    def getresponse(self: Any, *positional: Any, **named: Any) -> Any:
        outgoing: _Outgoing | None = getattr(self, _KEPT_BACK, None)
        if outgoing is None:
            return respond(self, *positional, **named)
        _perform(self, wiring)
        setattr(self, _KEPT_BACK, None)
        if isinstance(outgoing.answer, BaseException):
            self.close()  # or the next request would get this one's answer
            raise outgoing.answer
        real, self.sock = self.sock, _Received(outgoing.answer)
        response = None
        try:
            response = respond(self, *positional, **named)
        finally:
            if self.sock is None or response is None:
                self.sock = None
                if real is not None:
                    real.close()
            else:
                self.sock = real
        return response

    return getresponse


def _close(close_now: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(close_now)
    def close(self: Any) -> None:
        setattr(self, _KEPT_BACK, None)
        close_now(self)

    return close


class _Received:
    """Stands in for a socket: one from which a whole response can be read, or one that was never needed."""

    def __init__(self, raw: bytes = b"") -> None:
        self._raw = raw

    def makefile(self, *_: Any, **__: Any) -> io.BytesIO:
        return io.BytesIO(self._raw)

    def settimeout(self, _: float | None) -> None:
        """Nothing takes time here."""

    def shutdown(self, _: int) -> None:
        """Nothing is open."""

    def close(self) -> None:
        """Nothing to close."""


def _perform(connection: Any, wiring: Wiring) -> None:
    """Announce the complete request and do with it what was ordered. Raises what connecting and sending would."""
    outgoing: _Outgoing | None = getattr(connection, _KEPT_BACK, None)
    if outgoing is None or outgoing.complete:
        return
    outgoing.complete = True
    with alone_in_thread():
        keep_secret(wiring, headers_of(b"".join(outgoing.pieces).partition(b"\r\n\r\n")[0]))
        attempt = Attempt(wiring, outgoing.method, outgoing.url, outgoing.endpoint)
        raw = b"".join(outgoing.pieces)
        try:
            if attempt.failure is Failure.REFUSED:
                _be_refused(connection)
            if connection.sock is None and attempt.sends:
                connection.connect()
        except BaseException as error:
            attempt.told(_cause(error))
            setattr(connection, _KEPT_BACK, None)
            raise
        if connection.sock is None:
            connection.sock = _Received()  # a request was sent, so there must be one
        answer: Answer | None = None
        try:
            with clock.held():
                sent = 0
                while sent < attempt.sends:
                    received = _exchange(connection, ordered(raw, attempt.order), outgoing.method)
                    if not attempt.undecided(received.header(UNDECIDED_HEADER)):
                        sent += 1
                        attempt.arrived(received.header(ARRIVAL_HEADER))
                        answer = answer or received
                    if sent < attempt.sends:
                        # The server may have closed the first without saying so.
                        connection.sock.close()
                        connection.connect()
        except OSError as error:
            attempt.told(error)
            outgoing.answer = error
            return
        if attempt.holds:
            attempt.hold_wire(raw)
        answer = attempt.made_up or answer
        if attempt.failure is not None:
            outgoing.answer = _failure(attempt.failure)
            attempt.told(outgoing.answer)
        else:
            assert answer is not None
            closes = isinstance(connection.sock, _Received)
            outgoing.answer = answer.wire(bodiless=outgoing.method == "HEAD", closes=closes)
            attempt.told(f"status {answer.status}")


def _cause(error: BaseException) -> BaseException:
    return error.__cause__ if isinstance(error.__cause__, OSError) else error


def _failure(failure: Failure) -> OSError:
    if failure is Failure.RESET:
        return ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
    return TimeoutError("timed out")


def _be_refused(connection: Any) -> None:
    """Let the library's own code connect and be refused. Raises what the library makes of it."""
    if connection.sock is not None:
        connection.sock.close()
        connection.sock = None
    own_thread = threading.get_ident()
    connect_now = socket.socket.connect
    refused = ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))

    def connect(self: socket.socket, address: Any) -> None:
        if threading.get_ident() == own_thread:
            raise refused
        connect_now(self, address)

    hooked: Any = socket.socket
    hooked.connect = connect
    try:
        connection.connect()
    finally:
        hooked.connect = connect_now
    raise refused


def _exchange(connection: Any, raw: bytes, method: str) -> Answer:
    """Send the request through the connection's socket and read the whole answer."""
    import http.client

    sock = connection.sock
    limit_s = sock.gettimeout()
    sock.settimeout(None)  # a time-out that nobody ordered would make the run depend on the machine's load
    sock.sendall(raw)
    response = http.client.HTTPResponse(sock, method=method)
    response.begin()
    body = response.read()
    headers = tuple(response.headers.items())
    closing = bool(response.will_close)
    response.close()
    sock.settimeout(limit_s)
    if closing:
        # Not close(), which would also forget that a request was sent.
        sock.close()
        connection.sock = _Received()
    return Answer(response.status, response.reason, headers, body)
