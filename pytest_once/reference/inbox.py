"""The inbox: a consumer's memory of what it has taken, committed together with what it did about it.

Remembering first and acting later loses messages; acting first repeats them. Only one transaction does neither.

Nothing is forgotten without being refused from then on. The memory of an epoch is deleted when the epoch is closed, and
a message of a closed epoch that comes late is refused instead of applied a second time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pytest_once.reference.answers import Applied, Gap, Refused
from pytest_once.reference.identity import EffectConflict, canonical
from pytest_once.reference.messages import Message
from pytest_once.reference.ordering import Next, Order, Stale, advance
from pytest_once.reference.steps import Row, Statement, Steps

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Inbox:
    """What one consumer knows. consumer: its name; two consumers in one database do not share what they took."""

    consumer: str
    order: Order = Order.NONE

    def receive(
        self, message: M, epoch: int, apply: Callable[[M], Steps[Any]], *, now: float
    ) -> Steps[Applied | Refused | Gap]:
        """Apply a message unless it was applied before: the steps of one transaction, `apply`'s changes included.

        apply: the consumer's own change, as steps; what it returns (JSON) is stored as the result. Refused: the epoch
        is closed, or another message has had this version. Raises EffectConflict if the id was taken with another
        content.
        """
        known = yield from self._known(message.event_id)
        if known is not None:
            return self._repeated(message, known)
        oldest = yield from self._oldest_epoch()
        if epoch < oldest:
            return Refused(f"{self.consumer} has closed epoch {epoch}: it no longer knows whether it took this before")
        # Taken before anything else, so that of two that come at once the second waits here for the first.
        taken = yield Statement(
            "INSERT INTO inbox (consumer, event_id, fingerprint, epoch, outcome, taken_at)"
            " VALUES (?, ?, ?, ?, 'applied', ?) ON CONFLICT (consumer, event_id) DO NOTHING RETURNING event_id",
            (*self._key(message), message.fingerprint, epoch, now),
        )
        if not taken:
            known = yield from self._known(message.event_id)
            assert known is not None, "only closing its epoch deletes it, and the epoch is locked"
            return self._repeated(message, known)
        turn = yield from advance(self.order, self.consumer, message.tenant, message.object_id, message.version)
        if isinstance(turn, Next):
            return (yield from self._apply(message, apply))
        if isinstance(turn, Stale) and self.order is Order.SNAPSHOT:
            yield Statement(
                "UPDATE inbox SET outcome = 'stale' WHERE consumer = ? AND event_id = ?", self._key(message)
            )
            return Applied(self._evidence("stale"))
        yield Statement("DELETE FROM inbox WHERE consumer = ? AND event_id = ?", self._key(message))
        if isinstance(turn, Gap):
            return turn
        return Refused(f"{self.consumer} took version {message.version} of {message.object_id} from another message")

    def _apply(self, message: M, apply: Callable[[M], Steps[Any]]) -> Steps[Applied]:
        result = yield from apply(message)
        if result is not None:
            yield Statement(
                "UPDATE inbox SET result = ? WHERE consumer = ? AND event_id = ?",
                (canonical(result), *self._key(message)),
            )
        return Applied(self._evidence("applied"))

    def look_up(self, event_id: str) -> Steps[Applied | None]:
        """This consumer's evidence about a message. None: it was not taken, or its epoch is closed and forgotten."""
        known = yield from self._known(event_id)
        return None if known is None else Applied(self._evidence(known[1]))

    def result(self, event_id: str) -> Steps[str | None]:
        """What applying a message returned, as JSON."""
        known = yield from self._known(event_id)
        return None if known is None else known[2]

    def close_epochs_before(self, epoch: int) -> Steps[int]:
        """Refuse what comes from older epochs from now on, and forget what was taken from them; returns how much.

        Ask the producer first (`outbox.oldest_open_epoch`): what it has not delivered will be refused.
        """
        yield from self._oldest_epoch()
        yield Statement(
            "UPDATE inbox_epochs SET oldest = ? WHERE consumer = ? AND oldest < ?", (epoch, self.consumer, epoch)
        )
        rows = yield Statement(
            "DELETE FROM inbox WHERE consumer = ? AND epoch < ? RETURNING event_id", (self.consumer, epoch)
        )
        return len(rows)

    def _key(self, message: Message) -> tuple[str, str]:
        return (self.consumer, message.event_id)

    def _known(self, event_id: str) -> Steps[Row | None]:
        rows = yield Statement(
            "SELECT fingerprint, outcome, result FROM inbox WHERE consumer = ? AND event_id = ?",
            (self.consumer, event_id),
        )
        return rows[0] if rows else None

    def _oldest_epoch(self) -> Steps[int]:
        # Locked: whoever closes an epoch must wait for those who have just found it open.
        question = Statement("SELECT oldest FROM inbox_epochs WHERE consumer = ?", (self.consumer,), lock=True)
        rows = yield question
        if not rows:
            yield Statement("INSERT INTO inbox_epochs VALUES (?, 0) ON CONFLICT DO NOTHING", (self.consumer,))
            rows = yield question
        return int(rows[0][0])

    def _repeated(self, message: Message, known: Row) -> Applied:
        if known[0] != message.fingerprint:
            raise EffectConflict(
                f"{self.consumer} took {message.event_id} with another content. Somebody uses an id again for a new"
                " message; answering it as known would lose the new one"
            )
        return Applied(self._evidence(known[1]))

    def _evidence(self, outcome: str) -> str:
        return f"inbox of {self.consumer}: {outcome}"
