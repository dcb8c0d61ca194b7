"""Requests on their way, and accepted work: what may become of each, while no process of the test runs."""

from __future__ import annotations

import json
import sqlite3

from once_fakes.arriving import arrive_within, contract_of
from once_fakes.dialect import Act, Ask, Tend, dialect_of
from once_fakes.instructions import Instructions, Undecided
from once_fakes.reply import Reply
from once_fakes.settling import complete
from once_fakes.wire import understand
from pytest_once.faults import ARRIVES
from pytest_once.ledger import BETWEEN_LIVES, Held, Ledger
from pytest_once.ledger.within import held_number, now_within, take_held

DROPPED = "a request that was still on its way has waited for too long, and is dropped"

_OUTCOMES = ("done", "failed")
"""What may become of accepted work, by the number of the way."""

Decided = tuple[tuple[str, str], ...]


def deliver(ledger: Ledger, number: int, way: int = 0) -> Reply | None:
    """Let the number-th oldest request on its way (1 is the oldest) arrive now. Returns the answer, heard by nobody.

    None: accepted work ended, or the request has waited for too long, or it only asked. way: which of the `ways` it
    goes. The arrival belongs to no incarnation (BETWEEN_LIVES), and its time is what `Ledger.set_now` said last. Raises
    LookupError if not so many requests are on their way, or it has no such way.
    """
    with ledger.transaction() as connection:
        possible = _decided(connection, number)
        if not 0 <= way < len(possible):
            raise LookupError(f"request number {number} has no way {way}; it has {len(possible)}, from 0")
        return _go(connection, number, possible[way])


def ways(connection: sqlite3.Connection, number: int) -> tuple[str, ...]:
    """What may become of the number-th request on its way, in words; the usual one first.

    There are several if its contract leaves something open. Changes nothing. Raises LookupError if not so many are on
    their way.
    """
    held = held_number(connection, number)
    return tuple(_in_words(connection, held, dict(decided)) for decided in _decided(connection, number))


def _in_words(connection: sqlite3.Connection, held: Held, decided: dict[str, str]) -> str:
    if held.completes is not None:
        begun = contract_of(connection, held.provider)[0].acceptance == "sync"
        work = "the provider's work on an earlier request" if begun else "the accepted work"
        return f"{work} {'fails' if decided.get('outcome') == 'failed' else 'is done'}"
    if _too_late(connection, held):
        return DROPPED
    return ARRIVES + "".join(f"; decided for it: {parameter} is {value}" for parameter, value in decided.items())


def _decided(connection: sqlite3.Connection, number: int) -> list[Decided]:
    """Each way as what is decided on it; the usual one comes first."""
    open_ways: list[Decided] = [()]
    found: list[Decided] = []
    while open_ways:
        decided = open_ways.pop(0)
        connection.execute("SAVEPOINT way")
        try:
            _go(connection, number, decided)
            found.append(decided)
        except Undecided as undecided:
            open_ways[:0] = [(*decided, (undecided.parameter, option)) for option in undecided.options]
        finally:
            connection.execute("ROLLBACK TO way")
            connection.execute("RELEASE way")
    return found


def _go(connection: sqlite3.Connection, number: int, decided: Decided) -> Reply | None:
    held = held_number(connection, number)
    if held.completes is not None:
        outcome = dict(decided).get("outcome")
        if outcome is None:
            raise Undecided("outcome", _OUTCOMES)
        complete(connection, contract_of(connection, held.provider)[0], held.completes, outcome)
        return None
    take_held(connection, number)
    if _too_late(connection, held):
        return None
    act = _understood(connection, held)
    if isinstance(act, Tend):
        contract = contract_of(connection, held.provider)[0]
        return dialect_of(contract).tend(contract, connection, held.provider, act)
    if isinstance(act, Reply):
        return act
    if isinstance(act, Ask):
        return None  # it only asked (GraphQL asks by POST), and nobody hears the answer
    return arrive_within(connection, held.provider, act, Instructions(asks=True, decided=dict(decided)), BETWEEN_LIVES)


def _too_late(connection: sqlite3.Connection, held: Held) -> bool:
    return held.expires_s is not None and held.expires_s <= now_within(connection)


def _understood(connection: sqlite3.Connection, held: Held) -> Act | Ask | Tend | Reply:
    request = held.request
    if "payload" in request:
        return Act(held.operation, json.loads(request["payload"]), request["key"])
    contract = contract_of(connection, held.provider)[0]
    return understand(contract, request["method"], request["path"], request["headers"], request["body"])
