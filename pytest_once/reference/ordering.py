"""Order per business object, at the receiver: a version number says what is newer, not what arrives first."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from pytest_once.reference.answers import Gap
from pytest_once.reference.steps import Statement, Steps


class Order(Enum):
    """What a consumer needs.

    NONE: each message stands for itself. SNAPSHOT: each holds the whole object, so an older one is stale. DELTA: each
    holds a change, so every one must come, in order.
    """

    NONE = "none"
    SNAPSHOT = "snapshot"
    DELTA = "delta"


@dataclass(frozen=True, slots=True)
class Next:
    """The version may be applied; the position is moved to it already, in the same transaction."""


@dataclass(frozen=True, slots=True)
class Stale:
    """The consumer is at this version already, or further."""

    at: int


Turn: TypeAlias = Next | Stale | Gap


def advance(order: Order, consumer: str, tenant: str, object_id: str, version: int) -> Steps[Turn]:
    """Move the consumer's position for an object to `version`, if it is that version's turn."""
    if order is Order.NONE:
        return Next()
    place = (consumer, tenant, object_id)
    if order is Order.SNAPSHOT or version == 1:
        moved = yield Statement(
            "INSERT INTO inbox_positions (consumer, tenant, object_id, version) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (consumer, tenant, object_id) DO UPDATE SET version = excluded.version"
            " WHERE inbox_positions.version < excluded.version RETURNING version",
            (*place, version),
        )
    else:
        moved = yield Statement(
            "UPDATE inbox_positions SET version = ? WHERE consumer = ? AND tenant = ? AND object_id = ? AND version = ?"
            " RETURNING version",
            (version, *place, version - 1),
        )
    if moved:
        return Next()
    at = yield from position(consumer, tenant, object_id)
    return Stale(at) if at >= version else Gap(at + 1, version - 1)


def position(consumer: str, tenant: str, object_id: str) -> Steps[int]:
    """The newest version of an object that the consumer has applied; 0 if none."""
    rows = yield Statement(
        "SELECT version FROM inbox_positions WHERE consumer = ? AND tenant = ? AND object_id = ?",
        (consumer, tenant, object_id),
    )
    return int(rows[0][0]) if rows else 0


def start_from(consumer: str, tenant: str, object_id: str, version: int) -> Steps[bool]:
    """Adopt a snapshot that includes `version`, in the transaction that stores it.

    So ends a gap whose messages are gone. False: the consumer is further already.
    """
    return isinstance((yield from advance(Order.SNAPSHOT, consumer, tenant, object_id, version)), Next)
