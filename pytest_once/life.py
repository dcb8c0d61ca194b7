"""A life under direction: the parent decides at each boundary, and sees what a successor would find there."""

from __future__ import annotations

import linecache
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_once.boundaries import GO, Boundary, Order
from pytest_once.canonical import Naming, masked_text
from pytest_once.clock import WINDOW_S
from pytest_once.faults import OPTION, Delivery
from pytest_once.incarnation import At, Channel, Died, Ended, Hung, Incarnation, Misuse, Request
from pytest_once.measured import Told
from pytest_once.world import Picture, World


@dataclass(frozen=True, slots=True)
class Birth:
    """What differs between incarnations besides the world.

    number: 0 for the first. variant: 0, or another number for other randomness. start_s: virtual epoch seconds.
    explain: whether anybody will read the traceback of what it raises (making one takes longer than most lives).
    """

    number: int
    variant: int
    start_s: float
    explain: bool = False


Body = Callable[[Channel, Birth], Ended]


@dataclass(frozen=True, slots=True)
class Sight:
    """The world at one moment: picture, virtual time, and the random texts made on the way here."""

    picture: Picture
    now_s: float
    tokens: frozenset[str]


@dataclass(frozen=True, slots=True)
class Passage:
    """A boundary that was reached, the fault ordered there, and what the world was before it, if that was looked at.

    fault: also an option other than the first ("option:2"). delivered: the requests on their way that arrived just
    before, one after the other; undelivered: the world before that.
    """

    boundary: Boundary
    fault: str | None
    picture: Picture | None
    now_s: float
    tokens: frozenset[str]
    delivered: tuple[Delivery, ...] = ()
    undelivered: Picture | None = None

    @property
    def sight(self) -> Sight | None:
        return None if self.picture is None else Sight(self.picture, self.now_s, self.tokens)


@dataclass(slots=True)
class Life:
    """What happened in one incarnation. ending is None when it was killed; last is the world it left.

    violated_at: number of the boundary before which something untrue was seen, which nothing later can mend.
    """

    passages: list[Passage] = field(default_factory=list)
    ending: Ended | Died | Hung | Misuse | Looped | None = None
    last: Sight | None = None
    violated_at: int | None = None

    @property
    def sights(self) -> list[Sight | None]:
        """The world before each boundary, where it was looked at, and the world that was left."""
        return [*(passage.sight for passage in self.passages), self.last]

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
    """fault: soft fault to perform here. kill: SIGKILL before the boundary instead. look: take a picture first.

    option: at a choice, which option to take. deliver: the requests on their way that arrive first.
    """

    fault: str | None = None
    kill: bool = False
    look: bool = True
    option: int = 0
    deliver: tuple[Delivery, ...] = ()


class OutOfTime(Exception):
    """The deadline has passed in the middle of a life, which was killed."""


Director = Callable[[int, Boundary], Decision]


def let_live(index: int, boundary: Boundary) -> Decision:
    """The director who never interferes, and looks everywhere."""
    return Decision()


@dataclass(slots=True)
class Stage:
    """Where lives are lived: the body, its world, and what the parent can do for a child.

    services: name of a child's Request -> what answers it. output: file that receives what children print.
    deliver(delivery, now_s): lets a request on its way arrive. state_of: tells states apart; until it is known which
    values are volatile, by their bytes. until: monotonic instant after which nobody lives any more. now_s: virtual
    time at the boundary where a child stands and waits.
    """

    body: Body
    world: World
    output: Path
    life_timeout_s: float
    max_boundaries: int
    services: Mapping[str, Callable[[Any], Any]]
    deliver: Callable[[Delivery, float], None]
    state_of: Callable[[Sight], str] = lambda sight: sight.picture.key
    until: float = math.inf
    lives: int = 0
    now_s: float = 0.0
    modules: frozenset[str] = frozenset()
    _measured: Told = field(default_factory=Told)
    _leaving: Incarnation | None = None

    def put(self, picture: Picture) -> None:
        """Make the world what the picture shows, once nobody lives on it any more."""
        self.settle()
        self.world.put(picture)

    def settle(self) -> None:
        """Wait until the child that ended last is gone."""
        if self._leaving is not None:
            leaving, self._leaving = self._leaving, None
            leaving.close()

    def live(
        self,
        birth: Birth,
        tokens: frozenset[str],
        direct: Director,
        *,
        kill_at_end: bool = False,
        max_boundaries: int | None = None,
    ) -> Life:
        """Live once on the world as it is now. A child that ended by itself may still be leaving; see `settle`.

        kill_at_end: SIGKILL it after its last boundary, before anybody hears that it has finished. max_boundaries:
        another limit than the stage's. Raises OutOfTime.
        """
        self.settle()
        self.lives += 1
        body = self.body
        child = Incarnation(lambda channel: body(channel, birth), timeout_s=self.life_timeout_s, output=self.output)
        try:
            life = self._directed(child, tokens, direct, max_boundaries or self.max_boundaries)
            if isinstance(life.ending, Ended) and not kill_at_end:
                child.dismiss()
                self._leaving = child  # its end takes milliseconds in which the parent has other things to do
        finally:
            if self._leaving is not child:
                child.close()
        if life.last is None:
            passage = life.passages[-1] if life.passages else None
            now_s, tokens = (birth.start_s, tokens) if passage is None else (passage.now_s, passage.tokens)
            life.last = Sight(self.world.take(now_s), now_s, tokens)
        return life

    def _directed(self, child: Incarnation, tokens: frozenset[str], direct: Director, max_boundaries: int) -> Life:
        """Listen and order until the life is over. `last` stays unset when the child did not end by itself."""
        life = Life()
        occurrences: dict[tuple[str, str, str], int] = {}
        while True:
            message = child.listen()
            if time.monotonic() > self.until:
                raise OutOfTime
            if isinstance(message, Request):
                child.answer(self._serve(message))
                continue
            if not isinstance(message, At):
                break
            tokens |= frozenset(message.minted)
            boundary = _plain(message.boundary, tokens, occurrences)
            linecache.getlines(boundary.site.file)  # or each child would read the file anew
            self.now_s = message.now_s
            decision = direct(len(life.passages), boundary)
            undelivered = None
            if decision.deliver:
                undelivered = self.world.take(message.now_s)
                for delivery in decision.deliver:
                    self.deliver(delivery, message.now_s)
            picture = self.world.take(message.now_s) if decision.look else None
            fault = f"{OPTION}:{decision.option}" if decision.option else decision.fault
            life.passages.append(
                Passage(boundary, fault, picture, message.now_s, tokens, decision.deliver, undelivered)
            )
            if decision.kill:
                child.kill()
                return life
            if len(life.passages) > max_boundaries:
                child.kill()
                life.ending = Looped(max_boundaries, self._still_new(life))
                return life
            child.answer(GO if fault is None else Order(decision.fault, decision.option))
        life.ending = message
        if isinstance(message, Ended):
            self.modules |= frozenset(message.modules)
            self._measured.add(message.ran)
            life.last = Sight(self.world.take(message.now_s), message.now_s, tokens | frozenset(message.minted))
        return life

    def _still_new(self, life: Life) -> bool:
        """Whether the second half of a life's boundaries showed states that the first half did not."""
        states = [self.state_of(sight) for passage in life.passages if (sight := passage.sight) is not None]
        half = len(states) // 2
        return bool(set(states[half:]) - set(states[:half]))

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
