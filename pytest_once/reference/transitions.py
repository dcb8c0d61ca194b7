"""The gate's state machine: every edge is one compare-and-set, told apart by state and fencing token.

    register → REGISTERED → IN_FLIGHT → SUCCEEDED | FAILED | UNKNOWN
    UNKNOWN  → SUCCEEDED | FAILED    by evidence: a look-up, a person, a late answer
    UNKNOWN  → IN_FLIGHT             only where the provider's promise makes a resend under the same key safe
    FAILED   → IN_FLIGHT             certainly no effect, so it may be registered again

An expired lease leads to UNKNOWN. A clock that is wrong makes an intent UNKNOWN too early or too late, and nobody acts
on that. Whether a key is still kept, or an absence proven, is judged by the clock too: there a wrong one does harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeAlias

from pytest_once.reference import identity
from pytest_once.reference.planning import Intent
from pytest_once.reference.promise import Promise
from pytest_once.reference.steps import Statement, Steps


class State(StrEnum):
    """FAILED: certainly no effect. UNKNOWN: may have acted, or may still."""

    REGISTERED = "REGISTERED"
    IN_FLIGHT = "IN_FLIGHT"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"


class Request:
    """Asks for one action that is meant once. Everything that changes its effect belongs into the payload.

    id: the intent's, made at planning time and stored with the task (`identity.intent_id`, `identity.uuid7`); never
    made from an attempt, a clock or a hash of the arguments. payload: JSON object. fingerprint: what the id is bound
    to; by default the tool's name and the whole payload. Raises IdentityError (a ValueError) for what has no JSON form.
    """

    __slots__ = ("fingerprint", "id", "payload", "tool")

    def __init__(self, id: str, tool: str, payload: Mapping[str, object], fingerprint: str | None = None) -> None:
        if not id or not tool:
            raise ValueError("a request needs the id of its intent and the name of its tool")
        self.id = id
        self.tool = tool
        self.payload = identity.canonical(payload)
        self.fingerprint = fingerprint or identity.fingerprint([tool, payload])

    @classmethod
    def of(cls, intent: Intent) -> Request:
        """The request for a planned intent, bound to its effect-bearing fields only; its action is the tool."""
        return cls(intent.intent_id, intent.action, intent.payload, intent.binding)


@dataclass(frozen=True, slots=True)
class Attempt:
    """The right to act once. number: the fencing token, larger for each attempt. key: the provider's idempotency key.

    lease_until: after that instant the intent counts as UNKNOWN. resend: an earlier request may have acted.
    """

    intent_id: str
    number: int
    lease_until: float
    sent_since: float
    resend: bool

    @property
    def key(self) -> str:
        return self.intent_id


@dataclass(frozen=True, slots=True)
class Stored:
    """An intent as it is stored; instants in seconds since 1970."""

    intent_id: str
    tool: str
    payload: str
    fingerprint: str
    state: State
    result: str | None
    reason: str | None
    attempts: int
    lease_until: float | None
    sent_since: float | None
    sent_until: float | None
    unknown_since: float | None


COLUMNS = (
    "intent_id, tool, payload, fingerprint, state, result, reason, attempts, lease_until, sent_since, sent_until, "
    "unknown_since"
)

Admission: TypeAlias = Attempt | Stored
"""Permission to act; or, if it is not given, what is stored instead."""


def stored(row: tuple[Any, ...]) -> Stored:
    """A row of COLUMNS."""
    return Stored(row[0], row[1], row[2], row[3], State(row[4]), *row[5:])


def read(intent_id: str) -> Steps[Stored | None]:
    """The intent as it is stored, or None."""
    rows = yield Statement(f"SELECT {COLUMNS} FROM gate_intents WHERE intent_id = ?", (intent_id,))
    return stored(rows[0]) if rows else None


def register(request: Request, now: float) -> Steps[bool]:
    """Insert the intent, or leave what is there; whether it is new. For the transaction that stores the task."""
    rows = yield Statement(
        "INSERT INTO gate_intents (intent_id, tool, payload, fingerprint, state, attempts, created_at, updated_at) "
        "VALUES (?, ?, ?, ?, 'REGISTERED', 0, ?, ?) ON CONFLICT (intent_id) DO NOTHING RETURNING 1",
        (request.id, request.tool, request.payload, request.fingerprint, now, now),
    )
    return bool(rows)


def admit(request: Request, promise: Promise, lease_s: float, history: int, now: float) -> Steps[Admission]:
    """Insert or read, and take the right to act if it can be had. history: attempts to keep records of."""
    if (yield from register(request, now)):
        found = _new(request)
    else:
        found = yield from existing(request.id)
    if found.fingerprint != request.fingerprint:
        return found
    if found.state is State.IN_FLIGHT and (found.lease_until or 0.0) <= now:
        yield from expire_one(found, now)
        found = yield from existing(request.id)
    if found.state is State.FAILED and (yield from _contradicted(request.id)):
        return replace(found, state=State.UNKNOWN, reason="a late answer says that it was executed after all")
    if not may_begin(found, promise, now):
        return found
    attempt = yield from _begin(found, lease_s, history, now)
    return attempt or (yield from existing(request.id))


def may_begin(found: Stored, promise: Promise, now: float) -> bool:
    """Whether acting is safe: nothing was sent, or it certainly had no effect, or a resend is harmless."""
    if found.state in (State.REGISTERED, State.FAILED):
        return True
    return found.state is State.UNKNOWN and promise.resend_is_safe(found.sent_since or 0.0, now)


def _new(request: Request) -> Stored:
    nothing = (None, None, None, None)
    return Stored(
        request.id, request.tool, request.payload, request.fingerprint, State.REGISTERED, None, None, 0, *nothing
    )


def existing(intent_id: str) -> Steps[Stored]:
    """The intent as it is stored. Raises LookupError if there is none."""
    found = yield from read(intent_id)
    if found is None:
        raise LookupError(f"intent {intent_id!r} was deleted while it was asked for")
    return found


def _contradicted(intent_id: str) -> Steps[bool]:
    rows = yield Statement(
        "SELECT 1 FROM gate_questions WHERE intent_id = ? AND contradiction = 1 AND decided_at IS NULL", (intent_id,)
    )
    return bool(rows)


def _begin(found: Stored, lease_s: float, history: int, now: float) -> Steps[Attempt | None]:
    number = found.attempts + 1
    lease_until = now + lease_s
    sent_since = now if found.sent_since is None else found.sent_since
    rows = yield Statement(
        "UPDATE gate_intents SET state = 'IN_FLIGHT', attempts = ?, lease_until = ?, sent_since = ?, sent_until = ?, "
        "reason = NULL, updated_at = ? WHERE intent_id = ? AND state = ? AND attempts = ? RETURNING 1",
        (
            number,
            lease_until,
            sent_since,
            max(lease_until, found.sent_until or 0.0),
            now,
            found.intent_id,
            found.state,
            found.attempts,
        ),
    )
    if not rows:
        return None
    yield Statement(
        "INSERT INTO gate_attempts (intent_id, attempt, started_at) VALUES (?, ?, ?)", (found.intent_id, number, now)
    )
    if number > history:
        yield Statement(
            "DELETE FROM gate_attempts WHERE intent_id = ? AND attempt <= ?", (found.intent_id, number - history)
        )
    return Attempt(found.intent_id, number, lease_until, sent_since, resend=found.sent_since is not None)


# -- leases and evidence -----------------------------------------------------------------------------------


def expire_one(found: Stored, now: float) -> Steps[bool]:
    """IN_FLIGHT → UNKNOWN for an intent whose lease has ended; whether it was still so."""
    rows = yield Statement(
        "UPDATE gate_intents SET state = 'UNKNOWN', reason = ?, lease_until = NULL, "
        "unknown_since = COALESCE(unknown_since, ?), updated_at = ? "
        "WHERE intent_id = ? AND state = 'IN_FLIGHT' AND attempts = ? AND lease_until <= ? RETURNING 1",
        (
            "the lease ended without an answer",
            now,
            now,
            found.intent_id,
            found.attempts,
            now,
        ),
    )
    if rows:
        yield Statement(
            "UPDATE gate_attempts SET outcome = 'UNKNOWN', reason = 'lease ended', unknown_at = ? "
            "WHERE intent_id = ? AND attempt = ? AND unknown_at IS NULL",
            (now, found.intent_id, found.attempts),
        )
    return bool(rows)


def expire(now: float, limit: int) -> Steps[int]:
    """Make up to `limit` intents UNKNOWN whose lease has ended; how many."""
    rows = yield Statement(
        f"SELECT {COLUMNS} FROM gate_intents WHERE state = 'IN_FLIGHT' AND lease_until <= ? "
        "ORDER BY lease_until LIMIT ?",
        (now, limit),
    )
    expired = 0
    for row in rows:
        expired += yield from expire_one(stored(row), now)
    return expired


def decide(found: Stored, executed: bool, result: str | None, by: str, reason: str, now: float) -> Steps[bool]:
    """UNKNOWN → SUCCEEDED or FAILED by evidence; False if it is not UNKNOWN any more, or begun again meanwhile."""
    rows = yield Statement(
        "UPDATE gate_intents SET state = ?, result = ?, reason = ?, unknown_since = NULL, "
        "sent_since = CASE WHEN ? THEN sent_since ELSE NULL END, updated_at = ? "
        "WHERE intent_id = ? AND state = 'UNKNOWN' AND attempts = ? RETURNING 1",
        (
            State.SUCCEEDED if executed else State.FAILED,
            result,
            reason,
            executed,
            now,
            found.intent_id,
            found.attempts,
        ),
    )
    if rows:
        yield from close_unknowns(found.intent_id, by, reason, now)
    return bool(rows)


def correct(found: Stored, after: State, result: str | None, reason: str, now: float) -> Steps[bool]:
    """SUCCEEDED ↔ FAILED by a person who was asked about a contradiction; False if it was changed meanwhile."""
    rows = yield Statement(
        "UPDATE gate_intents SET state = ?, result = ?, reason = ?, sent_since = NULL, updated_at = ? "
        "WHERE intent_id = ? AND state = ? AND attempts = ? RETURNING 1",
        (after, result, reason, now, found.intent_id, found.state, found.attempts),
    )
    return bool(rows)


def close_unknowns(intent_id: str, by: str, reason: str, now: float) -> Steps[None]:
    """The intent is decided: so are its attempts of which nothing was known, and no person is needed any more.

    by: what decided. A question about a contradiction stays.
    """
    yield Statement(
        "UPDATE gate_attempts SET resolved_at = ?, resolved_by = ? "
        "WHERE intent_id = ? AND unknown_at IS NOT NULL AND resolved_at IS NULL",
        (now, by, intent_id),
    )
    yield Statement(
        "UPDATE gate_questions SET decided_at = ?, decision = 'withdrawn', decided_by = ?, why = ? "
        "WHERE intent_id = ? AND decided_at IS NULL AND contradiction = 0",
        (now, by, reason, intent_id),
    )
