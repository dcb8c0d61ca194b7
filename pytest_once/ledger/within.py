"""Reading and writing a ledger inside a transaction: what a contract's decision is made of."""

from __future__ import annotations

import base64
import json
import sqlite3
import time
from typing import Any

from pytest_once.ledger.records import Declared, Effect, Held, Receipt
from pytest_once.ledger.schema import EFFECT, HELD, INCARNATION, RECEIPT

NOW = "SELECT value FROM meta WHERE name = 'now_s'"


def find_provider(connection: sqlite3.Connection, name: str) -> Declared | None:
    """The declared provider of that name, or None."""
    row = connection.execute(
        "SELECT name, contract, key_field, endpoint FROM providers WHERE name = ?", (name,)
    ).fetchone()
    return None if row is None else Declared(*row)


def insert_arrival(
    connection: sqlite3.Connection,
    provider: str,
    operation: str,
    *,
    key: str | None,
    payload: str,
    outcome: str,
    status: int,
    incarnation: int | None = None,
    scope: str = "",
    relied: str = "",
) -> int:
    """Add an arrival inside a transaction; returns its id. incarnation: None is the current one."""
    cursor = connection.execute(
        "INSERT INTO arrivals(provider, operation, key, payload, incarnation, outcome, status, scope, relied)"
        f" VALUES (?, ?, ?, ?, coalesce(?, {INCARNATION}), ?, ?, ?, ?)",
        (provider, operation, key, payload, incarnation, outcome, status, scope, relied),
    )
    return _new_id(cursor)


def insert_effect(
    connection: sqlite3.Connection,
    provider: str,
    operation: str,
    logical_key: str | None,
    payload: str,
    arrival: int,
    reference: str | None = None,
    visible_s: float | None = None,
    state: str = "done",
    due_s: float | None = None,
) -> Effect:
    """Add an effect inside a transaction."""
    counted = connection.execute(
        "UPDATE providers SET effects = effects + 1 WHERE name = ? RETURNING effects", (provider,)
    ).fetchall()
    number = counted[0][0] if counted else 0  # a tool, which is no provider, numbers nothing
    row = (provider, operation, logical_key, payload, arrival, reference, visible_s, state, due_s, number)
    cursor = connection.execute(
        "INSERT INTO effects(provider, operation, logical_key, payload, arrival, reference, visible_s, state, due_s,"
        " number) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        row,
    )
    return Effect(_new_id(cursor), *row)


def effect_count(connection: sqlite3.Connection, provider: str) -> int:
    """How many effects the provider has begun, whatever became of them."""
    row = connection.execute("SELECT effects FROM providers WHERE name = ?", (provider,)).fetchone()
    return 0 if row is None else int(row[0])


def effects_of(connection: sqlite3.Connection, provider: str) -> list[Effect]:
    """The provider's effects in order, pending and failed ones too, inside a transaction."""
    rows = connection.execute(f"SELECT {EFFECT} FROM effects WHERE provider = ? ORDER BY id", (provider,))
    return [Effect(*row) for row in rows]


def effect_by_id(connection: sqlite3.Connection, number: int) -> Effect:
    """The effect of that id, inside a transaction."""
    return Effect(*connection.execute(f"SELECT {EFFECT} FROM effects WHERE id = ?", (number,)).fetchone())


def find_receipt(connection: sqlite3.Connection, provider: str, key: str) -> Receipt | None:
    """The provider's receipt under a key, or None."""
    row = connection.execute(
        f"SELECT {RECEIPT} FROM receipts WHERE provider = ? AND key = ?", (provider, key)
    ).fetchone()
    return None if row is None else Receipt(*row)


def known_elsewhere(connection: sqlite3.Connection, provider: str, identity: str) -> bool:
    """Whether the provider has a receipt for a key that is equal, but was used in another scope."""
    rows = connection.execute("SELECT key FROM receipts WHERE provider = ?", (provider,))
    return any(key.partition("\n")[0] == identity for (key,) in rows)


def store_receipt(connection: sqlite3.Connection, receipt: Receipt) -> None:
    """Keep a receipt inside a transaction, in place of an older one for the same key."""
    connection.execute(
        f"INSERT OR REPLACE INTO receipts({RECEIPT}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            receipt.provider,
            receipt.key,
            receipt.fingerprint,
            receipt.status,
            receipt.body,
            receipt.effect,
            receipt.expires_s,
            receipt.promised_s,
        ),
    )


def forget_receipts(connection: sqlite3.Connection, provider: str, now_s: float) -> None:
    """Remove the provider's receipts that have expired at `now_s` (Unix seconds), inside a transaction."""
    connection.execute("DELETE FROM receipts WHERE provider = ? AND expires_s <= ?", (provider, now_s))


def forget_receipt(connection: sqlite3.Connection, provider: str, key: str) -> None:
    """Remove the receipt under a key, inside a transaction."""
    connection.execute("DELETE FROM receipts WHERE provider = ? AND key = ?", (provider, key))


def receipt_of(connection: sqlite3.Connection, effect: int) -> Receipt | None:
    """The receipt of an effect, or None."""
    row = connection.execute(f"SELECT {RECEIPT} FROM receipts WHERE effect = ?", (effect,)).fetchone()
    return None if row is None else Receipt(*row)


def settle_effect(connection: sqlite3.Connection, effect: int, state: str) -> None:
    """A pending effect is "done" or "failed" now, inside a transaction; nothing of it is on its way any more."""
    connection.execute("UPDATE effects SET state = ?, due_s = NULL WHERE id = ?", (state, effect))
    connection.execute("DELETE FROM in_flight WHERE completes = ?", (effect,))


