"""Which tools must pass the gate: levels of side effects, what MCP annotations tell, and the way a call takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

F = TypeVar("F")

LEVEL = "__once_level__"
GATED = "__once_gated__"
"""Attributes of a tool: its declared level, and that it passes the gate."""


class Level(StrEnum):
    """How much a second execution changes."""

    L0 = "L0"
    """Reads: changes nothing."""
    L1 = "L1"
    """Overwrites: a second time changes nothing more, unless somebody else wrote in between."""
    L2 = "L2"
    """Appends: a second time adds a second thing."""
    L3 = "L3"
    """Irreversible: money, mail, deletion."""


MUST_PASS = (Level.L2, Level.L3)


class Route(StrEnum):
    """DIRECT: call it. PROTECT: only through the gate. BLOCK: not at all, since safety cannot be established."""

    DIRECT = "DIRECT"
    PROTECT = "PROTECT"
    BLOCK = "BLOCK"


@dataclass(frozen=True, slots=True)
class Routed:
    """The way for a tool. level: None if nobody knows. reason: one sentence."""

    route: Route
    level: Level | None
    reason: str


def level(value: Level, *, gated: bool = False) -> Callable[[F], F]:
    """Declare a tool's level. gated: it passes the gate inside, where nobody can see it (a workflow's activity)."""

    def mark(tool: F) -> F:
        if gated:
            _note(tool, GATED, True)
        return declare(tool, value)

    return mark


def declare(tool: F, value: Level) -> F:
    """As the decorator `level`, for a tool that exists already.

    Raises ValueError for what is no level, TypeError for a tool that takes no attributes (a definition of MCP: name its
    level in an inventory.Catalog).
    """
    _note(tool, LEVEL, Level(value))
    return tool


def _note(tool: object, name: str, value: object) -> None:
    try:
        # Not through the class: models that check their fields refuse names they do not know.
        object.__setattr__(tool, name, value)
    except AttributeError as error:
        raise TypeError(
            f"a {type(tool).__name__} takes no attributes; declare its function, or name it in an inventory.Catalog"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """The tool annotations of MCP, with the protocol's defaults for what is absent: they assume the worst.

    read_only: changes nothing. destructive: may destroy, not only add. idempotent: a second call with the same
    arguments adds nothing. open_world: deals with others. given: whether there were any at all.
    """

    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False
    open_world: bool = True
    given: bool = False

    @staticmethod
    def of(annotations: object) -> Hints:
        """Read them from an object or a mapping, or from None. What is no truth value counts as absent."""
        names = {
            "read_only": "readOnlyHint",
            "destructive": "destructiveHint",
            "idempotent": "idempotentHint",
            "open_world": "openWorldHint",
        }
        found = {}
        for field, hint in names.items():
            value = annotations.get(hint) if isinstance(annotations, Mapping) else getattr(annotations, hint, None)
            if isinstance(value, bool):
                found[field] = value
        return Hints(**found, given=bool(found))

    @property
    def level(self) -> Level:
        """What they amount to if they are true. openWorldHint decides nothing: a closed world's effect counts too."""
        if self.read_only:
            return Level.L0
        if self.idempotent:
            return Level.L1
        return Level.L3 if self.destructive else Level.L2


def route(
    declared: Level | None,
    annotations: object = None,
    *,
    trusted: bool = False,
    identity: bool = True,
) -> Routed:
    """The way for a tool. declared: its level by whoever deploys it. annotations: as its server describes it.

    trusted: the server's hints are to be believed; otherwise they can make a tool's way harder, never easier.
    identity: whether calls carry the identity of their intent; without one the gate can tell nothing apart.
    """
    hints = Hints.of(annotations)
    known = declared
    why = f"declared {declared}"
    if declared is None and hints.given and trusted:
        known, why = hints.level, f"its trusted server's hints amount to {hints.level}"
    elif declared is None and hints.given:
        known = hints.level if hints.level in MUST_PASS else Level.L3
        why = f"its server's hints amount to {hints.level}, but nobody trusts them, so it is taken for {known}"
    if known is None:
        return Routed(Route.BLOCK, None, "it declares no level, so nobody knows what a second call would do")
    if declared is Level.L0 and hints.given and not hints.read_only:
        return Routed(Route.BLOCK, known, "declared L0, but its server does not call it read-only: one is wrong")
    if known is Level.L0:
        return Routed(Route.DIRECT, known, why)
    if not identity:
        return Routed(Route.BLOCK, known, f"{why}, and its calls carry no identity for the gate to tell them apart")
    return Routed(Route.PROTECT, known, why)


def declared_level(tool: Any) -> Level | None:
    """What `level` or `declare` has noted at a tool, or at the function it stands for; None without."""
    found = getattr(tool, LEVEL, None)
    return found if isinstance(found, Level) else None
