"""What the loopback server does with one request: which provider it is for, what that answers, who dies of it.

It uses SQLite right in the event loop: one request after the other, in order.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

from once_fakes.contract import Contract
from once_fakes.entrance import Connection, Connections
from once_fakes.kept import KeptLedger
from once_fakes.killing import CannotKill, kill_caller
from once_fakes.redirect import LOOPBACK, Place, Redirects, bare_host
from once_fakes.reply import Reply, turn_away
from once_fakes.wire import MAX_BODY_BYTES, body_too_large, handle_http

_ACTED = ("executed", "accepted")

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """One whole request to a provider. path: below the provider's address, percent-encoded, with its query."""

    connection: Connection
    token: str
    ledger: KeptLedger
    provider: str
    contract: Contract
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True)
class _Execution:
    """The caller of a request dies when it has had so many more effects."""

    effects_left: int


class Application:
    """The ASGI application: any number of ledgers, each under its own token."""

    def __init__(self) -> None:
        self.redirects = Redirects()
        self.connections: Connections = {}
        self._ledgers: dict[str, KeptLedger] = {}
        self._executions: dict[str, _Execution] = {}
        self._killed: dict[str, list[int]] = {}

    def serve(self, token: str, ledger: str | PathLike[str]) -> None:
        """Answer for the ledger's providers under the token, and no longer for those of another ledger."""
        served = self._ledgers.get(token)
        new = KeptLedger(ledger)
        if served is None or served.path != new.path:
            self.forget(token)
            self._ledgers[token] = new

    def forget(self, token: str) -> None:
        """Answer 404 under the token."""
        ledger = self._ledgers.pop(token, None)
        if ledger is not None:
            ledger.close()
        self.redirects.forget(token)
        self._executions.pop(token, None)
        self._killed.pop(token, None)

    def kill_caller(self, token: str, effects: int) -> None:
        """Kill the process whose request causes the effects-th effect from now on (1: the next), before the answer."""
        if token not in self._ledgers:
            raise ValueError(f"nothing is served under {token!r}")
        if effects < 1:
            raise ValueError(f"the effect after which the caller is killed is counted from 1, not {effects}")
        self._executions[token] = _Execution(effects)

    def killed(self, token: str) -> list[int]:
        """The processes killed under the token, in order."""
        return list(self._killed.get(token, ()))

    def close(self) -> None:
        """Close all ledgers' files."""
        for token in list(self._ledgers):
            self.forget(token)

    async def __call__(
        self, scope: Scope, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        try:
            body = await _read_body(receive)
        except EOFError:
            return
        connection = self.connections[tuple(scope["client"])]
        reply = await self._reply(connection, scope, body)
        if reply is None:
            connection.abort()
            # Until the server has noticed, returning without an answer would be taken for an error.
            await receive()
            return
        content = reply.content
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in reply.headers.items()]
        headers.append((b"content-length", str(len(content)).encode("ascii")))
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def _reply(self, connection: Connection, scope: Scope, body: bytes | None) -> Reply | None:
        """body: None for one that is too large."""
        try:
            asked = self._asked(connection, scope, body or b"")
            if isinstance(asked, Reply):
                return asked
            return body_too_large(asked.contract) if body is None else await self.answer(asked)
        except Exception:
            traceback.print_exc(file=sys.stderr)
            sys.stderr.flush()
            return turn_away(500, "internal_error", "the fake provider failed; its standard error says how")

    async def answer(self, asked: Asked) -> Reply | None:
        """The provider's answer; None if nobody is left to hear it, so the connection breaks."""
        reply = handle_http(
            asked.ledger, asked.provider, asked.contract, asked.method, asked.path, asked.headers, asked.body
        )
        if self._is_deadly(asked.token, reply):
            return self._kill(asked)
        return reply

    def _is_deadly(self, token: str, reply: Reply) -> bool:
        execution = self._executions.get(token)
        if execution is None or reply.outcome not in _ACTED:
            return False
        execution.effects_left -= 1
        if execution.effects_left:
            return False
        del self._executions[token]
        return True

    def _kill(self, asked: Asked) -> Reply | None:
        try:
            killed = kill_caller(asked.connection.client, asked.connection.server)
        except CannotKill as error:
            print(f"the caller was to be killed after an effect, but {error}", file=sys.stderr, flush=True)
            return turn_away(500, "caller_not_killed", f"the effect happened and the caller lives: {error}")
        self._killed.setdefault(asked.token, []).extend(killed)
        return None

    def _asked(self, connection: Connection, scope: Scope, body: bytes) -> Asked | Reply:
        """Find the provider: by host name where that is redirected, else by the path's first two parts."""
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        path = scope["raw_path"].decode("ascii")
        host = headers.get("host", "")
        if not path.startswith("/"):  # we are the client's proxy
            host, slash, rest = path.partition("://")[2].partition("/")
            path = slash + rest
            if bare_host(host) in LOOPBACK and not host.endswith(f":{connection.server[1]}"):
                return turn_away(403, "host_not_redirected", self.redirects.refusal(host))
        place = self.redirects.place(host)
        if place is None:
            _, token, name, *rest_of_path = [*path.split("/", 3), "", ""][:4]
            place, path = Place(token, name), "/" + "".join(rest_of_path)
        ledger = self._ledgers.get(place.token)
        if ledger is None and bare_host(host) not in LOOPBACK:
            return turn_away(403, "host_not_redirected", self.redirects.refusal(host))
        declared = ledger.provider(place.provider) if ledger is not None else None
        if ledger is None or declared is None:
            return turn_away(404, "no_such_provider", "no fake provider answers at this address")
        query = scope["query_string"].decode("ascii")
        return Asked(
            connection,
            place.token,
            ledger,
            place.provider,
            Contract.from_json(declared.contract),
            scope["method"],
            (path or "/") + (f"?{query}" if query else ""),
            headers,
            body,
        )


async def _read_body(receive: Callable[[], Awaitable[Message]]) -> bytes | None:
    """The request's body, or None if it is too large: read to its end even so, or the client sees a reset.

    Raises EOFError if the client left before its end: half a request never arrived.
    """
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise EOFError
        piece: bytes = message.get("body", b"")
        size += len(piece)
        if size <= MAX_BODY_BYTES:
            pieces.append(piece)
        if not message.get("more_body", False):
            return b"".join(pieces) if size <= MAX_BODY_BYTES else None
