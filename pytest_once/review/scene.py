"""A check: one way to use an outbox, which notes what must not be. The engine stops it everywhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from pytest_once.once import Once
from pytest_once.review.adapter import Adapter, Answer, Outbox, Send, Sent

MUST_NOT_BE = "must-not-be"
"""The logical key of every note."""

HOUR_S = 3600.0
"""Time between two rounds: longer than a claim, and than the wait before another attempt."""


class Later(Exception):
    """Not everything could be sent yet; the worker is started again."""


class NotAnswered(Exception):
    """The adapter does not do what the question is about, so nothing could go wrong."""


class Scene:
    """What a check uses. outbox: opened for this life."""

    def __init__(self, once: Once, adapter: Adapter, directory: Path, urls: Sequence[str], outbox: Outbox) -> None:
        self.once = once
        self.outbox: Any = outbox
        self._open: Callable[[], Outbox] = lambda: adapter.open(directory, *urls)

    @contextmanager
    def another(self) -> Iterator[Outbox]:
        """The same outbox once more, as another process has it."""
        opened = self._open()
        try:
            yield opened
        finally:
            opened.close()

    def note(self, what: str) -> None:
        """Say what must not be; it counts as an effect that nobody intends."""
        self.once.tool(_nothing, name=what, key=MUST_NOT_BE)()

    def put(self, number: int) -> None:
        """Make a change and its message as one step: whether that is one is the first question's affair."""
        if not self.outbox.changed(number):
            self.once.tool(self.outbox.put, name="put", key=put_key(number), atomic=True)(number, _nothing)

    def put_in_steps(self, number: int, before_commit: Callable[[], None] | None = None) -> None:
        """Make a change and its message, as the application does it. Raises NotAnswered if nothing came of it."""
        begun = f"review: change {number} was begun"
        if self.outbox.changed(number) and self.once.ledger.recall(begun) is None:
            raise NotAnswered(f"changed({number}) is true before that change was made")
        self.once.ledger.remember(begun, True)
        announced = self.outbox.changed(number)  # then nothing is left to be done

        def announce() -> None:
            nonlocal announced
            announced = True
            if before_commit is not None:
                before_commit()

        self.outbox.put(number, announce)
        if not announced:
            raise NotAnswered(f"put({number}, before_commit) has not called before_commit()")
        if not self.outbox.changed(number) and not self.outbox.stored(number):
            raise NotAnswered(f"after put({number}) neither changed({number}) nor stored({number}) is true")

    def as_first_sent(self, message: Sent) -> Sent:
        """The message under the id it was first sent under: whether that stays is another question's affair."""
        self.once.boundary(f"change {message.number} is sent")
        known = self.once.ledger.recall(f"review:{message.number}")
        if known is None:
            self.once.ledger.remember(f"review:{message.number}", message.event_id)
            return message
        return replace(message, event_id=str(known))

    def rounds(self, send: Send, times: int = 2) -> None:
        """Some rounds of the relay, an hour before each, until nothing is left to be sent."""
        for _ in range(times):
            if not self.outbox.pending():
                return
            time.sleep(HOUR_S)
            self.outbox.relay(send, "review")

    def drain(self, send: Send) -> None:
        """As `rounds`; if something is left, this life ends as unfinished."""
        self.rounds(send)
        if self.outbox.pending():
            raise Later

    def deliver(self, messages: Sequence[Sent]) -> Mapping[str, Answer]:
        """A `send` that reaches the consumer."""
        for message in messages:
            self.outbox.consume(message)
        return answered(messages, Answer.APPLIED)

    def check_applied(self, *numbers: int) -> None:
        """Each change must be there once, after everything was sent."""
        for number in numbers:
            times = self.outbox.applied(number)
            if times != 1:
                self.note(f"change {number} was applied {times} times" if times else f"change {number} was lost")


def put_key(number: int) -> str:
    """The logical key of a change that is put as one step."""
    return f"put-{number}"


def _nothing(*_: object) -> None:
    """Nothing happens here."""


def answered(messages: Sequence[Sent], answer: Answer) -> dict[str, Answer]:
    """The same answer for each message."""
    return {message.event_id: answer for message in messages}


Act: TypeAlias = Callable[[Scene], None]


@dataclass(frozen=True, slots=True)
class Check:
    """One run of the engine. what: what was done, for the table. needs: optional members of the outbox.

    faults: soft faults besides crashes, one in a life. puts: changes that are put as one step.
    """

    what: str
    act: Act
    needs: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    puts: tuple[int, ...] = ()
    drills: tuple[str, ...] = ()
    """Names of `once.boundary` at which the process is killed once more, with SIGKILL, from nothing."""
