"""The psycopg 3 seam: every commit is announced before it is sent, sync and async, in pipelines and by COPY.

Texts are seen where the driver hands them to libpq, inside the generators that its sync and async halves share; what
is to happen after the server has answered is done in `Connection.wait` and `AsyncConnection.wait`. An injected error
comes from the server itself, which is asked to raise it in place of what was sent.

Not seen: what is sent through `connection.pgconn` directly.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from pytest_once import clock
from pytest_once.boundaries.seam import Wiring
from pytest_once.boundaries.servers import is_tracked_postgresql
from pytest_once.boundaries.transactions import InheritedConnectionError, Passing, Session, failing
from pytest_once.site import call_site

_IDLE, _IN_TRANSACTION, _FAILED = 0, 2, 3
"""libpq's transaction statuses."""

_LOST = "consuming input failed: server closed the connection unexpectedly"


@dataclass(slots=True)
class _Watch:
    """What the seam knows about one connection.

    losing: it is lost as soon as the server has answered. syncing: a pipeline holds a COMMIT that was announced, and
    must wait for it, or nobody knows whether it has happened when the next boundary comes.
    """

    session: Session
    losing: bool = False
    syncing: bool = False


class PsycopgSeam:
    """See the module."""

    name = "psycopg"
    library = "psycopg"

    def originals(self) -> tuple[object, ...]:
        """Nothing: methods are replaced in their classes, where everybody looks for them."""
        return ()

    def install(self, wiring: Wiring) -> None:
        import psycopg

        (base,) = _defining("_exec_command", psycopg.Connection)
        _watch_connections(base, wiring)
        _announce_commands(base)
        for cursor in _defining("_execute_send", psycopg.ClientCursor):
            _announce_statements(cursor)
        for cursor in _defining("_send_query_prepared", psycopg.Cursor):
            _announce_prepared(cursor)
        for pipeline in _defining("_enqueue_sync", psycopg.Pipeline):
            _announce_syncs(pipeline)
        _act_afterwards(psycopg.Connection, psycopg.OperationalError)
        _act_afterwards_async(psycopg.AsyncConnection, psycopg.OperationalError)


def _defining(method: str, cls: type) -> list[Any]:
    """The classes among a class's bases, itself included, that define a method; what is shared by sync and async."""
    return [base for base in cls.__mro__ if method in vars(base)]


def _watch_connections(base: Any, wiring: Wiring) -> None:
    original = base.__init__

    def __init__(connection: Any, *arguments: Any, **named: Any) -> None:
        original(connection, *arguments, **named)
        database = connection.info.dbname

        def outside(what: str) -> None:
            wiring.outside(what, f"postgresql:{database}", call_site())

        session = Session(None if is_tracked_postgresql(database) else outside)
        connection._once_watch = _Watch(session)

    base.__init__ = __init__


def _watch_of(connection: Any) -> _Watch:
    watch: _Watch | None = getattr(connection, "_once_watch", None)
    if watch is None:
        raise InheritedConnectionError("psycopg")
    return watch


def _before(connection: Any, text: bytes) -> Passing | None:
    """Tell the session what is about to be sent."""
    watch = _watch_of(connection)
    pipeline = connection._pipeline is not None
    status = int(connection.pgconn.transaction_status)
    # In a pipeline the driver does not know yet what the server has made of earlier statements.
    known = None if pipeline or status not in (_IDLE, _IN_TRANSACTION) else status == _IN_TRANSACTION
    if status == _FAILED:
        watch.session.written.clear()  # its COMMIT is a rollback
    passing = watch.session.before(text.decode("utf-8", "replace"), in_transaction=known, deferred=pipeline)
    if passing is not None:
        watch.losing = watch.losing or passing.loses
        watch.syncing = pipeline
    return passing


def _announce_commands(base: Any) -> None:
    """BEGIN, COMMIT and the like, whoever asks for them."""
    original = base._exec_command

    def _exec_command(connection: Any, command: Any, *arguments: Any, **named: Any) -> Generator[Any, Any, Any]:
        if not isinstance(command, (bytes, str)):
            command = command.as_bytes(connection)
        text = command.encode() if isinstance(command, str) else command
        passing = _before(connection, text)
        if passing is not None and passing.instead is not None:
            # This takes single statements only; in a pipeline the transaction is left failed instead.
            if passing.ends and connection._pipeline is None:
                yield from original(connection, b"ROLLBACK")
            command = failing(str(passing.fault)).encode()
        return (yield from original(connection, command, *arguments, **named))

    base._exec_command = _exec_command


