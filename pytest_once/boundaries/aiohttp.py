"""The aiohttp seam: every attempt of a client session, what it sends again by itself included.

aiohttp connects, writes the request and parses the answer as always; only the bytes in between are taken off its
connection and carried to the fake over another one. So whatever was ordered, aiohttp meets it as it would in
production: it cannot connect, or bytes of a response come, or none do.
"""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable
from typing import Any, NoReturn

from pytest_once import clock
from pytest_once.boundaries import ARRIVAL_HEADER, UNDECIDED_HEADER
from pytest_once.boundaries.http import Answer, Attempt, Failure, LoopTurn, answered_by_fake, keep_secret, ordered
from pytest_once.boundaries.seam import Wiring

_CARRIED = "_pytest_once_carried"
"""Attribute of a request, then of its response: what is done with it, if it goes to a fake."""


class AiohttpSeam:
    """Hooks the places where a session connects, writes a request, and begins to read the answer."""

    name = "aiohttp"
    library = "aiohttp"

    def originals(self) -> tuple[object, ...]:
        """None: methods are hooked, not names."""
        return ()

    def install(self, wiring: Wiring) -> None:
        """Announce the requests of aiohttp's clients from now on; for a forked child only."""
        import aiohttp
        from aiohttp import client_reqrep

        connector: Any = aiohttp.BaseConnector
        connector.connect = _connect(connector.connect, wiring)
        request: Any = client_reqrep.ClientRequest
        # Later versions call it _send.
        send = "_send" if hasattr(request, "_send") else "send"
        setattr(request, send, _send(getattr(request, send)))
        response: Any = client_reqrep.ClientResponse
        response.start = _start(response.start)


AIOHTTP = AiohttpSeam()


class _Carried:
    """A request to a fake between connecting and the answer. It has the turn in its event loop."""

    def __init__(self, turn: LoopTurn, attempt: Attempt, request: Any) -> None:
        self.turn = turn
        self.attempt = attempt
        self.request = request
        self.raw = b""
        self.place: tuple[str, int] = ("", 0)
        self.tls: Any = None
        self.reading = False

    def let_go(self) -> None:
        """The connection is given up; unless the answer is being read, so is the turn."""
        if not self.reading:
            self.turn.give()


def _connect(connect_now: Callable[..., Any], wiring: Wiring) -> Callable[..., Any]:
    @functools.wraps(connect_now)
    async def connect(self: Any, req: Any, *positional: Any, **named: Any) -> Any:
        endpoint = answered_by_fake(wiring, req.method, str(req.url))
        if endpoint is None:
            return await connect_now(self, req, *positional, **named)
        turn = LoopTurn()
        await turn.take()
        try:
            keep_secret(wiring, req.headers.items())
            attempt = Attempt(wiring, req.method, str(req.url), endpoint)
            try:
                if attempt.failure is Failure.REFUSED:
                    _refuse(req)
                with clock.held():
                    connection = await connect_now(self, req, *positional, **named)
            except BaseException as error:
                attempt.told(error)
                raise
            carried = _Carried(turn, attempt, req)
            setattr(req, _CARRIED, carried)
            connection.add_callback(carried.let_go)
            return connection
        except BaseException:
            turn.give()
            raise

    return connect


def _refuse(request: Any) -> NoReturn:
    from aiohttp import ClientConnectorError

    cause = ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
    raise ClientConnectorError(request.connection_key, cause) from cause


def _send(send_now: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(send_now)
    async def send(self: Any, conn: Any) -> Any:
        carried: _Carried | None = self.__dict__.pop(_CARRIED, None)
        if carried is None:
            return await send_now(self, conn)
        protocol = conn.protocol
        transport = protocol.transport
        writing = _Writing(transport)
        protocol.transport = writing
        try:
            response = await send_now(self, conn)
            if self._continue is not None and not self._continue.done():
                self._continue.set_result(True)  # nobody will say "100 Continue"
            writer = self._writer
            if writer is not None:
                await writer
        finally:
            if protocol.transport is writing:
                protocol.transport = transport
        carried.raw = b"".join(writing.pieces)
        carried.place = transport.get_extra_info("peername")[:2]
        carried.tls = transport.get_extra_info("sslcontext")
        setattr(response, _CARRIED, carried)
        return response

    return send


class _Writing:
    """Stands in for a transport and keeps what is written."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.pieces: list[bytes] = []

    def write(self, data: Any) -> None:
        self.pieces.append(bytes(data))

    def writelines(self, pieces: Any) -> None:
        self.pieces += map(bytes, pieces)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def _start(start_now: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(start_now)
    async def start(self: Any, connection: Any) -> Any:
        carried: _Carried | None = self.__dict__.pop(_CARRIED, None)
        if carried is None:
            return await start_now(self, connection)
        carried.reading = True
        try:
            answer = await _answer(carried, connection)
            # An eager parser may complete the response, and so release the connection, in here.
            connection.protocol.data_received(answer.wire(bodiless=carried.request.method == "HEAD"))
            started = await start_now(self, connection)
        except BaseException as error:
            carried.attempt.told(error)
            raise
        finally:
            carried.turn.give()
        carried.attempt.told(f"status {answer.status}")
        return started

    return start


async def _answer(carried: _Carried, connection: Any) -> Answer:
    """Carry the request as ordered. Raises what aiohttp raises where no answer comes."""
    from aiohttp import ClientOSError, ServerTimeoutError

    attempt, raw = carried.attempt, carried.raw
    answer: Answer | None = None
    try:
        with clock.held():
            sent = 0
            while sent < attempt.sends:
                received = await _exchange(carried, ordered(raw, attempt.order))
                if not attempt.undecided(received.header(UNDECIDED_HEADER)):
                    sent += 1
                    attempt.arrived(received.header(ARRIVAL_HEADER))
                    answer = answer or received
    except OSError as error:
        raise ClientOSError(*error.args) from error
    if attempt.holds:
        attempt.hold_wire(raw)
    if attempt.failure is Failure.RESET:
        raise ClientOSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
    if attempt.failure is Failure.TIMED_OUT:
        # A time-out for the socket has a class of its own; without one, that for the whole request ends it.
        if getattr(connection.protocol, "_read_timeout", None):
            raise ServerTimeoutError("Timeout on reading data from socket")
        raise TimeoutError
    answer = attempt.made_up or answer
    assert answer is not None
    return answer


async def _exchange(carried: _Carried, raw: bytes) -> Answer:
    """Send the request over a connection of its own and read the whole answer."""
    import asyncio
    import http.client
    import io

    host, port = carried.place
    server_name = carried.request.url.host if carried.tls else None
    reader, writer = await asyncio.open_connection(host, port, ssl=carried.tls, server_hostname=server_name)
    try:
        start, _, rest = raw.partition(b"\r\n")
        writer.write(start + b"\r\nConnection: close\r\n" + rest)
        received = await reader.read()
    finally:
        writer.close()

    class Socket:
        def makefile(self, *_: object) -> io.BytesIO:
            return io.BytesIO(received)

    response: Any = http.client.HTTPResponse(Socket(), method=carried.request.method)  # type: ignore[arg-type]
    try:
        response.begin()
        body = response.read()
    except http.client.HTTPException as error:
        raise ConnectionResetError(errno.ECONNRESET, f"the fake's answer broke off: {error!r}") from error
    return Answer(response.status, response.reason, tuple(response.headers.items()), body)
