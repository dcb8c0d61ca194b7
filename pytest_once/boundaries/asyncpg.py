"""The asyncpg seam: every commit is announced before it is sent.

Hooked where the driver's Connection, prepared statements and cursors all arrive: at its protocol object. An injected
error comes from the server itself, which is asked to raise it in place of what was sent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from pytest_once import clock
from pytest_once.boundaries.seam import Wiring
from pytest_once.boundaries.servers import is_tracked_postgresql
from pytest_once.boundaries.transactions import InheritedConnectionError, Passing, Session
from pytest_once.site import call_site

_LOST = "connection was closed in the middle of operation"


class AsyncpgSeam:
    """See the module."""

    name = "asyncpg"
    library = "asyncpg"

    def originals(self) -> tuple[object, ...]:
        """Nothing: methods are replaced in their classes, where everybody looks for them."""
        return ()

    def install(self, wiring: Wiring) -> None:
        import asyncpg  # type: ignore[import-untyped]
        from asyncpg.protocol import Protocol  # type: ignore[import-untyped]

        lost = asyncpg.exceptions.ConnectionDoesNotExistError
        _watch_connections(asyncpg.connection.Connection, wiring)
        query = Protocol.query
        for name, argument in _SENDING.items():
            _announce(Protocol, name, argument, query, lost)
        for name in ("prepare", "bind", "copy_out"):
            _hold_clock(Protocol, name)


_SENDING = {
    "query": "query",
    "bind_execute": "state",
    "bind_execute_many": "state",
    "execute": "state",
    "copy_in": "copy_stmt",
}
"""Methods of the protocol that send something to be executed, and their first argument, which says what."""


def _watch_connections(connection_class: Any, wiring: Wiring) -> None:
    original = connection_class.__init__

    def __init__(connection: Any, protocol: Any, *arguments: Any, **named: Any) -> None:
        original(connection, protocol, *arguments, **named)
        database = str(connection._params.database)

        def outside(what: str) -> None:
            wiring.outside(what, f"postgresql:{database}", call_site())

        protocol._once_session = Session(None if is_tracked_postgresql(database) else outside)

    connection_class.__init__ = __init__


def _before(protocol: Any, text: str) -> Passing | None:
    session: Session | None = getattr(protocol, "_once_session", None)
    if session is None:
        raise InheritedConnectionError("asyncpg")
    passing = session.before(text, in_transaction=protocol.is_in_transaction())
    # The driver sends a COPY's data by itself, so nothing of the test's happens before its end.
    return passing or session.copied()


def _announce(protocol_class: Any, name: str, argument: str, query: Callable[..., Awaitable[Any]], lost: Any) -> None:
    original = getattr(protocol_class, name)

    async def announced(protocol: Any, *arguments: Any, **named: Any) -> Any:
        what = arguments[0] if arguments else named[argument]
        passing = _before(protocol, str(getattr(what, "query", what)))
        # What is waited for is real: other coroutines' virtual sleeps must not run on meanwhile.
        with clock.held():
            if passing is None or passing.fault is None:
                return await original(protocol, *arguments, **named)
            if (instead := passing.instead) is not None:
                return await query(protocol, instead, named.get("timeout"))
            cause: BaseException | None = None
            try:
                await original(protocol, *arguments, **named)
            except Exception as error:
                cause = error
            protocol.abort()
            raise lost(_LOST) from cause

    setattr(protocol_class, name, announced)


def _hold_clock(protocol_class: Any, name: str) -> None:
    original = getattr(protocol_class, name)

    async def held(protocol: Any, *arguments: Any, **named: Any) -> Any:
        with clock.held():
            return await original(protocol, *arguments, **named)

    setattr(protocol_class, name, held)


ASYNCPG = AsyncpgSeam()