def _announce_statements(cursor_class: Any) -> None:
    original = cursor_class._execute_send

    def _execute_send(cursor: Any, query: Any, *arguments: Any, **named: Any) -> None:
        passing = _before(cursor._conn, bytes(query.query))
        if passing is not None and (instead := passing.instead) is not None:
            if cursor._conn._pipeline is not None:
                query.query, query.params, query.types, query.formats = (
                    failing(str(passing.fault)).encode(),
                    None,
                    (),
                    (),
                )
                original(cursor, query, *arguments, **named)
            else:
                cursor._query = query
                cursor._pgconn.send_query(instead.encode())
            return
        original(cursor, query, *arguments, **named)

    cursor_class._execute_send = _execute_send


def _announce_prepared(cursor_class: Any) -> None:
    original = cursor_class._send_query_prepared

    def _send_query_prepared(cursor: Any, name: bytes, query: Any, *arguments: Any, **named: Any) -> None:
        passing = _before(cursor._conn, bytes(query.query))
        if passing is not None and (instead := passing.instead) is not None and cursor._conn._pipeline is None:
            cursor._query = query
            cursor._pgconn.send_query(instead.encode())
            return
        original(cursor, name, query, *arguments, **named)

    cursor_class._send_query_prepared = _send_query_prepared


def _announce_syncs(pipeline_class: Any) -> None:
    original = pipeline_class._enqueue_sync

    def _enqueue_sync(pipeline: Any) -> None:
        watch = _watch_of(pipeline._conn)
        passing = watch.session.synced()
        if passing is not None:
            watch.losing = watch.losing or passing.loses
            if passing.instead is not None:
                refused = partial(pipeline.pgconn.send_query_params, failing(str(passing.fault)).encode(), None)
                pipeline.command_queue.append(refused)
                pipeline.result_queue.append(None)
        original(pipeline)

    pipeline_class._enqueue_sync = _enqueue_sync


def _copy_ends(watch: _Watch, gen: Any) -> None:
    """Announce the end of a COPY's data, unless they are given up."""
    if watch.session.copying is not None and getattr(gen, "__name__", "") == "copy_end":
        if gen.gi_frame.f_locals.get("error") is not None:
            watch.session.copying = None
        elif (passing := watch.session.copied()) is not None:
            watch.losing = passing.loses


def _lose(connection: Any, watch: _Watch, error_class: Any, cause: BaseException | None) -> NoReturn:
    watch.losing = False
    connection.pgconn.finish()
    raise error_class(_LOST) from cause


def _act_afterwards(connection_class: Any, error_class: Any) -> None:
    original = connection_class.wait

    def wait(connection: Any, gen: Any, *arguments: Any, **named: Any) -> Any:
        watch = _watch_of(connection)
        _copy_ends(watch, gen)
        try:
            result = original(connection, gen, *arguments, **named)
            if watch.syncing:
                watch.syncing = False
                original(connection, connection._pipeline._sync_gen())
        except Exception as error:
            watch.syncing = False
            if watch.losing:
                _lose(connection, watch, error_class, error)
            raise
        if watch.losing:
            _lose(connection, watch, error_class, None)
        return result

    connection_class.wait = wait


def _act_afterwards_async(connection_class: Any, error_class: Any) -> None:
    original = connection_class.wait

    async def wait(connection: Any, gen: Any, *arguments: Any, **named: Any) -> Any:
        watch = _watch_of(connection)
        _copy_ends(watch, gen)
        try:
            # What is waited for is real: other coroutines' virtual sleeps must not run on meanwhile.
            with clock.held():
                result = await original(connection, gen, *arguments, **named)
                if watch.syncing:
                    watch.syncing = False
                    await original(connection, connection._pipeline._sync_gen())
        except Exception as error:
            watch.syncing = False
            if watch.losing:
                _lose(connection, watch, error_class, error)
            raise
        if watch.losing:
            _lose(connection, watch, error_class, None)
        return result

    connection_class.wait = wait


PSYCOPG = PsycopgSeam()