def undo_effect(connection: sqlite3.Connection, effect: Effect) -> None:
    """A pending effect will never be done, and nobody was told of it, inside a transaction.

    It leaves no trace if it is its provider's latest; else it has failed, so that the others keep their numbers.
    """
    settle_effect(connection, effect.id, "failed")
    undone = connection.execute(
        "DELETE FROM effects WHERE id = ? AND id = (SELECT max(id) FROM effects WHERE provider = ?)",
        (effect.id, effect.provider),
    )
    connection.execute("UPDATE providers SET effects = effects - ? WHERE name = ?", (undone.rowcount, effect.provider))


def hold_completion(
    connection: sqlite3.Connection, effect: Effect, key: str | None, fingerprint: str | None = None
) -> None:
    """Note inside a transaction that an accepted effect is on its way to be done.

    key: the client's idempotency key, if any; with a fingerprint, what the receipt will be found by once it is done.
    """
    connection.execute(
        "INSERT INTO in_flight(provider, operation, key, payload, request, incarnation, completes)"
        f" VALUES (?, ?, ?, ?, ?, {INCARNATION}, ?)",
        (
            effect.provider,
            effect.operation,
            key,
            effect.payload,
            json.dumps({"completes": effect.id, "fingerprint": fingerprint}),
            effect.id,
        ),
    )


def completion_of(connection: sqlite3.Connection, effect: int) -> Held | None:
    """The pending end of an accepted effect, or None if it has ended, inside a transaction."""
    row = connection.execute(f"SELECT {HELD} FROM in_flight WHERE completes = ?", (effect,)).fetchone()
    return None if row is None else held_from(row)


def position_of(connection: sqlite3.Connection, provider: str, name: str) -> int | None:
    """How far the provider has come with what `name` says (a session, a fence, a version); None if not begun."""
    row = connection.execute("SELECT value FROM positions WHERE provider = ? AND name = ?", (provider, name)).fetchone()
    return None if row is None else int(row[0])


def move_position(connection: sqlite3.Connection, provider: str, name: str, value: int) -> None:
    """Note how far the provider has come, inside a transaction."""
    connection.execute("INSERT OR REPLACE INTO positions VALUES (?, ?, ?)", (provider, name, value))


def decisions_of(connection: sqlite3.Connection, provider: str) -> dict[str, str]:
    """What was decided about the provider's undocumented behaviour: parameter -> value."""
    rows = connection.execute("SELECT parameter, value FROM decisions WHERE provider = ?", (provider,))
    return dict(rows)


def decide(connection: sqlite3.Connection, provider: str, parameter: str, value: str) -> None:
    """The provider behaves so from now on, inside a transaction."""
    connection.execute("INSERT OR REPLACE INTO decisions VALUES (?, ?, ?)", (provider, parameter, value))


def emit_event(connection: sqlite3.Connection, provider: str, kind: str, body: str, effect: int) -> None:
    """Add a webhook to send, inside a transaction."""
    connection.execute(
        "INSERT INTO events(provider, kind, body, effect) VALUES (?, ?, ?, ?)", (provider, kind, body, effect)
    )


def acknowledge_event(connection: sqlite3.Connection, event: int) -> None:
    """A webhook's receiver has acknowledged it, inside a transaction."""
    connection.execute("UPDATE events SET acknowledged = 1 WHERE id = ?", (event,))


def held_number(connection: sqlite3.Connection, number: int) -> Held:
    """The number-th oldest request on its way (1 is the oldest), inside a transaction.

    Raises LookupError if not so many are on their way.
    """
    rows = connection.execute(f"SELECT {HELD} FROM in_flight ORDER BY id").fetchall()
    if not 1 <= number <= len(rows):
        raise LookupError(f"no request number {number} is on its way; there are {len(rows)}, and 1 is the oldest")
    return held_from(rows[number - 1])


def waiting_events(connection: sqlite3.Connection, provider: str) -> list[tuple[int, int]]:
    """(id, effect) of the webhooks that nobody has acknowledged, the oldest first, inside a transaction."""
    rows = connection.execute(
        "SELECT id, effect FROM events WHERE provider = ? AND NOT acknowledged ORDER BY id", (provider,)
    )
    return [(int(number), int(effect)) for number, effect in rows]


def effect_by_arrival(connection: sqlite3.Connection, arrival: int) -> Effect | None:
    """The effect that an arrival has caused, or None, inside a transaction."""
    row = connection.execute(f"SELECT {EFFECT} FROM effects WHERE arrival = ?", (arrival,)).fetchone()
    return None if row is None else Effect(*row)


def take_held(connection: sqlite3.Connection, number: int) -> Held:
    """Take that request off its way, inside a transaction. Raises LookupError likewise."""
    held = held_number(connection, number)
    connection.execute("DELETE FROM in_flight WHERE id = ?", (held.id,))
    return held


def now_within(connection: sqlite3.Connection) -> float:
    """The providers' time inside a transaction, in Unix seconds."""
    row = connection.execute(NOW).fetchone()
    return time.time() if row is None else float(row[0])


def held_from(row: tuple[Any, ...]) -> Held:
    """A row of requests on their way, its body as bytes again."""
    number, provider, operation, key, payload, text, incarnation, expires_s, completes = row
    request = json.loads(text)
    if "body" in request:
        request["body"] = base64.b64decode(request["body"])
    return Held(number, provider, operation, key, payload, request, incarnation, expires_s, completes)


def _new_id(cursor: sqlite3.Cursor) -> int:
    assert cursor.lastrowid is not None
    return cursor.lastrowid
