"""Stores: the parts of a world that outlive a process, each with a picture that can be put back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from pytest_once.canonical import Row
from pytest_once.scanning import Cell

Ignored = Callable[[str, str], bool]
"""Whether `ignore=` names the value in that place (as in the store's rows) and column."""

Other = Callable[[Cell], Cell]
"""Another value of the same kind and form; different ones stay different."""


class StoreError(RuntimeError):
    """A store cannot be pictured or put back; the message says what is in the way and what to do."""


class Snapshot(Protocol):
    """A picture of one store: opaque and picklable. Equal keys mean equal content."""

    @property
    def key(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Exchanged:
    """A picture with other values where they are ignored.

    changed: columns that hold other values now ("orders/tasks.attempts"). left: those that could not be changed, and
    why.
    """

    snapshot: Any
    changed: tuple[str, ...]
    left: tuple[str, ...] = ()


class Store(Protocol):
    """Something durable that is tracked. Its process under test is stopped while any of these runs.

    A store may also have `address`, the URL that the code under test must use where that is not the one named in
    `once.track(url)`; `began(now_s)`, called with the virtual time (epoch seconds) when an incarnation is about to
    use it; `exchanged(snapshot, ignored: Ignored, other: Other) -> Exchanged`, which may use the store itself, since it
    is put back afterwards: without it nobody checks that what `ignore=` names decides nothing, and the report says
    so; and `close()`, called when the test is over, however it ended.
    """

    @property
    def name(self) -> str:
        """Unique among the stores of a world."""
        ...

    def snapshot(self) -> Any:
        """A `Snapshot` of what another process would find now. Raises StoreError."""
        ...

    def restore(self, snapshot: Any, /) -> None:
        """Make the store exactly what the snapshot shows. Raises StoreError."""
        ...

    def rows(self, snapshot: Any, /) -> list[Row]:
        """The snapshot's logical content, in an order that depends on the content only."""
        ...
