"""What every HTTP seam has in common: what may happen to an attempt, what passes outside, and whose turn it is.

An attempt is one request as a transport sends it, not a logical call: redirects, and what a library sends again
by itself, are attempts of their own. A seam reads the whole request before it asks for an `Attempt`, and the whole
response before it lets the next one begin, so that concurrent calls reach a provider in the same order every time.
"""

from __future__ import annotations

import contextvars
import enum
import json
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Container, Iterable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from pytest_once.boundaries import ASKS, BEGIN, DECLINE, FAIL, ORDER_HEADER, STALE, announce, endpoint_of, habits_of
from pytest_once.boundaries.seam import Wiring
from pytest_once.faults import (
    DECLINED,
    DUPLICATE,
    ERROR_AFTER,
    ERROR_BEFORE,
    FAILED_INSIDE,
    HTTP_FAULTS,
    KINDS,
    LATE,
    LATE_FAULTS,
    LATE_TWICE,
    LOST_REQUEST,
    LOST_RESPONSE,
    REFUSED,
    RESET_RESPONSE,
    STALE_READ,
    STILL_WORKING,
)
from pytest_once.secrets import SECRET_HEADERS
from pytest_once.site import call_site

WRITE_FAULTS: tuple[str, ...] = (*HTTP_FAULTS, *LATE_FAULTS)
"""What can befall a request that changes something."""
READ_FAULTS: tuple[str, ...] = (
    *(fault for fault in HTTP_FAULTS if fault not in (DUPLICATE, ERROR_AFTER)),
    STALE_READ,
)
"""What can befall one that only asks: delivered twice or late it would change nothing."""

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_OF_ONE_SENDING = frozenset({"transfer-encoding", "content-length", "connection", "expect", "host"})
"""Headers that belong to one sending, or to the address that the fake has today, not to the request."""


class Failure(enum.Enum):
    """How an attempt fails for its caller; a seam raises what its library raises then."""

    REFUSED = "Connection refused"
    TIMED_OUT = "timed out"
    RESET = "Connection reset by peer"


_FAILURES = {
    REFUSED: Failure.REFUSED,
    LOST_REQUEST: Failure.TIMED_OUT,
    LOST_RESPONSE: Failure.TIMED_OUT,
    LATE: Failure.TIMED_OUT,
    LATE_TWICE: Failure.TIMED_OUT,
    RESET_RESPONSE: Failure.RESET,
    STILL_WORKING: Failure.TIMED_OUT,
}
_ORDERS = {STALE_READ: STALE, STILL_WORKING: BEGIN, FAILED_INSIDE: FAIL, DECLINED: DECLINE}
"""Faults that the provider performs itself when it is told to."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A response. headers: as received, in order; body: as it came, still compressed if it was."""

    status: int
    reason: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        """The first value of a header, whatever the case of its name."""
        return next((value for key, value in self.headers if key.lower() == name), None)

    def wire(self, *, bodiless: bool = False, closes: bool = False) -> bytes:
        """The response as a server sends it.

        bodiless: it answers HEAD, whose length is that of a body never sent. closes: nothing can follow it.
        """
        framing = ("connection",) if bodiless else ("connection", "content-length", "transfer-encoding")
        kept = [(name, value) for name, value in self.headers if name.lower() not in framing]
        if not bodiless and not (self.status < 200 or self.status in (204, 304)):
            kept.append(("content-length", str(len(self.body))))
        if closes:
            kept.append(("connection", "close"))
        head = "".join(f"{name}: {value}\r\n" for name, value in kept)
        start = f"HTTP/1.1 {self.status} {self.reason}".rstrip()
        return f"{start}\r\n{head}\r\n".encode("latin-1") + (b"" if bodiless else self.body)


def _error(status: int, reason: str, kind: str, message: str) -> Answer:
    body = json.dumps({"error": {"type": kind, "message": message}}).encode("ascii")
    return Answer(status, reason, (("content-type", "application/json"),), body)


_MADE_UP = {
    ERROR_BEFORE: _error(503, "Service Unavailable", "service_unavailable", "The service is overloaded; try later."),
    ERROR_AFTER: _error(500, "Internal Server Error", "api_error", "An unexpected error occurred."),
}


def headers_of(head: bytes) -> list[tuple[str, str]]:
    """The headers of a request as it is on the wire, without its body."""
    lines = head.decode("latin-1").split("\r\n")[1:]
    return [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]


def keep_secret(wiring: Wiring, headers: Iterable[tuple[str, str]]) -> None:
    """Let no report show the credentials that a request carries."""
    for name, value in headers:
        if name.lower() in SECRET_HEADERS:
            wiring.secret(value)


