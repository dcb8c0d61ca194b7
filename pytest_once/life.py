"""A life under direction: the parent decides at each boundary, and sees what a successor would find there."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_once.boundaries import GO, Boundary, Order
from pytest_once.canonical import Naming, masked_text
from pytest_once.clock import WINDOW_S
from pytest_once.incarnation import At, Channel, Died, Ended, Hung, Incarnation, Misuse, Request
from pytest_once.world import Picture, World


@dataclass(frozen=True, slots=True)
class Birth:
    """What differs between incarnations besides the world.

    number: 0 for the first. variant: 0, or another number for other randomness. start_s: virtual epoch seconds.
    """

    number: int
    variant: int
    start_s: float


Body = Callable[[Channel, Birth], Ended]


@dataclass(frozen=True, slots=True)
class Sight:
    """The world at one moment: picture, virtual time, and the random texts made on the way here."""

    picture: Picture
    now_s: float
    tokens: frozenset[str]


@dataclass(frozen=True, slots=True)
class Passage:
    """A boundary that was reached, the fault ordered there, and what the world was before it."""

    boundary: Boundary
    fault: str | None
    sight: Sight | None


@dataclass(slots=True)
class Life:
    """What happened in one incarnation. ending is None when it was killed; last is the world it left."""

    passages: list[Passage] = field(default_factory=list)
    ending: Ended | Died | Hung | Misuse | Looped | None = None
    last: Sight | None = None

    @property
    def boundaries(self) -> tuple[Boundary, ...]:
        return tuple(passage.boundary for passage in self.passages)


@dataclass(frozen=True, slots=True)
class Looped:
    """It passed more boundaries than allowed. progressing: it was still making new worlds when it was stopped."""

    boundaries: int
    progressing: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """fault: soft fault to perform here. kill: SIGKILL before the boundary instead. look: take a picture first."""

    fault: str | None = None
    kill: bool = False
    look: bool = True


Director = Callable[[int, Boundary], Decision]


def let_live(index: int, boundary: Boundary) -> Decision:
    """The director who never interferes, and looks everywhere."""
    return Decision()


@dataclass(slots=True)
class Stage:
    """Where lives are lived: the body, its world, and what the parent can do for a child.

    services: name of a child's Request -> what answers it. output: file that receives what children print.
    """

    body: Body
    world: World
    output: Path
    life_timeout_s: float
    max_boundaries: int
    services: Mapping[str, Callable[[Any], Any]]
    lives: int = 0
    modules: frozenset[str] = frozenset()

    def live(self, birth: Birth, tokens: frozenset[str], direct: Director, *, kill_at_end: bool = False) -> Life:
        """Live once on the world as it is now. The child is gone when this returns.

        kill_at_end: SIGKILL it after its last boundary, before anybody hears that it has finished.
        """
        self.lives += 1
        life = Life()
        seen: dict[str, int] = {}
        occurrences: dict[tuple[str, str, str], int] = {}
        now_s = birth.start_s
        body = self.body
        with Incarnation(
            lambda channel: body(channel, birth), timeout_s=self.life_timeout_s, output=self.output
        ) as child:
            while True:
                message = child.listen()
                if isinstance(message, Request):
                    child.answer(self._serve(message))
                    continue
                if isinstance(message, At):
                    tokens |= frozenset(message.minted)
                    now_s = message.now_s
                    index = len(life.passages)
                    boundary = _plain(message.boundary, tokens, occurrences)
                    linecache.getlines(boundary.site.file)  # or each child would read the file anew
                    decision = direct(index, boundary)
                    sight = Sight(self.world.take(), now_s, tokens) if decision.look else None
                    life.passages.append(Passage(boundary, decision.fault, sight))
                    if sight is not None:
                        seen.setdefault(sight.picture.key, index)
                    if decision.kill:
                        child.kill()
                        break
                    if index >= self.max_boundaries:
                        child.kill()
                        life.ending = Looped(index, any(first > index // 2 for first in seen.values()))
                        break
                    child.answer(GO if decision.fault is None else Order(decision.fault))
                    continue
                life.ending = message
                if isinstance(message, Ended):
                    tokens |= frozenset(message.minted)
                    now_s = message.now_s
                    self.modules |= frozenset(message.modules)
                    life.last = Sight(self.world.take(), now_s, tokens)
                    child.kill() if kill_at_end else child.dismiss()
                break
        if life.last is None:
            life.last = Sight(self.world.take(), now_s, tokens)
        return life

    def _serve(self, request: Request) -> Any:
        try:
            return self.services[request.what](request.argument)
        except Exception as error:
            return error


def _plain(boundary: Boundary, tokens: frozenset[str], occurrences: dict[tuple[str, str, str], int]) -> Boundary:
    """The boundary without random parts in its target, counted anew among its likes."""
    target = masked_text(boundary.target, Naming(tokens, clock_window=WINDOW_S))
    identity = (boundary.kind, target, boundary.site.anchor)
    occurrence = occurrences[identity] = occurrences.get(identity, 0) + 1
    return replace(boundary, target=target, occurrence=occurrence)
