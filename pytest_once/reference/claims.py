"""Claims: which relay may send a message now, until when, and whose report about it counts.

A claim is a lease. It ends by itself when its relay dies, and the message is then claimed again. Each claim has a
fencing token, the number of the attempt; a report under an older token, or after the lease, is refused, since by then
another relay may have reported.

Leases compare the clocks of relays. Clocks that disagree by more than a lease let two relays send one message at the
same time; that costs a repetition, which the receiver's deduplication absorbs, and never a lost message.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_once.reference.answers import Answer, Applied, Failed, Forwarded, Gap, Refused
from pytest_once.reference.messages import COLUMNS, WIDTH, Command, Fact, Kind, from_row
from pytest_once.reference.steps import Statement, Steps


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message, claimed. token: the number of this attempt, larger than any before. until: end of the lease."""

    message: Fact | Command
    epoch: int
    token: int
    claimed_by: str
    until: float

    @property
    def event_id(self) -> str:
        """The message's id; the same on every attempt, so what a receiver is given as its idempotency key."""
        return self.message.event_id


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds to wait after the n-th failed attempt: first_s, doubled each time, at most limit_s."""

    first_s: float = 1.0
    limit_s: float = 300.0

    def after(self, attempts: int) -> float:
        return min(self.limit_s, self.first_s * 2.0 ** min(attempts - 1, 60))


# An earlier message of the same object that is not settled, a dead letter included, holds up the later ones.
_HEAD = """ AND NOT EXISTS (SELECT 1 FROM outbox AS earlier WHERE earlier.kind = candidate.kind
  AND earlier.tenant = candidate.tenant AND earlier.object_id = candidate.object_id
  AND earlier.version < candidate.version AND earlier.state IN ('recorded', 'planned', 'claimed', 'dead'))"""


def claim(
    kind: Kind, *, relay: str, now: float, lease_s: float, limit: int, in_order: bool = True
) -> Steps[list[Delivery]]:
    """Claim up to `limit` messages that are due, those waiting longest first.

    in_order: only the first unsettled message of each object. A message whose last allowed claim has lapsed becomes a
    dead letter instead.
    """
    rows = yield Statement(
        "UPDATE outbox SET"
        " state = CASE WHEN attempts >= allowed THEN 'dead' ELSE 'claimed' END,"
        " due_at = CASE WHEN attempts >= allowed THEN NULL ELSE CAST(? AS DOUBLE PRECISION) END,"
        " claimed_by = CASE WHEN attempts >= allowed THEN NULL ELSE CAST(? AS TEXT) END,"
        " reason = CASE WHEN attempts >= allowed THEN 'no report of the last allowed attempt' ELSE reason END,"
        " attempts = CASE WHEN attempts >= allowed THEN attempts ELSE attempts + 1 END"
        " WHERE event_id IN (SELECT event_id FROM outbox AS candidate"
        f" WHERE kind = ? AND due_at <= ?{_HEAD if in_order else ''}"
        # Checked again on the row itself: another relay may have claimed it since it was chosen.
        " ORDER BY due_at, event_id LIMIT ?) AND due_at <= ?"
        f" RETURNING {COLUMNS}, epoch, attempts, due_at, state",
        (now + lease_s, relay, kind.kind, now, limit, now),
    )
    claimed = [
        Delivery(from_row(row[:WIDTH]), epoch=row[WIDTH], token=row[WIDTH + 1], claimed_by=relay, until=row[WIDTH + 2])
        for row in rows
        if row[-1] == "claimed"
    ]
    return sorted(
        claimed, key=lambda delivery: (delivery.message.object_id, delivery.message.version, delivery.event_id)
    )


def next_due(kind: Kind, *, in_order: bool = True) -> Steps[float | None]:
    """When the next message may be claimed; None: none can; dead letters may hold some up."""
    rows = yield Statement(
        f"SELECT due_at FROM outbox AS candidate WHERE kind = ? AND due_at IS NOT NULL{_HEAD if in_order else ''}"
        " ORDER BY due_at, event_id LIMIT 1",
        (kind.kind,),
    )
    return float(rows[0][0]) if rows else None


def settle(delivery: Delivery, answer: Answer, *, now: float, backoff: Backoff) -> Steps[bool]:
    """Note what became of a claimed message. False: the claim had ended, so the report was refused."""
    if isinstance(answer, Gap):
        return (yield from _fill(delivery, answer, now, backoff))
    if isinstance(answer, Failed):
        return (yield from _again(delivery, answer.reason, now, now + backoff.after(delivery.token)))
    return (yield from _end(delivery, answer, now))


def _end(delivery: Delivery, answer: Applied | Forwarded | Refused, now: float) -> Steps[bool]:
    evidence = None if isinstance(answer, Refused) else answer.evidence
    sent_at = None if isinstance(answer, Refused) else now
    applied = isinstance(answer, Applied)
    rows = yield Statement(
        "UPDATE outbox SET state = ?, due_at = NULL, claimed_by = NULL, ended_at = ?, reason = COALESCE(?, reason),"
        " forwarded_at = COALESCE(?, forwarded_at), forwarded_evidence = COALESCE(?, forwarded_evidence),"
        f" applied_at = COALESCE(?, applied_at), applied_evidence = COALESCE(?, applied_evidence){_HELD}",
        (
            *(delivery.message.turned_down if isinstance(answer, Refused) else delivery.message.sent, now),
            *(answer.reason if isinstance(answer, Refused) else None, sent_at, evidence),
            *(now if applied else None, evidence if applied else None),
            *_held_by(delivery, now),
        ),
    )
    return bool(rows)


def _again(delivery: Delivery, reason: str, now: float, due_at: float) -> Steps[bool]:
    rows = yield Statement(
        "UPDATE outbox SET state = CASE WHEN attempts >= allowed THEN 'dead' ELSE CAST(? AS TEXT) END,"
        " due_at = CASE WHEN attempts >= allowed THEN NULL ELSE CAST(? AS DOUBLE PRECISION) END,"
        f" claimed_by = NULL, reason = ?{_HELD}",
        (delivery.message.waiting, due_at, reason, *_held_by(delivery, now)),
    )
    return bool(rows)


def _fill(delivery: Delivery, gap: Gap, now: float, backoff: Backoff) -> Steps[bool]:
    """Send the missing facts again, then this one. What the outbox does not have (yet) is waited for."""
    message = delivery.message
    span = (message.tenant, message.object_id, gap.first, gap.last)
    ((there,),) = yield Statement(
        "SELECT count(*) FROM outbox WHERE kind = 'fact' AND tenant = ? AND object_id = ? AND version BETWEEN ? AND ?",
        span,
    )
    reason = f"the receiver lacks versions {gap.first} to {gap.last} of {message.object_id}"
    if there < gap.last - gap.first + 1:
        reason += f", of which the outbox has {there}; if they were deleted, the receiver needs a snapshot"
        return (yield from _again(delivery, reason, now, now + backoff.after(delivery.token)))
    if not (yield from _again(delivery, reason, now, now)):
        return False
    yield Statement(
        "UPDATE outbox SET state = 'recorded', due_at = ?, ended_at = NULL,"
        " allowed = CASE WHEN attempts >= allowed THEN attempts + 1 ELSE allowed END"
        " WHERE kind = 'fact' AND tenant = ? AND object_id = ? AND version BETWEEN ? AND ? AND state = 'forwarded'",
        (now, *span),
    )
    return True


_HELD = (
    " WHERE event_id = ? AND state = 'claimed' AND attempts = ? AND claimed_by = ? AND due_at > ? RETURNING event_id"
)


def _held_by(delivery: Delivery, now: float) -> tuple[object, ...]:
    return (delivery.event_id, delivery.token, delivery.claimed_by, now)
