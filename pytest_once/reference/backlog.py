"""What is still to be sent, what cannot be, how long it has waited, and what may be forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_once.reference.messages import COLUMNS, Command, Fact, from_row
from pytest_once.reference.steps import Statement, Steps


@dataclass(frozen=True, slots=True)
class Backlog:
    """Numbers to watch. Ages in seconds, None where there is nothing of the kind.

    waiting: not forwarded yet. failing: of those, claimed more than once. dead: dead letters. unconfirmed: forwarded,
    but without evidence that they were applied.
    """

    waiting: int
    oldest_waiting_s: float | None
    failing: int
    dead: int
    oldest_dead_s: float | None
    unconfirmed: int
    oldest_unconfirmed_s: float | None

    def as_numbers(self) -> Mapping[str, float]:
        """The numbers under the names of the fields; what is None is left out."""
        names = self.__slots__
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def backlog(*, now: float) -> Steps[Backlog]:
    """Count what is not known to be applied. What has ended is not read, however much of it there is."""
    ((waiting, waiting_since, failing, dead, dead_since, sent, sent_since),) = yield Statement(
        "SELECT count(CASE WHEN due_at IS NOT NULL THEN 1 END),"
        " min(CASE WHEN due_at IS NOT NULL THEN committed_at END),"
        " count(CASE WHEN due_at IS NOT NULL AND attempts > 1 THEN 1 END),"
        " count(CASE WHEN state = 'dead' THEN 1 END), min(CASE WHEN state = 'dead' THEN committed_at END),"
        " count(CASE WHEN state IN ('forwarded', 'accepted') THEN 1 END),"
        " min(CASE WHEN state IN ('forwarded', 'accepted') THEN committed_at END)"
        " FROM outbox WHERE applied_at IS NULL AND state NOT IN ('refused', 'withdrawn')"
    )

    def age(since: float | None) -> float | None:
        return None if since is None else now - since

    return Backlog(waiting, age(waiting_since), failing, dead, age(dead_since), sent, age(sent_since))


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that is not sent any more. It may have been applied all the same: its attempts were not answered."""

    message: Fact | Command
    epoch: int
    attempts: int
    reason: str


def dead_letters(limit: int = 100) -> Steps[list[DeadLetter]]:
    """The oldest dead letters, to be reconciled: ask the receiver, then `outbox.applied` or `put_back`."""
    rows = yield Statement(
        f"SELECT {COLUMNS}, epoch, attempts, reason FROM outbox"
        # The second and third condition are those of the index.
        " WHERE state = 'dead' AND applied_at IS NULL AND state NOT IN ('refused', 'withdrawn')"
        " ORDER BY committed_at, event_id LIMIT ?",
        (limit,),
    )
    return [DeadLetter(from_row(row[:-3]), *row[-3:]) for row in rows]


def put_back(event_id: str, *, because: str, now: float, attempts: int = 5, new_epoch: bool = False) -> Steps[bool]:
    """Send a dead letter again, under its old id, this many times at most. False: it is none (any more).

    new_epoch: put it into the current epoch, for a receiver that has closed its own. Do so only on the receiver's
    evidence that it was never applied: a closed epoch has forgotten what it took.
    """
    rows = yield Statement(
        "UPDATE outbox SET state = CASE kind WHEN 'fact' THEN 'recorded' ELSE 'planned' END, due_at = ?,"
        " ended_at = NULL, allowed = attempts + ?, reason = ?,"
        " epoch = CASE WHEN ? = 1 THEN (SELECT epoch FROM outbox_epoch) ELSE epoch END"
        " WHERE event_id = ? AND state = 'dead' RETURNING event_id",
        (now, attempts, because, int(new_epoch), event_id),
    )
    return bool(rows)


def purge(*, before: float, limit: int = 1000, unconfirmed: bool = False) -> Steps[int]:
    """Delete up to `limit` messages that ended before an instant; returns how many.

    What waits or is a dead letter is never deleted; the table itself refuses. unconfirmed: also delete what was
    forwarded without evidence that it was applied, for receivers that never give any. What is deleted cannot
    be sent again to a receiver that finds a gap.
    """
    rows = yield Statement(
        "DELETE FROM outbox WHERE event_id IN (SELECT event_id FROM outbox"
        " WHERE ended_at < ? AND due_at IS NULL AND state <> 'dead'"
        " AND (applied_at IS NOT NULL OR state IN ('refused', 'withdrawn')"
        " OR (? = 1 AND state IN ('forwarded', 'accepted'))) ORDER BY ended_at, event_id LIMIT ?) RETURNING event_id",
        (before, int(unconfirmed), limit),
    )
    return len(rows)
