"""The seam of a program in any language: what it asks the fake providers, relayed request by request.

The program is given the address of a relay in this process, instead of a provider's. The relay reads a whole request,
announces it as the HTTP seams do, lets it arrive as ordered, announces that it is answered, and only then answers:
so the program can be killed before its request has an effect, and after that but before it hears so. Meanwhile it is
held still. Of several requests at a time one is performed after the other, in an order that does not depend on chance.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pytest_once.boundaries import (
    ARRIVAL_HEADER,
    ORDER_HEADER,
    UNDECIDED_HEADER,
    announce,
    endpoint_of,
    endpoint_prefixes,
)
from pytest_once.boundaries.http import READ_FAULTS, WRITE_FAULTS, Answer, Attempt, Failure, keep_secret
from pytest_once.boundaries.seam import Wiring
from pytest_once.faults import LATE, LATE_TWICE, LOST_REQUEST, LOST_RESPONSE, REFUSED
from pytest_once.unseeded import without_random

if TYPE_CHECKING:
    import h11

WITHOUT_ANSWER = frozenset({LOST_REQUEST, LOST_RESPONSE, LATE, LATE_TWICE})
"""Faults that a program notices only by its own time-out."""
POSSIBLE = frozenset({*WRITE_FAULTS, *READ_FAULTS}) - WITHOUT_ANSWER - {REFUSED}
"""What can befall any program's request. A connection that is there already cannot be refused."""

GIVES_UP_WITHIN_S = 1.0
"""By how much a program may be late in giving up."""

_LARGEST_BODY_BYTES = 16 * 1024 * 1024
_SERVER_TIMEOUT_S = 10.0
_OF_ONE_CONNECTION = frozenset(
    ("connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade", "expect", "host")
)
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER, on, for no time: closing resets the connection."""


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def order(self) -> tuple[bytes, str, bytes]:
        """Where it comes among others: the same in each run."""
        return without_random(self.target.encode("ascii")), self.method, without_random(self.body)

    def raw(self) -> bytes:
        """All that it says, for searching."""
        return "\n".join((self.target, *(value for _, value in self.headers), "")).encode("latin-1") + self.body


@dataclass(slots=True, eq=False)
class _Connection:
    """A connection of the program's. authority: whom it believes to talk to. silent_since: where it gets no answer."""

    number: int
    sock: socket.socket
    protocol: h11.Connection
    authority: str
    head: h11.Request | None = None
    body: bytearray = field(default_factory=bytearray)
    waits: bool = False
    reading: bool = True
    silent_since: float | None = None


class NoTimeOut(Exception):
    """The program goes on waiting for an answer that it was said to give up on."""


