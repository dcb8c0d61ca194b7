"""The queue for people: what no look-up can decide, with the evidence, and who decided it and why."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_once.reference import transitions
from pytest_once.reference.steps import Statement, Steps
from pytest_once.reference.transitions import COLUMNS, State, Stored, stored

EXECUTED, NOT_EXECUTED = "executed", "not-executed"
DECISIONS = (EXECUTED, NOT_EXECUTED)


@dataclass(frozen=True, slots=True)
class Question:
    """Something a person is to decide. Instants in seconds since 1970.

    window_from, window_to: when requests may have been sent. candidates: what the provider has done that looks like it,
    by business fields; none of them is proof. contradiction: a late answer denies what was decided.
    """

    intent_id: str
    attempt: int
    tool: str
    payload: str
    fingerprint: str
    state: State
    asked_at: float
    reason: str
    contradiction: bool
    window_from: float | None
    window_to: float | None
    candidates: tuple[Any, ...]


class NotResolved(Exception):
    """A person's decision that does not apply; the message says what is the case instead."""


def ask(found: Stored, reason: str, candidates: Sequence[Any], now: float) -> Steps[bool]:
    """Put an UNKNOWN intent into the queue; one that waits there gets the newer evidence. Whether it is new.

    An intent has one open question, however often it was tried; what people have decided stays on record.
    """
    evidence = json.dumps(list(candidates), sort_keys=True, ensure_ascii=False)
    told = (found.attempts, reason, found.sent_since, found.sent_until, evidence)
    waiting = yield Statement(
        "UPDATE gate_questions SET attempt = ?, reason = ?, window_from = ?, window_to = ?, candidates = ? "
        "WHERE intent_id = ? AND decided_at IS NULL AND contradiction = 0 RETURNING 1",
        (*told, found.intent_id),
    )
    if waiting:
        return False
    yield Statement(
        "DELETE FROM gate_questions WHERE intent_id = ? AND decision = 'withdrawn' AND contradiction = 0",
        (found.intent_id,),
    )
    yield Statement(
        "INSERT INTO gate_questions (intent_id, attempt, reason, window_from, window_to, candidates, asked_at, "
        "contradiction) VALUES (?, ?, ?, ?, ?, ?, ?, 0)",
        (found.intent_id, *told, now),
    )
    return True


def queue(limit: int = 100) -> Steps[list[Question]]:
    """What waits for a person, the oldest first."""
    names = ", ".join(f"i.{name}" for name in ("intent_id", "tool", "payload", "fingerprint", "state"))
    rows = yield Statement(
        f"SELECT {names}, q.attempt, q.asked_at, q.reason, q.contradiction, q.window_from, q.window_to, q.candidates "
        "FROM gate_questions q JOIN gate_intents i ON i.intent_id = q.intent_id "
        "WHERE q.decided_at IS NULL ORDER BY q.asked_at, q.intent_id LIMIT ?",
        (limit,),
    )
    return [_question(row) for row in rows]


def _question(row: tuple[Any, ...]) -> Question:
    intent_id, tool, payload, fingerprint, state, attempt, asked_at, reason, wrong, begin, end, candidates = row
    return Question(
        intent_id,
        attempt,
        tool,
        payload,
        fingerprint,
        State(state),
        asked_at,
        reason,
        bool(wrong),
        begin,
        end,
        tuple(json.loads(candidates)),
    )


def resolve(intent_id: str, decision: str, by: str, why: str, now: float, result: str | None = None) -> Steps[State]:
    """A person decides: `executed` makes it SUCCEEDED (result: the receipt, JSON), `not-executed` FAILED.

    An UNKNOWN intent can be decided before anybody was asked. Where a late answer contradicts what was decided, the
    person's word replaces that.
    Raises NotResolved, and ValueError for a decision, name, reason or result that is none.
    """
    if decision not in DECISIONS:
        raise ValueError(f"decision {decision!r}: say {' or '.join(DECISIONS)}")
    if not by.strip() or not why.strip():
        raise ValueError("say who decides, and why: it is the only evidence there will be")
    if decision != EXECUTED:
        result = None
    elif result is not None:
        _must_be_json(result)
    rows = yield Statement(f"SELECT {COLUMNS} FROM gate_intents WHERE intent_id = ?", (intent_id,))
    if not rows:
        raise NotResolved(f"there is no intent {intent_id!r}")
    found = stored(rows[0])
    if (yield from transitions.expire_one(found, now)):
        found = replace(found, state=State.UNKNOWN)
    after = State.SUCCEEDED if decision == EXECUTED else State.FAILED
    closed = yield from _close(found, decision, by, why, now)
    if found.state is State.UNKNOWN:
        reason = f"{by} decided: {why}"
        if (yield from transitions.decide(found, decision == EXECUTED, result, "person", reason, now)):
            return after
    elif closed:
        if found.state in (State.SUCCEEDED, State.FAILED) and found.state is not after:
            reason = f"{by} corrected: {why}"
            if not (yield from transitions.correct(found, after, result, reason, now)):
                raise NotResolved(f"{intent_id} was changed meanwhile; look at the queue again")
            return after
        return found.state
    raise NotResolved(
        f"{intent_id} is {found.state}, not UNKNOWN" + (f" ({found.reason})" if found.reason else "") + _remedy(found)
    )


def _must_be_json(result: str) -> None:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON value")

    try:
        json.loads(result, parse_constant=refuse)
    except ValueError as error:
        raise ValueError(
            f"the result {result!r:.100} is no JSON, and every later caller would have to read it: {error}"
        ) from error


def _remedy(found: Stored) -> str:
    if found.state is State.IN_FLIGHT:
        return "; somebody may be executing it now: wait until its lease has ended"
    return "; nothing was changed"


def _close(found: Stored, decision: str, by: str, why: str, now: float) -> Steps[bool]:
    """Note who decided. A question that was never asked is noted as asked now."""
    if found.state is State.UNKNOWN:
        yield from ask(found, "decided before it was asked", (), now)
    rows = yield Statement(
        "UPDATE gate_questions SET decided_at = ?, decision = ?, decided_by = ?, why = ? "
        "WHERE intent_id = ? AND decided_at IS NULL AND (contradiction = 1 OR ?) RETURNING 1",
        (now, decision, by, why, found.intent_id, found.state is State.UNKNOWN),
    )
    return bool(rows)
