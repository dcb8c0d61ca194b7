"""What an outbox holds: facts, which have happened, and commands, which are to happen.

They are different types because they end differently. A fact stays true whatever its receiver says, so it can only be
forwarded or wait in the dead letters; a command may be refused for good, or withdrawn before it was first sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, TypeAlias

from pytest_once.reference.identity import canonical, fingerprint, uuid7
from pytest_once.reference.steps import Row


class FactState(StrEnum):
    """How far the news of a fact has got."""

    RECORDED = "recorded"
    CLAIMED = "claimed"
    FORWARDED = "forwarded"
    DEAD = "dead"


class CommandState(StrEnum):
    """How far a command has got. ACCEPTED is a promise of the receiver, not evidence that it was carried out."""

    PLANNED = "planned"
    CLAIMED = "claimed"
    ACCEPTED = "accepted"
    REFUSED = "refused"
    WITHDRAWN = "withdrawn"
    DEAD = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What facts and commands have in common.

    object_id, version: the business object and its version after the change; versions of facts count 1, 2, 3 … per
    object of a tenant, which is the domain of order. event_id: stays the same on every resend; make it from an intent
    (`identity.intent_id`) or leave it to be a UUIDv7.
    """

    kind: ClassVar[str]
    waiting: ClassVar[FactState | CommandState]
    sent: ClassVar[FactState | CommandState]
    turned_down: ClassVar[FactState | CommandState]

    event_type: str
    tenant: str
    object_id: str
    version: int
    payload: Mapping[str, object]
    schema_version: int = 1
    event_id: str = field(default_factory=uuid7)

    @property
    def fingerprint(self) -> str:
        """What the id stands for: everything but the id itself."""
        return fingerprint(
            [self.kind, self.event_type, self.tenant, self.object_id, self.version, self.schema_version, self.payload]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact(Message):
    """Something that is committed together with this row."""

    kind = "fact"
    waiting = FactState.RECORDED
    sent = FactState.FORWARDED
    turned_down = FactState.DEAD


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(Message):
    """Something that somebody else is asked to do."""

    kind = "command"
    waiting = CommandState.PLANNED
    sent = CommandState.ACCEPTED
    turned_down = CommandState.REFUSED


Kind: TypeAlias = type[Fact] | type[Command]

KINDS: Mapping[str, Kind] = {"fact": Fact, "command": Command}

COLUMNS = "event_id, kind, event_type, tenant, object_id, version, schema_version, payload"
"""The columns of a message, in the order `from_row` reads them."""

WIDTH = COLUMNS.count(",") + 1
"""How many they are."""


def from_row(row: Row) -> Fact | Command:
    """The stored message, which is never made anew."""
    event_id, kind, event_type, tenant, object_id, version, schema_version, payload = row
    return KINDS[kind](
        event_id=event_id,
        event_type=event_type,
        tenant=tenant,
        object_id=object_id,
        version=version,
        schema_version=schema_version,
        payload=json.loads(payload),
    )


def to_row(message: Fact | Command) -> Row:
    """The values of `COLUMNS`."""
    return (
        message.event_id,
        message.kind,
        message.event_type,
        message.tenant,
        message.object_id,
        message.version,
        message.schema_version,
        canonical(message.payload),
    )