class Relay:
    """Stands in for all HTTP addresses of fake providers, each on a port of its own.

    selector: where its sockets are watched; the `data` of each is what to call. still: holds the program still while
    it is entered. notice: is told everything that a request says, before it is announced. client_timeout_s: when the
    program gives up waiting; None if that is not known.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        wiring: Wiring,
        still: Callable[[], AbstractContextManager[None]],
        notice: Callable[[bytes], None],
        client_timeout_s: float | None,
    ) -> None:
        self._selector = selector
        self._wiring = wiring
        self._still = still
        self._notice = notice
        self._client_timeout_s = client_timeout_s
        self._possible = POSSIBLE if client_timeout_s is None else POSSIBLE | WITHOUT_ANSWER
        self._listeners: dict[str, socket.socket] = {}
        self._open: list[_Connection] = []
        self._waiting: list[tuple[_Connection, _Request]] = []
        self._connections = 0
        self.requests = 0
        for prefix in endpoint_prefixes():
            address = urlsplit(prefix)
            if address.scheme == "http" and address.hostname in ("127.0.0.1", "localhost"):
                self._listen(address.netloc)

    def redirected(self, text: str) -> str:
        """The text with the addresses of all fakes replaced by those of the relay."""
        for prefix in sorted(endpoint_prefixes(), key=len, reverse=True):
            authority = urlsplit(prefix).netloc
            if authority in self._listeners:
                text = text.replace(prefix, prefix.replace(authority, self._authority(authority), 1))
        return text

    @property
    def asked(self) -> bool:
        """Whether a request is complete and waits to be performed."""
        return bool(self._waiting)

    def perform(self) -> None:
        """Perform one of the requests that wait. Which came first is chance; so what they ask decides."""
        connection, request = min(self._waiting, key=lambda one: (one[1].order(), one[0].number))
        self._waiting.remove((connection, request))
        self.requests += 1
        connection.waits = False
        self._perform(connection, request)
        self._advance(connection)

    def check(self) -> None:
        """Raise NoTimeOut if the program waits longer for an answer than it was said to."""
        for connection in self._open:
            if connection.silent_since is not None and self._client_timeout_s is not None:
                waited_s = time.monotonic() - connection.silent_since
                if waited_s > self._client_timeout_s + GIVES_UP_WITHIN_S:
                    raise NoTimeOut

    def close(self) -> None:
        """Close every socket; connections that are still open see their end."""
        for connection in list(self._open):
            self._drop(connection)
        for listener in self._listeners.values():
            self._selector.unregister(listener)
            listener.close()
        self._listeners.clear()

    def _listen(self, authority: str) -> None:
        if authority not in self._listeners:
            listener = socket.create_server(("127.0.0.1", 0), backlog=128)
            self._listeners[authority] = listener
            self._selector.register(listener, selectors.EVENT_READ, lambda: self._accept(listener, authority))

    def _authority(self, of: str) -> str:
        host, port = self._listeners[of].getsockname()
        return f"{host}:{port}"

    def _accept(self, listener: socket.socket, authority: str) -> None:
        import h11

        sock, _ = listener.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(_SERVER_TIMEOUT_S)
        self._connections += 1
        connection = _Connection(self._connections, sock, h11.Connection(h11.SERVER), authority)
        self._open.append(connection)
        self._selector.register(sock, selectors.EVENT_READ, lambda: self._readable(connection))

    def _readable(self, connection: _Connection) -> None:
        try:
            piece = connection.sock.recv(65536)
        except OSError:
            piece = b""
        if connection.silent_since is not None:
            if not piece:
                self._drop(connection)  # it gave up
            return
        if connection.waits and not piece:
            # What was asked was asked, whether anybody still hears the answer or not.
            connection.reading = False
            self._selector.unregister(connection.sock)
        connection.protocol.receive_data(piece)
        self._advance(connection)

    def _advance(self, connection: _Connection) -> None:
        """Take what has come so far, up to the end of a request."""
        import h11

        while connection in self._open and connection.silent_since is None and not connection.waits:
            try:
                event = connection.protocol.next_event()
            except h11.RemoteProtocolError as error:
                self._refuse(connection, error.error_status_hint, str(error))
                return
            if event is h11.NEED_DATA:
                if connection.protocol.they_are_waiting_for_100_continue:
                    go_on = h11.InformationalResponse(status_code=100, headers=[])
                    self._send(connection, connection.protocol.send(go_on))
                return
            if event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                self._drop(connection)
            elif isinstance(event, h11.Request):
                connection.head = event
                connection.body.clear()
            elif isinstance(event, h11.Data):
                connection.body += event.data
                if len(connection.body) > _LARGEST_BODY_BYTES:
                    self._refuse(connection, 413, f"the body is larger than {_LARGEST_BODY_BYTES} bytes")
                    return
            elif isinstance(event, h11.EndOfMessage) and connection.head is not None:
                connection.waits = True
                self._waiting.append((connection, _request(connection.head, bytes(connection.body))))

    def _perform(self, connection: _Connection, request: _Request) -> None:
        url = f"http://{connection.authority}{request.target}"
        endpoint = endpoint_of(url)
        if endpoint is None:
            self._answer(connection, request.method, _forwarded(connection.authority, request))
            return
        with self._still():
            self._notice(request.raw())
            keep_secret(self._wiring, request.headers)
            attempt = Attempt(self._wiring, request.method, url, endpoint, self._possible)
            answers: list[Answer] = []
            while len(answers) < attempt.sends:
                answer = _forwarded(connection.authority, request, attempt.order)
                if not attempt.undecided(answer.header(UNDECIDED_HEADER)):
                    answers.append(answer)
            for answer in answers:
                attempt.arrived(answer.header(ARRIVAL_HEADER))
            attempt.hold(request.headers, request.body)
            # After this the program goes on and may change what it likes, so no other kind of boundary will do.
            announce("process", f"{attempt.target}: answered")
        if attempt.failure is Failure.RESET:
            attempt.told("connection reset")
            self._reset(connection)
        elif attempt.failure is not None:
            attempt.told("no answer")
            connection.silent_since = time.monotonic()
        else:
            given = attempt.made_up or answers[0]
            attempt.told(f"status {given.status}")
            self._answer(connection, request.method, given)

    # -- what the program sees -----------------------------------------------------------------------

    def _answer(self, connection: _Connection, method: str, answer: Answer) -> None:
        import h11

        bodiless = method == "HEAD" or answer.status in (204, 304)
        dropped = _OF_ONE_CONNECTION if bodiless else _OF_ONE_CONNECTION | {"content-length"}
        headers = [(name, value) for name, value in answer.headers if name.lower() not in dropped]
        if not bodiless:
            headers.append(("content-length", str(len(answer.body))))
        protocol = connection.protocol
        data = protocol.send(h11.Response(status_code=answer.status, headers=headers, reason=answer.reason)) or b""
        if not bodiless:
            data += protocol.send(h11.Data(data=answer.body)) or b""
        data += protocol.send(h11.EndOfMessage()) or b""
        if not self._send(connection, data):
            return
        if protocol.our_state is h11.DONE and protocol.their_state is h11.DONE:
            protocol.start_next_cycle()
        else:
            self._drop(connection)

    def _refuse(self, connection: _Connection, status: int, why: str) -> None:
        """Answer what is no request of HTTP, and hang up."""
        import h11

        if connection.protocol.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            content = why.encode()
            headers = [("content-type", "text/plain"), ("content-length", str(len(content))), ("connection", "close")]
            events: Sequence[h11.Event] = (
                h11.Response(status_code=status, headers=headers),
                h11.Data(data=content),
                h11.EndOfMessage(),
            )
            if not self._send(connection, b"".join(connection.protocol.send(event) or b"" for event in events)):
                return
        self._drop(connection)

    def _send(self, connection: _Connection, data: bytes | None) -> bool:
        """False if the program is not there any more to receive it."""
        try:
            connection.sock.sendall(data or b"")
        except OSError:
            self._drop(connection)
            return False
        return True

    def _reset(self, connection: _Connection) -> None:
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        if connection not in self._open:
            return
        self._open.remove(connection)
        if connection.reading:
            self._selector.unregister(connection.sock)
        connection.sock.close()


def _request(head: h11.Request, body: bytes) -> _Request:
    return _Request(
        head.method.decode("ascii").upper(), head.target.decode("ascii"), tuple(_as_text(head.headers)), body
    )


def _as_text(headers: Iterable[tuple[bytes, bytes]]) -> Iterable[tuple[str, str]]:
    return ((name.decode("ascii"), value.decode("latin-1")) for name, value in headers)


def _forwarded(authority: str, request: _Request, order: str = "") -> Answer:
    """Let the request reach the server that it is meant for; returns its answer. Raises OSError if it gives none."""
    import h11

    headers = [("host", authority)]
    headers += [(name, value) for name, value in request.headers if name.lower() not in _OF_ONE_CONNECTION]
    if request.body and not any(name.lower() == "content-length" for name, _ in headers):
        headers.append(("content-length", str(len(request.body))))
    if order:
        headers.append((ORDER_HEADER, order))
    headers.append(("connection", "close"))
    protocol = h11.Connection(h11.CLIENT)
    data = protocol.send(h11.Request(method=request.method, target=request.target, headers=headers)) or b""
    if request.body:
        data += protocol.send(h11.Data(data=request.body)) or b""
    data += protocol.send(h11.EndOfMessage()) or b""
    host, _, port = authority.rpartition(":")
    with contextlib.closing(socket.create_connection((host, int(port)), _SERVER_TIMEOUT_S)) as sock:
        sock.sendall(data)
        head: h11.Response | None = None
        body = bytearray()
        while True:
            event = protocol.next_event()
            if event is h11.NEED_DATA:
                protocol.receive_data(sock.recv(65536))
            elif isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                answered = tuple(_as_text(head.headers))
                return Answer(head.status_code, head.reason.decode("latin-1"), answered, bytes(body))
