"""What a migration is: numbered, named, and the same on both databases except where it says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Dialect(StrEnum):
    """The two databases."""

    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"


@dataclass(frozen=True, slots=True)
class Migration:
    """statements: for both databases, first. only: what one of them needs besides.

    Types that both know: TEXT, BIGINT, DOUBLE PRECISION (instants, in seconds since 1970).
    """

    number: int
    name: str
    statements: tuple[str, ...]
    only: Mapping[Dialect, tuple[str, ...]] = field(default_factory=dict)

    def for_dialect(self, dialect: Dialect) -> tuple[str, ...]:
        return (*self.statements, *self.only.get(dialect, ()))
