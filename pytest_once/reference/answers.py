"""What is known after one message was sent. Silence is `Failed`, and `Failed` does not say that nothing happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Forwarded:
    """The receiver has it and will not lose it; nothing is known yet about what became of it (a broker, a 202)."""

    evidence: str


@dataclass(frozen=True, slots=True)
class Applied:
    """The receiver's change has committed, or had before, or a newer snapshot has replaced it: its own evidence."""

    evidence: str


@dataclass(frozen=True, slots=True)
class Refused:
    """It has not acted and never will for this message. Ends a command; makes a dead letter of a fact."""

    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """Nothing is known: no answer, a lost answer, an error. The same message is sent again."""

    reason: str


@dataclass(frozen=True, slots=True)
class Gap:
    """Nothing was applied: versions first to last of the object have to come before."""

    first: int
    last: int


Answer: TypeAlias = Forwarded | Applied | Refused | Failed | Gap
