"""A fake provider in the hands of a test: plain calls, httpx in process, the loopback server's address."""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from once_fakes.arriving import arrive
from once_fakes.contract import Contract
from once_fakes.dialect import Act, dialect_of
from once_fakes.instructions import NOTHING, Instructions, Undecided
from once_fakes.looking import find_effect, list_effects
from once_fakes.mail_server import require_aiosmtpd
from once_fakes.reply import Refusal, Reply
from once_fakes.webhooks import Event, Handle, HandleAsync, Webhooks
from once_fakes.wire import handle_http
from pytest_once.boundaries import (
    GO,
    ErrorDocument,
    announce,
    before_answers,
    connected,
    register_endpoint,
    word_error,
)
from pytest_once.calls import perform
from pytest_once.faults import (
    DECLINED,
    DUPLICATE,
    ERROR_AFTER,
    ERROR_BEFORE,
    FAILED_INSIDE,
    HTTP_FAULTS,
    KINDS,
    LATE,
    LATE_COPY,
    LATE_FAULTS,
    LATE_TWICE,
    LOST_RESPONSE,
    RESET_RESPONSE,
    STALE_READ,
    STILL_WORKING,
)
from pytest_once.ledger import Ledger

if TYPE_CHECKING:
    import httpx
    import respx

_ACT_FAULTS = HTTP_FAULTS + LATE_FAULTS
_ASK_FAULTS = (*(fault for fault in HTTP_FAULTS if fault not in (DUPLICATE, ERROR_AFTER)), STALE_READ)
_ERRORS = {
    ERROR_BEFORE: ("unavailable", 503, "The service is overloaded. Try again later."),
    ERROR_AFTER: ("failed", 500, "An unexpected error occurred."),
}
"""Error statuses as refusals: kind, HTTP status, message. The dialect words them."""
_INSTRUCTIONS = {
    STILL_WORKING: Instructions(begin=True),
    FAILED_INSIDE: Instructions(fail=True),
    DECLINED: Instructions(decline=True),
}
"""Faults that the provider performs itself when it is told to."""
_DEATH_FAULTS = (LOST_RESPONSE, RESET_RESPONSE)
"""How a caller sees that the provider died half way."""


class _Died(Exception):
    """The provider died between its two commits, after the arrival of that id; the caller sees `seen`."""

    def __init__(self, seen: OSError, arrival: int) -> None:
        super().__init__(str(seen))
        self.seen = seen
        self.arrival = arrival


