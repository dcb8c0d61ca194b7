"""What a ledger is made of, row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

IN_PROGRESS = 0
"""The status of a receipt whose request is still being worked on."""

BETWEEN_LIVES = 0
"""The incarnation of an arrival that no living process sent: a request held up reached its provider."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A provider of the test. contract: JSON; key_field: where a payload carries the logical key, or None."""

    name: str
    contract: str
    key_field: str | None
    endpoint: str | None


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request that reached a provider.

    key: the client's idempotency key, if any; payload: canonical JSON; incarnation: 1-based life of the
    process, or BETWEEN_LIVES; outcome: executed, accepted, begun, failed, replayed or refused; status: HTTP status
    of the answer. scope: what the key is unique within, "" for the whole provider. relied: the parameters of the
    contract that decided the answer, separated by commas.
    """

    id: int
    provider: str
    operation: str
    key: str | None
    payload: str
    incarnation: int
    outcome: str
    status: int
    scope: str = ""
    relied: str = ""


@dataclass(frozen=True, slots=True)
class Effect:
    """Something a provider did. logical_key: None if the payload names none; payload: canonical JSON.

    reference: what a look-up finds it by besides its id, if anything. visible_s: the instant from which look-ups show
    it, in Unix seconds; None if they do at once. state: "done"; "pending" while the provider has accepted it and is at
    work, until due_s (Unix seconds) at the latest; "failed" if nothing came of it. Only done ones count. number: which
    of its provider's effects it is, 1 for the first that was begun.
    """

    id: int
    provider: str
    operation: str
    logical_key: str | None
    payload: str
    arrival: int
    reference: str | None = None
    visible_s: float | None = None
    state: str = "done"
    due_s: float | None = None
    number: int = 0


@dataclass(frozen=True, slots=True)
class Receipt:
    """A provider's memory of a request it answered. body: JSON; effect: id, or None when there was none.

    status: of the stored answer; IN_PROGRESS while there is none yet.
    key: what it recognises a repetition by. expires_s: the instant at which it forgets, in Unix seconds, or None.
    promised_s: the instant until which it certainly does not; None: not before expires_s.
    """

    provider: str
    key: str
    fingerprint: str
    status: int
    body: str
    effect: int | None
    expires_s: float | None = None
    promised_s: float | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """A request on its way: it arrives later, or never. Or an effect that was accepted: it is done later, or fails.

    key: the client's idempotency key, if any. payload: canonical JSON of what the contract will look at. request:
    what arrives, as `Ledger.hold` got it, without credentials. incarnation: 1-based life that sent it. expires_s: Unix
    seconds after which it does not arrive any more, or None. completes: the id of an accepted effect, which needs no
    request any more; None for a request.
    """

    id: int
    provider: str
    operation: str
    key: str | None
    payload: str
    request: dict[str, Any]
    incarnation: int
    expires_s: float | None = None
    completes: int | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """What a caller saw: a status ("200") or an exception's name. arrival: None if nothing arrived."""

    id: int
    arrival: int | None
    provider: str
    operation: str
    incarnation: int
    what: str


@dataclass(frozen=True, slots=True)
class Intent:
    """How many effects a logical key should end with; provider: None means any."""

    key: str
    count: int
    provider: str | None


@dataclass(frozen=True, slots=True)
class Counter:
    """Effects counted in the user's own SQLite file: path, and the query that counts."""

    name: str
    path: str
    sql: str


@dataclass(frozen=True, slots=True)
class Event:
    """A webhook that a provider sends until it is acknowledged. body: JSON; effect: the id of what it tells about."""

    id: int
    provider: str
    kind: str
    body: str
    effect: int
    acknowledged: bool
