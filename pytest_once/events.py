"""What the engine tells its listeners. Reporters only listen; nothing they do reaches the engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pytest_once.boundaries import Boundary


@dataclass(frozen=True, slots=True)
class Recorded:
    """The fault-free run is done: its boundaries, in order."""

    boundaries: tuple[Boundary, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """After each expanded state: how much is known and how much waits."""

    states: int
    runs: int
    crash_points: int
    waiting: int


@dataclass(frozen=True, slots=True)
class ViolationFound:
    """A violation was seen in the search; it is not confirmed yet."""

    verdict: str
    key: str
    schedule: str


Event = Recorded | Progress | ViolationFound
Listener = Callable[[Event], None]


def silent(event: Event) -> None:
    """The listener of those who do not listen."""