class Provider:
    """A fake provider under its contract: over HTTP (`url`), for httpx in process (`router`), over SMTP (`smtp`), or by
    `call`.

    serve: starts the loopback server if need be and returns its base address; ask_server: asks it for more. base_url:
    what `router` answers for. key_field: the payload's field (or dotted path) that is the logical key.

    Raises ValueError for a name that cannot be part of an address, or one declared with another contract.
    """

    def __init__(
        self,
        name: str,
        contract: Contract,
        ledger: Ledger,
        serve: Callable[[], str],
        base_url: str | None = None,
        key_field: str | None = None,
        ask_server: Callable[[str, Any], Any] | None = None,
    ) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
            raise ValueError(
                f"a provider's name is a small letter, then small letters, digits, _ or -; {name!r} is not"
            )
        self.name = name
        self.contract = contract
        # An underscore may not stand in a host name.
        self.base_url = (base_url or f"https://{name.replace('_', '-')}.once.invalid").rstrip("/")
        self._ledger = ledger
        self._serve = serve
        self._ask_server = ask_server
        self._webhooks = Webhooks(ledger, name, contract, self._tell_time)
        ledger.record_provider(name, contract.to_json(), key_field, self.base_url)

    def __repr__(self) -> str:
        return f"Provider({self.name!r}, contract={self.contract.name!r})"

    def call(self, operation: str, payload: object, *, key: str | None = None) -> Reply:
        """Ask the provider to do something, without HTTP.

        A refusal is a Reply with a status of 400 or more. Raises ConnectionRefusedError, TimeoutError or
        ConnectionResetError where the controller ordered such a fault.
        """
        act = Act(operation, payload, key)
        order = announce("call", f"{self.name} {operation}", provider=self.name, faults=(*_ACT_FAULTS, *self._habits))
        if order.fault in LATE_FAULTS:
            for _ in range(KINDS[order.fault].held):
                self._ledger.hold(self.name, operation, {"payload": act.canonical, "key": key})
        if order.fault in (LATE, LATE_TWICE):
            self._tell([], operation, TimeoutError.__name__)
            raise TimeoutError(KINDS[order.fault].story)
        if order.fault == LATE_COPY:
            order = GO
        self._tell_time()
        instructions = _INSTRUCTIONS.get(order.fault or "", NOTHING)
        arrivals: list[int | None] = []
        broken: list[Exception] = []

        def deliver() -> Reply:
            try:
                reply = self._decided(act, instructions)
            except _Died as died:
                arrivals.append(died.arrival)
                raise died.seen from None
            except Exception as error:
                broken.append(error)
                raise
            arrivals.append(reply.arrival_id)
            return reply

        try:
            if order.fault in (ERROR_BEFORE, ERROR_AFTER):
                reply = self._failing(order.fault, deliver)
            elif order.fault in _INSTRUCTIONS:
                reply = deliver()
            else:
                reply = perform(order, deliver)
            if order.fault == STILL_WORKING:
                raise TimeoutError(KINDS[STILL_WORKING].story)
        except OSError as error:
            if broken:  # the ledger failed; that must not pass for the ordered fault
                raise broken[0] from None
            self._tell(arrivals, operation, type(error).__name__)
            raise
        if broken:
            raise broken[0]
        self._tell(arrivals, operation, str(reply.status))
        return reply

    def _decided(self, act: Act, instructions: Instructions) -> Reply:
        """Let a request arrive; what its contract leaves open is asked of the controller, where there is one."""
        asks = self.contract.asks and connected() is not None
        decided: dict[str, str] = {}
        while True:
            told = replace(instructions, asks=asks, decided=decided)
            try:
                return arrive(self._ledger, self.name, act, told, self._dying_between(act.operation))
            except Undecided as undecided:
                options = undecided.options
                chosen = announce("contract", f"{self.name} {undecided.parameter}", options=options).option
                decided[undecided.parameter] = options[chosen]

    def find(self, reference: str) -> Reply:
        """Ask for the effect of that id, client reference or key, without HTTP: its document, or a reply of status 404.

        Raises LookupError if the contract has no such look-up, and what `call` raises where a fault is ordered.
        """
        return self._look_up("find", lambda stale: find_effect(self._ledger, self.name, reference, stale))

    def list(self) -> Reply:
        """Ask for all effects, without HTTP: their documents are `body["data"]`, the oldest first.

        Raises LookupError if the contract has no look-up, and what `call` raises where a fault is ordered.
        """
        return self._look_up("list", lambda stale: list_effects(self._ledger, self.name, stale))

    def on_event(self, handle: Handle) -> None:
        """Let `handle` take webhooks: one may then come before the response to the call that caused it.

        handle: a plain function. It returns None or an HTTP status; see `deliver_webhooks`, which delivers the others.
        Raises LookupError if the contract has no webhooks, TypeError for a coroutine function.
        """
        self._promised_webhooks()
        if inspect.iscoroutinefunction(handle):
            raise TypeError(
                "on_event takes a plain function, since it is called while a request is under way; an async handler is"
                " for deliver_webhooks_async()"
            )
        self._webhooks.handle = handle
        before_answers(self.name, self._webhooks.before_response)

    def deliver_webhooks(self, handle: Handle | None = None) -> tuple[Event, ...]:
        """Deliver the webhooks that wait, as the provider would: at least once, in any order.

        handle: what takes an event; without it, what `on_event` was given. None or an HTTP status below 300
        acknowledges an event. Another status or an exception (which is printed) does not; then it is delivered once
        more now, and again at the next call. Returns the events that still wait: they are delivered by a later call, or
        in a later life. Raises LookupError if the contract has no webhooks, or there is no handler.
        """
        self._promised_webhooks()
        handle = handle or self._webhooks.handle
        if handle is None:
            raise LookupError(f"{self.name!r} does not know who takes its webhooks: deliver_webhooks(handle)")
        return self._webhooks.deliver(handle)

    async def deliver_webhooks_async(self, handle: HandleAsync) -> tuple[Event, ...]:
        """`deliver_webhooks` for a handler that is to be awaited."""
        self._promised_webhooks()
        return await self._webhooks.deliver_async(handle)

    def _promised_webhooks(self) -> None:
        if self.contract.webhooks == "none":
            raise LookupError(
                f"{self.name!r} sends no webhooks: its contract does not promise them. If the real provider does,"
                " declare the fake with a contract that says so: Contract(name=..., webhooks='at_least_once')"
            )

    def _look_up(self, what: str, look: Callable[[bool], Reply]) -> Reply:
        order = announce("lookup", f"{self.name} {what}", provider=self.name, faults=_ASK_FAULTS)
        self._tell_time()
        stale = order.fault == STALE_READ
        reply = look(stale)  # before any fault: a contract without look-up is an error of the test, whatever fails
        try:
            if order.fault == ERROR_BEFORE:
                reply = self._failing(ERROR_BEFORE, lambda: reply)
            else:
                reply = perform(GO if stale else order, lambda: reply)
        except OSError as error:
            self._tell([], what, type(error).__name__)
            raise
        self._tell([], what, str(reply.status))
        return reply

    def _dying_between(self, operation: str) -> Callable[[str, int], None]:
        def between(step: str, arrival: int) -> None:
            target = f"{self.name} {operation}: {step}"
            order = announce("provider", target, provider=self.name, faults=_DEATH_FAULTS)
            if order.fault is not None:
                kind = ConnectionResetError if order.fault == RESET_RESPONSE else TimeoutError
                raise _Died(kind(KINDS[order.fault].story), arrival)

        return between

    def _tell_time(self) -> None:
        # Where nobody explores, time is the machine's, which the ledger takes by itself.
        if self.contract.keeps_time and connected() is not None:
            self._ledger.set_now(time.time())

    def _failing(self, fault: str, deliver: Callable[[], Reply]) -> Reply:
        """An error status: 503 from in front of the provider, or 500 after it has acted."""
        if fault == ERROR_AFTER:
            deliver()
        return self._turned_away(*_ERRORS[fault])

    def _turned_away(self, kind: str, status: int, message: str) -> Reply:
        return dialect_of(self.contract).refuse(self.contract, Refusal(kind, status, message))

    def _tell(self, arrivals: Sequence[int | None], operation: str, what: str) -> None:
        self._webhooks.before_response(arrivals[0] if arrivals else None)
        self._ledger.record_told(arrivals[0] if arrivals else None, self.name, operation, what)

    @property
    def _habits(self) -> tuple[str, ...]:
        """The faults of its work that the contract makes a difference of."""
        contract = self.contract
        stored = contract.stored_outcomes
        faults: tuple[str, ...] = (STILL_WORKING,) if contract.on_concurrent is not None else ()
        faults += (FAILED_INSIDE,) if stored == "all" else ()
        return (*faults, DECLINED) if stored != "success" else faults

    def _register(self, address: str) -> None:
        for fault, (kind, status, message) in _ERRORS.items():
            reply = self._turned_away(kind, status, message)
            word_error(self.name, fault, ErrorDocument(reply.status, tuple(reply.headers.items()), reply.content))
        register_endpoint(address, self.name, faults=self._habits, asks=self.contract.asks)

    @cached_property
    def url(self) -> str:
        """The provider's address on the loopback server, for any client and language.

        Raises ValueError if the contract is not atomic: the server's process cannot be stopped between two commits.
        """
        self._must_be_atomic()
        address = f"{self._serve().rstrip('/')}/{self.name}"
        self._register(address)
        return address

    @cached_property
    def https_url(self) -> str:
        """Like `url`, over TLS, for clients that trust `ca_file`.

        Raises ImportError without trustme (extra "https"), ValueError as `url` does.
        """
        self._must_be_atomic()
        address = f"{str(self._ask('https')).rstrip('/')}/{self.name}"
        self._register(address)
        return address

    @cached_property
    def ca_file(self) -> str:
        """The certificate (PEM file) of the authority that clients of `https_url` must trust."""
        return str(self._ask("ca_file"))

    def redirect(self, host: str) -> dict[str, str]:
        """Answer for a real host ("api.example.com") to clients that take their proxy and authorities from these
        environment variables, which are returned: for `monkeypatch.setenv`, or a program's environment.

        For clients that cannot be given a base URL. Raises ImportError without trustme (extra "https"), ValueError if
        another provider answers for the host, or as `url` does.
        """
        self._must_be_atomic()
        environment: dict[str, str] = self._ask("redirect", (host, self.name))
        # Its own address too: the server is the proxy to which clients connect.
        for address in (f"https://{host}", f"http://{host}", self.url):
            self._register(address)
        return environment

    def _must_be_atomic(self) -> None:
        if self.contract.atomicity != "atomic":
            raise ValueError(
                f"{self.name!r} has no url, because its contract says atomicity={self.contract.atomicity!r} and the"
                " loopback server could not be stopped between effect and receipt, so its promise would not be tested:"
                " use call() or, with httpx, router"
            )

    def _ask(self, what: str, argument: Any = None) -> Any:
        if self._ask_server is None:
            raise ValueError(f"{self.name!r} has no server that could be asked for {what!r}: get it from once.provider")
        return self._ask_server(what, argument)

    @cached_property
    def smtp(self) -> tuple[str, int]:
        """Host and port of a real mail server; each mail that it accepts is an effect, operation "SEND".

        key_field may name a header. Raises ValueError if the contract claims that repeated mails are recognised,
        ImportError without aiosmtpd.
        """
        if self.contract.dedup != "none":
            raise ValueError(
                f"{self.name!r} has no smtp, because its contract says dedup={self.contract.dedup!r} and SMTP has"
                ' nothing by which a server recognises a repeated mail (RFC 1047): use contract="smtp"'
            )
        require_aiosmtpd()
        host, port = self._ask("mail", self.name)
        self._register(f"smtp://{host}:{port}")
        return host, port

    @cached_property
    def router(self) -> respx.MockRouter:
        """A respx router answering httpx clients, sync and async, below `base_url`: `with provider.router:`.

        Raises ImportError if respx is not installed.
        """
        try:
            import respx
        except ImportError as error:
            raise ImportError(
                "Provider.router needs respx, which is not installed: install it (pip install respx),"
                " or point the client at Provider.url, which needs nothing in this process"
            ) from error
        router = respx.MockRouter(assert_all_called=False)
        # Not respx's base_url: its prefix match takes /v10 for /v1, and its patterns know a few methods only.
        router.route(url__regex=f"^{re.escape(self.base_url)}(?=[/?#]|$)").mock(side_effect=self._answer)
        self._register(self.base_url)
        return router

    def _answer(self, request: httpx.Request) -> httpx.Response:
        import httpx

        base = httpx.URL(self.base_url).raw_path.decode("ascii").rstrip("/")
        path = request.url.raw_path.decode("ascii").removeprefix(base)
        between = self._dying_between(f"{request.method} {path.partition('?')[0] or '/'}")
        self._tell_time()
        try:
            reply = handle_http(
                self._ledger, self.name, self.contract, request.method, path, request.headers, request.content, between
            )
        except _Died as died:
            kind = httpx.ReadError if isinstance(died.seen, ConnectionResetError) else httpx.ReadTimeout
            raise kind(str(died.seen), request=request) from None
        return httpx.Response(reply.status, headers=dict(reply.headers), content=reply.content)
