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
from pytest_once.ledger import BETWEEN_LIVES, Held, Ledger
from pytest_once.ledger.within import now_within, take_held

_OUTCOMES = ("done", "failed")
"""What may become of accepted work."""

Decided = tuple[tuple[str, str], ...]


def deliver(ledger: Ledger, number: int, way: int = 0) -> Reply | None:
    """Let the number-th oldest request on its way (1 is the oldest) arrive now. Returns the answer, heard by nobody.

    None: accepted work ended, or the request has waited for too long, or it only asked. way: which of the `ways` it
    goes. The arrival belongs to no incarnation (BETWEEN_LIVES), and its time is what `Ledger.set_now` said last. Raises
    LookupError if not so many requests are on their way, or it has no such way.
    """
    with ledger.transaction() as connection:
        possible = _ways(connection, number)
        if not 0 <= way < len(possible):
            raise LookupError(f"request number {number} has no way {way}; it has {len(possible)}, from 0")
        return _go(connection, number, possible[way])


def ways(connection: sqlite3.Connection, number: int) -> int:
    """In how many ways the number-th request on its way may end: one, unless its contract leaves something open.

    Changes nothing. Raises LookupError if not so many are on their way.
    """
    return len(_ways(connection, number))


def _ways(connection: sqlite3.Connection, number: int) -> list[Decided]:
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
    held = take_held(connection, number)
    contract = contract_of(connection, held.provider)[0]
    if "completes" in held.request:
        outcome = dict(decided).get("outcome")
        if outcome is None:
            raise Undecided("outcome", _OUTCOMES)
        complete(connection, contract, held.request["completes"], outcome)
        return None
    if held.expires_s is not None and held.expires_s <= now_within(connection):
        return None  # nobody delivers a request that has waited for too long
    act = _understood(connection, held)
    if isinstance(act, Tend):
        return dialect_of(contract).tend(contract, connection, held.provider, act)
    if isinstance(act, Reply):
        return act
    if isinstance(act, Ask):
        return None  # it only asked (GraphQL asks by POST), and nobody hears the answer
    return arrive_within(connection, held.provider, act, Instructions(asks=True, decided=dict(decided)), BETWEEN_LIVES)


def _understood(connection: sqlite3.Connection, held: Held) -> Act | Ask | Tend | Reply:
    request = held.request
    if "payload" in request:
        return Act(held.operation, json.loads(request["payload"]), request["key"])
    contract = contract_of(connection, held.provider)[0]
    return understand(contract, request["method"], request["path"], request["headers"], request["body"])
