"""What one moment, or one end of a life, says against exactly once."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_once.checks import Counts, LogicalKey, Verdict
from pytest_once.evidence import Evidence
from pytest_once.incarnation import Ended
from pytest_once.life import Sight
from pytest_once.scenario import Expectations


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict with its key and counts, before anybody has confirmed it."""

    verdict: Verdict
    key: LogicalKey | None
    expected: int | None
    actual: int | None
    detail: str

    @property
    def subject(self) -> tuple[Verdict, LogicalKey | None]:
        """What makes two findings say the same."""
        return self.verdict, self.key


def judge_moment(evidence: Evidence, sight: Sight) -> Finding | None:
    """Safety: no key may have more effects than intended, and no intent be taken for another, at any moment."""
    excess = evidence.oracle.excess(evidence.counts(sight))
    for key, n in excess.items():
        intended = evidence.oracle.intended.get(key, 0)
        if key in evidence.oracle.intended:
            detail = f"{n} effects for one intent; {intended} intended"
        else:
            detail = _unexpected(evidence, key)
        return Finding(Verdict.DUPLICATE, key, intended, n, detail)
    swallowed = evidence.swallowed(sight)
    if swallowed is not None:
        return Finding(
            Verdict.CONFLICT_MISSED,
            swallowed,
            None,
            None,
            "the same idempotency key came with another payload before, and the provider took this request for a "
            "repetition of that one. One key, one intent: make the key from what identifies the intent",
        )
    return None


def _unexpected(evidence: Evidence, key: LogicalKey) -> str:
    """Why an effect that nobody intended is one too many."""
    for known in evidence.oracle.intended:
        if (known.provider, known.name) == (key.provider, key.name):
            return (
                f"the intent {key.name} had its effect by {key.operation}, where the fault-free run has it by "
                f"{known.operation}. Method and path belong to the logical key: at two addresses it is two effects"
            )
    return (
        "an effect that the fault-free run does not have. If it is the same intent with another payload, "
        "say so with key= or once.intend(...)"
    )


def judge_end(evidence: Evidence, expectations: Expectations, last: Sight, ended: Ended) -> Finding | None:
    """The claim that a life's end makes, against the ledger."""
    counts = evidence.counts(last)
    missing = evidence.oracle.missing(counts)
    if ended.claim == "done":
        # What is accepted may well be done yet: `judge_afterwards` looks at what else may become of it.
        for key, n in evidence.oracle.missing(evidence.expected(last)).items():
            intended = evidence.oracle.intended[key]
            return Finding(
                Verdict.OMISSION, key, intended, n, f"it says that it is done, with {n} of {intended} effects"
            )
    happened = next((key for key, n in evidence.oracle.intended.items() if n and counts.get(key, 0)), None)
    if ended.claim == "failed" and happened is not None:
        return Finding(
            Verdict.FALSE_FAILURE,
            happened,
            0,
            counts[happened],
            f"it reports a definite failure ({ended.error or 'by claim'}) although the effect happened",
        )
    if ended.claim == "unknown" and ended.claimed and "unknown" not in expectations.blocked:
        short = next(iter(missing), None)
        return Finding(
            Verdict.ESCALATED,
            short,
            None if short is None else evidence.oracle.intended[short],
            None if short is None else missing[short],
            "it gave up and says that it does not know; if that is a right answer here, allow it with "
            'blocked=(TheException,) or blocked=("unknown",)',
        )
    return None


def judge_afterwards(evidence: Evidence, later: Sight, ended: Ended) -> Finding | None:
    """The claim of a life's end, against the ledger after something that was on its way has arrived, or has failed."""
    counts = evidence.counts(later)
    if ended.claim == "done":
        for key in evidence.oracle.missing(evidence.expected(later)):
            intended = evidence.oracle.intended[key]
            return Finding(
                Verdict.OMISSION,
                key,
                intended,
                counts.get(key, 0),
                "it said that it was done when the work was only accepted (status 202); the accepted work fails, and "
                "nobody does it again. Say so only when the provider says that it is done (poll, or wait for the "
                'webhook), and until then once.claim("in_progress")',
            )
    happened = next((key for key, n in evidence.oracle.intended.items() if n and counts.get(key, 0)), None)
    if ended.claim == "failed" and happened is not None:
        return Finding(
            Verdict.FALSE_FAILURE,
            happened,
            0,
            counts[happened],
            f"it reported a definite failure ({ended.error or 'by claim'}) while the request, or the accepted work, "
            "was still on its way; it happens all the same",
        )
    return None


def judge_attempts(evidence: Evidence, expectations: Expectations, last: Sight, number: int) -> Finding | None:
    """Requests that reached a provider in one life (0 for the first) against the attempts that were allowed."""
    allowed = expectations.attempts
    for key, n in evidence.attempts(last, number + 1).items() if allowed is not None else ():
        if allowed is not None and n > allowed:
            return Finding(
                Verdict.TOO_MANY_ATTEMPTS,
                key,
                allowed,
                n,
                f"{n} attempts reached the provider within one incarnation; attempts={allowed} allows {allowed}. A "
                "client or a transport below the code sends again by itself: switch that off, or count it in",
            )
    return None


def stuck(evidence: Evidence, counts: Counts, rounds: int) -> Finding:
    """Liveness: lives without faults come back to the same state after so many rounds and never complete."""
    missing = evidence.oracle.missing(counts)
    key = next(iter(missing), None)
    again = "the same state comes back" if rounds <= 1 else f"the same {rounds} states come back"
    detail = f"nothing fails any more, yet it never completes: after each further restart {again}"
    detail += " (between restarts pass only the times that restart_after= names)"
    if key is None:
        return Finding(
            Verdict.STUCK, None, None, None, f"{detail}; every intended effect is there, but it cannot say so"
        )
    return Finding(Verdict.STUCK, key, evidence.oracle.intended[key], missing[key], detail)
