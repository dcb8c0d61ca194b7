"""What an outbox has to offer to be asked: the few things a check does with it.

What is marked optional may be left out; the questions that need it are then answered "unknown", never "yes".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias


class Answer(StrEnum):
    """What a receiver said of one message. FORWARDED: taken, nothing more. REFUSED: never. FAILED: nothing is known."""

    APPLIED = "applied"
    FORWARDED = "forwarded"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Sent:
    """A message as the relay hands it on. number: of the change it tells of. content: what the consumer needs of it."""

    event_id: str
    number: int
    content: Any = None


Send: TypeAlias = Callable[[Sequence[Sent]], Mapping[str, Answer]]
"""Sends a batch; the answer for each event id. Of what is left out nothing is known."""


class Evidence(NamedTuple):
    """What is known of one message, from the places where it is known."""

    committed: bool
    forwarded: bool
    applied: bool


class Outbox(Protocol):
    """An opened outbox with its consumer. Changes have numbers, 1, 2 …: versions of one business object.

    Time is `time.time()` and `time.sleep()`, which are virtual here; a database's own clock is not.

    Optional members: `lease_s`, seconds that a relay's claim lasts. `order`, what the consumer needs: "snapshot" (each
    message holds the whole object; then `shown()` tells the version it shows) or "delta" (each holds a change).
    `ask(number)`: store a command, as `put` stores a fact; `kind(number)`: "fact" or "command".
    `dead_letters()`: numbers that are not sent any more; `put_back(number)`: send one again.
    `purge(older_than_s)`: clean up; `oldest_waiting_s()`: age of the oldest message not sent.
    `evidence(number)`: an Evidence.
    """

    def put(self, number: int, before_commit: Callable[[], None]) -> None:
        """Make a change and store its message as the application does, calling `before_commit()` before it commits.

        A change that is there already is not made again.
        """

    def relay(self, send: Send, name: str) -> None:
        """One round of the relay with that name: hand what is due to `send`, and record the answers."""

    def consume(self, message: Sent) -> None:
        """Let the consumer have a message."""

    def changed(self, number: int) -> bool:
        """Whether the change is committed."""

    def stored(self, number: int) -> bool:
        """Whether the outbox has its message, sent or not."""

    def pending(self) -> int:
        """How many messages are still to be sent; dead letters are not."""

    def applied(self, number: int) -> int:
        """How often the consumer has applied the change."""

    def close(self) -> None:
        """Close every connection."""


class Adapter(Protocol):
    """What `module:adapter` names.

    Optional members: `databases`, URLs of databases on servers; each is copied, and `open` gets the copies' URLs.
    `ignore`, columns that decide nothing, such as a count of attempts ("outbox.attempts").
    """

    def prepare(self, directory: Path) -> None:
        """Make empty databases in a directory, as a deployment leaves them."""

    def open(self, directory: Path, *urls: str) -> Outbox:
        """Open them; twice in one process for two relays."""
