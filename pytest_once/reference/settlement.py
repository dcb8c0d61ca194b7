"""What came of an attempt, also of one that comes back late: recorded by its fencing token, over nobody's decision."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_once.reference.outcomes import Certainty, Outcome
from pytest_once.reference.steps import Statement, Steps
from pytest_once.reference.transitions import (
    COLUMNS,
    Attempt,
    State,
    Stored,
    close_unknowns,
    decide,
    existing,
    stored,
)


@dataclass(frozen=True, slots=True)
class Recorded:
    """The intent after an attempt's outcome was recorded.

    late: somebody else had taken over or decided, so the outcome is only noted. contradiction: it cannot be true
    together with what was decided; a person is asked.
    """

    stored: Stored
    late: bool = False
    contradiction: bool = False


_STATE_OF = {
    Certainty.SUCCEEDED: State.SUCCEEDED,
    Certainty.FAILED: State.FAILED,
    Certainty.NEVER_ARRIVED: State.FAILED,
    Certainty.UNKNOWN: State.UNKNOWN,
}


def outcome_state(attempt: Attempt, outcome: Outcome) -> State:
    """What an outcome makes of the intent: a resend that failed proves nothing about the request before it."""
    state = _STATE_OF[outcome.certainty]
    return State.UNKNOWN if attempt.resend and state is State.FAILED else state


def record(attempt: Attempt, outcome: Outcome, result: str | None, now: float) -> Steps[Recorded]:
    """Record what came of an attempt. May be repeated; never overwrites what is decided. result: JSON of a success."""
    state = outcome_state(attempt, outcome)
    took = yield from _move(attempt, State.IN_FLIGHT, state, outcome.reason, result, now)
    if not took and state is not State.UNKNOWN:
        took = yield from _move(attempt, State.UNKNOWN, state, outcome.reason, result, now)
        if took:
            yield from close_unknowns(attempt.intent_id, "late answer", outcome.reason, now)
    elif took and attempt.resend and state is not State.UNKNOWN:
        yield from close_unknowns(attempt.intent_id, "answer", outcome.reason, now)
    if took:
        yield from _note(attempt, outcome, state, now)
        return Recorded(took)
    return (yield from _late(attempt, outcome, result, now))


def _move(
    attempt: Attempt, before: State, after: State, reason: str, result: str | None, now: float
) -> Steps[Stored | None]:
    # sent_until stays at the end of the lease: a tool may have left a thread behind that is still sending.
    rows = yield Statement(
        "UPDATE gate_intents SET state = ?, reason = ?, result = ?, lease_until = NULL, "
        "sent_since = CASE WHEN ? THEN NULL ELSE sent_since END, "
        "unknown_since = CASE WHEN ? THEN COALESCE(unknown_since, ?) ELSE NULL END, updated_at = ? "
        f"WHERE intent_id = ? AND state = ? AND attempts = ? RETURNING {COLUMNS}",
        (
            after,
            reason,
            result,
            after is State.FAILED,
            after is State.UNKNOWN,
            now,
            now,
            attempt.intent_id,
            before,
            attempt.number,
        ),
    )
    return stored(rows[0]) if rows else None


def _note(attempt: Attempt, outcome: Outcome, state: State, now: float) -> Steps[None]:
    yield Statement(
        "UPDATE gate_attempts SET ended_at = ?, outcome = ?, reason = ?, "
        "unknown_at = CASE WHEN ? THEN COALESCE(unknown_at, ?) ELSE unknown_at END WHERE intent_id = ? AND attempt = ?",
        (
            now,
            outcome.certainty,
            outcome.reason,
            state is State.UNKNOWN,
            now,
            attempt.intent_id,
            attempt.number,
        ),
    )


def _late(attempt: Attempt, outcome: Outcome, result: str | None, now: float) -> Steps[Recorded]:
    found = yield from existing(attempt.intent_id)
    rows = yield Statement(
        "SELECT ended_at, outcome FROM gate_attempts WHERE intent_id = ? AND attempt = ?",
        (attempt.intent_id, attempt.number),
    )
    if rows and rows[0][0] is not None and rows[0][1] == outcome.certainty:
        return Recorded(found)  # recorded before, by a commit whose answer was lost
    yield Statement(
        "UPDATE gate_attempts SET late_outcome = ?, late_result = ?, late_at = ? "
        "WHERE intent_id = ? AND attempt = ? AND late_at IS NULL",
        (outcome.certainty, result, now, attempt.intent_id, attempt.number),
    )
    if outcome.certainty is Certainty.SUCCEEDED and found.state is State.UNKNOWN and _of_one_effect(attempt, found):
        # An earlier attempt under the same key: nothing is known of the newer one, but the effect is there.
        yield from decide(found, True, result, "late answer", outcome.reason, now)
        return Recorded((yield from existing(attempt.intent_id)), late=True)
    wrong = contradicts(attempt, outcome, found)
    if wrong:
        yield Statement(
            "INSERT INTO gate_questions "
            "(intent_id, attempt, asked_at, reason, contradiction, window_from, window_to, candidates) "
            "VALUES (?, ?, ?, ?, 1, ?, ?, '[]') ON CONFLICT (intent_id, attempt, contradiction) DO UPDATE SET "
            "reason = excluded.reason, decided_at = NULL, decision = NULL, decided_by = NULL, why = NULL",
            (
                attempt.intent_id,
                attempt.number,
                now,
                f"an attempt ended late with {outcome.certainty} ({outcome.reason}), but the intent had become "
                f"{found.state} ({found.reason or 'begun again'})",
                attempt.sent_since,
                now,
            ),
        )
    return Recorded(found, late=True, contradiction=wrong)


def contradicts(attempt: Attempt, outcome: Outcome, found: Stored) -> bool:
    """Whether a late outcome and what is stored cannot both be true."""
    if outcome.certainty is Certainty.SUCCEEDED:
        another = found.state is not State.SUCCEEDED or found.attempts > attempt.number
        return another and not _of_one_effect(attempt, found)
    if outcome.certainty in (Certainty.FAILED, Certainty.NEVER_ARRIVED):
        return found.state is State.SUCCEEDED and found.attempts == attempt.number and not attempt.resend
    return False


def _of_one_effect(attempt: Attempt, found: Stored) -> bool:
    # After a decision "no effect" sent_since is NULL, or that of the attempts which were then allowed.
    return found.sent_since == attempt.sent_since