class Attempt:
    """One request on its way to a fake provider, and what the order makes of it.

    Making one announces it. sends: how often the seam sends it. failure: what the caller sees instead of an answer.
    made_up: what it is answered instead of what came back. order: the value of ORDER_HEADER in what is sent, "" for no
    such header; it changes when `undecided` says that the request must be sent again.
    target: as announced.
    """

    def __init__(
        self,
        wiring: Wiring,
        method: str,
        url: str,
        endpoint: tuple[str, str],
        possible: Container[str] = frozenset(KINDS),
    ) -> None:
        """endpoint: as `endpoint_of(url)` says. possible: the faults that the seam can perform."""
        self._wiring = wiring
        self._provider, path = endpoint
        self._operation = f"{method} {path}"
        self.target = f"{self._provider} {self._operation}"
        query = url.partition("#")[0].partition("?")[2]
        self._method = method
        self._path = f"{path}?{query}" if query else path
        work_faults, asks = habits_of(self._provider)
        known = READ_FAULTS if method in _SAFE_METHODS else (*WRITE_FAULTS, *work_faults)
        order = announce(
            "http",
            self.target,
            provider=self._provider,
            faults=tuple(fault for fault in known if fault in possible),
        )
        wiring.tell_time(self._provider)
        fault = order.fault
        self._words = [ASKS] if asks else []
        if fault in _ORDERS:
            self._words.append(_ORDERS[fault])
        self.sends = 1 if fault is None or fault == STALE_READ else KINDS[fault].arrivals
        self.holds = KINDS[fault].held if fault in LATE_FAULTS else 0
        self.failure = _FAILURES.get(fault or "")
        self.made_up = _MADE_UP.get(fault or "")
        self._arrival: str | None = None

    @property
    def order(self) -> str:
        """What the provider is told to do with the request."""
        return ",".join(self._words)

    def undecided(self, asked: str | None) -> bool:
        """Whether nothing was done, since it is open what happens: it is decided now, and the request sent again.

        asked: UNDECIDED_HEADER of the response, None if it has none.
        """
        if not asked:
            return False
        parameter, _, values = asked.partition("=")
        options = tuple(values.split("|"))
        chosen = announce("contract", f"{self._provider} {parameter}", options=options).option
        self._words.append(f"{parameter}={options[chosen]}")
        return True

    def hold(self, headers: Iterable[tuple[str, str]], body: bytes) -> None:
        """Keep the request, or a copy of it, on its way: for one that `holds`, after it was sent."""
        by_name: dict[str, str] = {}
        for name, value in headers:
            if name.lower() in _OF_ONE_SENDING:
                continue
            by_name[name.lower()] = f"{by_name[name.lower()]}, {value}" if name.lower() in by_name else value
        request = {"method": self._method, "path": self._path, "headers": by_name, "body": body}
        for _ in range(self.holds):
            self._wiring.hold(self._provider, self._operation, request)

    def hold_wire(self, raw: bytes) -> None:
        """The same for a request as it would be on the wire."""
        head, _, rest = raw.partition(b"\r\n\r\n")
        headers = headers_of(head)
        chunked = any(name.lower() == "transfer-encoding" for name, _ in headers)
        self.hold(headers, b"".join(_chunks(rest)) if chunked else rest)

    def arrived(self, arrival: str | None) -> None:
        """The provider answered; it calls the arrival so. The first one counts."""
        self._arrival = self._arrival or arrival

    def told(self, what: str | BaseException) -> None:
        """The caller learns this: "status 200", or an exception."""
        said = what if isinstance(what, str) else type(what).__name__
        self._wiring.told(self._provider, self._operation, self._arrival, said)


def _chunks(raw: bytes) -> Iterable[bytes]:
    """The pieces of a chunked body."""
    while raw:
        size, _, raw = raw.partition(b"\r\n")
        length = int(size.partition(b";")[0], 16)
        if length == 0:
            return
        yield raw[:length]
        raw = raw[length + 2 :]


def ordered(raw: bytes, order: str) -> bytes:
    """A request as it would be on the wire, with ORDER_HEADER if there is an order."""
    if not order:
        return raw
    start, _, rest = raw.partition(b"\r\n")
    return start + f"\r\n{ORDER_HEADER}: {order}\r\n".encode("ascii") + rest


def answered_by_fake(wiring: Wiring, method: str, url: str) -> tuple[str, str] | None:
    """(provider, path) of the fake that a request goes to; None when it goes to another server and may be sent."""
    endpoint = endpoint_of(url)
    if endpoint is None:
        if method in _SAFE_METHODS:
            parts = urlsplit(url)
            announce("http", f"{method} {parts.hostname or ''}{parts.path or '/'}")
        else:
            wiring.outside(method, url, call_site())
    return endpoint


# One call at a time.

_thread_turn = threading.RLock()
_loop_turns: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
_has_turn: contextvars.ContextVar[bool] = contextvars.ContextVar("pytest_once_http_has_turn", default=False)


def alone_in_thread() -> AbstractContextManager[object]:
    """While this is entered, no other thread's request is announced or sent."""
    return _thread_turn


class LoopTurn:
    """A coroutine's turn among those of its event loop. take() and give() may be in different calls."""

    def __init__(self) -> None:
        self._lock: Any = None

    async def take(self) -> None:
        """Wait for the turn. Whoever calls on while it has it (a mock's handler) has it already."""
        if _has_turn.get():
            return
        lock = _turn_of_loop()
        await lock.acquire()
        self._lock = lock
        _has_turn.set(True)

    def give(self) -> None:
        """Let the next one go on; doing it again does nothing."""
        if self._lock is not None:
            lock, self._lock = self._lock, None
            _has_turn.set(False)
            lock.release()


@asynccontextmanager
async def alone_in_loop() -> AsyncIterator[None]:
    """While this is entered, no other coroutine's request is announced or sent."""
    turn = LoopTurn()
    await turn.take()
    try:
        yield
    finally:
        turn.give()


def _turn_of_loop() -> Any:
    import asyncio

    loop: Any
    make: Callable[[], Any] = asyncio.Lock
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        import trio

        # A plain lock of trio's must be released by the task that took it; that of a semaphore need not.
        loop, make = trio.lowlevel.current_trio_token(), lambda: trio.Semaphore(1)
    turn = _loop_turns.get(loop)
    if turn is None:
        turn = _loop_turns[loop] = make()
    return turn
