"""The outbox: messages that commit together with the change they tell of, and what is known about each.

Three facts with three evidences, never one "done": the change is committed (`committed_at`), the message was forwarded
(`forwarded_at`), the receiver has applied it (`applied_at`).

An outbox in front of somebody else's service does not join that service's transaction. Between "acted" and "answered"
only the receiver's own deduplication under `event_id`, or asking it, can help; see `relay.one_by_one`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_once.reference.identity import EffectConflict
from pytest_once.reference.messages import COLUMNS, WIDTH, Command, Fact, from_row, to_row
from pytest_once.reference.steps import Statement, Steps


class Contradiction(Exception):
    """Evidence that a command was carried out although it had ended as refused or withdrawn. A person must look."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of one message. Instants in seconds since 1970, None: there is no such evidence."""

    message: Fact | Command
    state: str
    epoch: int
    attempts: int
    committed_at: float
    forwarded_at: float | None
    forwarded_evidence: str | None
    applied_at: float | None
    applied_evidence: str | None
    reason: str | None


def put(message: Fact | Command, *, now: float, allowed: int | None = 20) -> Steps[bool]:
    """Store a message, in the transaction of the change it belongs to. False: it was there already.

    allowed: claims after which it becomes a dead letter; None: never. Raises EffectConflict if the id stands for
    another message. A second fact under the same version of an object is an integrity error of the database: it
    was made anew, or two writers raced.
    """
    stored = yield Statement(
        f"INSERT INTO outbox ({COLUMNS}, fingerprint, state, committed_at, due_at, attempts, allowed, epoch)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, (SELECT epoch FROM outbox_epoch))"
        " ON CONFLICT (event_id) DO NOTHING RETURNING event_id",
        (*to_row(message), message.fingerprint, message.waiting, now, now, allowed),
    )
    if stored:
        return True
    ((known,),) = yield Statement("SELECT fingerprint FROM outbox WHERE event_id = ?", (message.event_id,))
    if known != message.fingerprint:
        raise EffectConflict(
            f"{message.event_id} is in the outbox with another content. An id stands for one message;"
            " a changed one needs an id of its own"
        )
    return False


def withdraw(event_id: str, *, because: str, now: float) -> Steps[bool]:
    """Take back a command that was never sent. False: it was, or is about to be, so it may act."""
    rows = yield Statement(
        "UPDATE outbox SET state = 'withdrawn', due_at = NULL, ended_at = ?, reason = ?"
        " WHERE event_id = ? AND state = 'planned' AND attempts = 0 RETURNING event_id",
        (now, because, event_id),
    )
    return bool(rows)


def applied(event_id: str, *, evidence: str, now: float) -> Steps[bool]:
    """Note the receiver's evidence that it has applied a message, also of one that waits or is a dead letter.

    It is not sent any more. False: there was such evidence before. Raises Contradiction if the command had ended.
    """
    rows = yield Statement(
        "UPDATE outbox SET state = CASE kind WHEN 'fact' THEN 'forwarded' ELSE 'accepted' END, due_at = NULL,"
        " claimed_by = NULL, forwarded_at = COALESCE(forwarded_at, ?),"
        " forwarded_evidence = COALESCE(forwarded_evidence, ?), applied_at = ?, applied_evidence = ?, ended_at = ?"
        " WHERE event_id = ? AND applied_at IS NULL AND state NOT IN ('refused', 'withdrawn') RETURNING event_id",
        (now, evidence, now, evidence, now, event_id),
    )
    if rows:
        return True
    known = yield from look_up(event_id)
    if known is not None and known.state in ("refused", "withdrawn"):
        raise Contradiction(f"{event_id} had ended as {known.state} ({known.reason}), but now: {evidence}")
    return False


def look_up(event_id: str) -> Steps[Evidence | None]:
    """The evidence about one message. None: the outbox does not know it (any more), which proves nothing."""
    rows = yield Statement(
        f"SELECT {COLUMNS}, state, epoch, attempts, committed_at, forwarded_at, forwarded_evidence, applied_at,"
        " applied_evidence, reason FROM outbox WHERE event_id = ?",
        (event_id,),
    )
    return Evidence(from_row(rows[0][:WIDTH]), *rows[0][WIDTH:]) if rows else None


def advance_epoch() -> Steps[int]:
    """Begin a new epoch for the messages that are put from now on. Returns its number."""
    ((epoch,),) = yield Statement("UPDATE outbox_epoch SET epoch = epoch + 1 RETURNING epoch")
    return int(epoch)


def oldest_open_epoch() -> Steps[int]:
    """The oldest epoch of a message without evidence of its end. Receivers may close the epochs before it."""
    ((oldest,),) = yield Statement(
        "SELECT COALESCE((SELECT min(epoch) FROM outbox WHERE applied_at IS NULL"
        " AND state NOT IN ('refused', 'withdrawn')), (SELECT epoch FROM outbox_epoch))"
    )
    return int(oldest)
