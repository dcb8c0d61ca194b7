"""Schedules by position, before anybody knows what body they meet; and fitting one to a body by living it.

Knows nothing of Hypothesis.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_once.boundaries import Boundary
from pytest_once.evidence import Evidence
from pytest_once.explorer import RESTART_S
from pytest_once.faults import END, LifePlan, PlannedFault, Schedule, mark_of
from pytest_once.incarnation import Ended
from pytest_once.life import Birth, Decision, Life, Sight
from pytest_once.once import Once
from pytest_once.premises import Premises, ProviderServer
from pytest_once.recording import FrontEnd, Recorder, Recording
from pytest_once.replaying import PATIENCE
from pytest_once.scenario import from_marker, profile_limits


@dataclass(frozen=True, slots=True)
class FaultAt:
    """A soft fault at the number-th boundary of a life (from 0) that can fail so."""

    fault: str
    number: int = 0


@dataclass(frozen=True, slots=True)
class LifeByPosition:
    """What happens to one incarnation, by position.

    crash: number of the boundary before which it is killed (from 0); past the last one, after that; None to leave it
    alone. after_s: seconds that pass before it starts. arrives: of the requests on their way the one with this number
    (from 0) arrives first, while no process lives.
    """

    crash: int | None = None
    faults: tuple[FaultAt, ...] = ()
    after_s: float = 0.0
    arrives: int | None = None


@dataclass(frozen=True, slots=True)
class ScheduleByPosition:
    """Incarnations that are disturbed, one after the other; those that follow are not."""

    lives: tuple[LifeByPosition, ...] = ()


@dataclass(slots=True)
class _Disturbed:
    """The director of one life, and what it has done."""

    life: LifeByPosition
    done: list[PlannedFault] = field(default_factory=list)
    crashed: str | None = None
    _met: dict[str, int] = field(default_factory=dict)

    def direct(self, index: int, boundary: Boundary) -> Decision:
        if index == self.life.crash:
            self.crashed = mark_of(boundary)
            return Decision(kill=True)
        for planned in self.life.faults:
            if planned.fault not in boundary.faults:
                continue
            met = self._met[planned.fault] = self._met.get(planned.fault, -1) + 1
            if met == planned.number:
                self.done.append(PlannedFault(planned.fault, mark_of(boundary)))
                return Decision(planned.fault)
        return Decision()


class Rehearsal:
    """A body that was recorded, on premises of its own, to try schedules on. Close it at the end."""

    def __init__(self, body: Callable[[Once], Any], marker: Mapping[str, Any], profile: str = "deep") -> None:
        """marker: arguments of `once_effect`. Raises ScenarioError, StoreError or Unexplorable."""
        expectations, limits = from_marker((), marker, profile_limits(profile))

        def act(once: Once) -> object:
            answer = body(once)
            return asyncio.run(answer) if inspect.iscoroutine(answer) else answer

        self._server = ProviderServer()
        self._premises = Premises(self._server)
        self._redeliver = expectations.redeliver
        try:
            self._recorder = Recorder(self._premises, FrontEnd(act=act), expectations, limits)
            self._recording: Recording = self._recorder.record()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if hasattr(self, "_recorder"):
            self._recorder.settle()
        self._premises.close()
        self._server.close()

    @property
    def boundaries(self) -> tuple[Boundary, ...]:
        """Those of the fault-free life."""
        return self._recording.first.boundaries

    def fit(self, schedule: ScheduleByPosition) -> Schedule:
        """The schedule as it goes on this body: what cannot happen is left out, and lives are added until it ends.

        Runs the body, once for each life.
        """
        evidence, stage = self._recording.evidence, self._recording.stage
        stage.put(self._recording.root.picture)
        self._sight: Sight = self._recording.root
        self._lives = 0
        plans: list[LifePlan] = []
        completed = False
        for life in schedule.lives:
            plans += self._arrived(evidence, life)
            plan, ended = self._lived(life)
            plans.append(plan)
            completed |= ended and plan.crash is None
        seen = [evidence.digest(self._sight)]
        after = self._redeliver if completed else self._redeliver + 1
        for _ in range(PATIENCE):
            if not after:
                break
            plan, ended = self._lived(LifeByPosition())
            plans.append(plan)
            after -= ended
            if not ended and evidence.digest(self._sight) in seen:
                break  # it will never complete
            seen.append(evidence.digest(self._sight))
        return Schedule(tuple(plans) or (LifePlan(),))

    def _arrived(self, evidence: Evidence, life: LifeByPosition) -> list[LifePlan]:
        deliveries = evidence.deliveries(self._sight, self._sight.now_s)
        if life.arrives is None or not deliveries:
            return []
        delivery = deliveries[life.arrives % len(deliveries)]
        stage = self._recording.stage
        stage.settle()
        stage.deliver(delivery, self._sight.now_s)
        self._sight = replace(self._sight, picture=stage.world.take())
        return [LifePlan(deliver=delivery)]

    def _lived(self, life: LifeByPosition) -> tuple[LifePlan, bool]:
        """The plan that was carried out, and whether the life has said how it ended."""
        after_s = life.after_s if self._lives else 0.0
        start_s = self._sight.now_s + (RESTART_S + after_s if self._lives else 0.0)
        disturbed = _Disturbed(life)
        lived: Life = self._recording.stage.live(
            Birth(self._lives, 0, start_s), self._sight.tokens, disturbed.direct, kill_at_end=life.crash is not None
        )
        self._lives += 1
        assert lived.last is not None
        self._sight = lived.last
        crash = None if life.crash is None else disturbed.crashed or (END if isinstance(lived.ending, Ended) else None)
        ended = isinstance(lived.ending, Ended) and lived.ending.claim in ("done", "failed", "unknown")
        return LifePlan(tuple(disturbed.done), crash, after_s), ended and crash is None


def fit(schedule: ScheduleByPosition, body: Callable[[Once], Any], **marker: Any) -> str:
    """The id of the schedule as it goes on a body, for `replay`. marker: arguments of `once_effect`.

    Raises ScenarioError, StoreError or Unexplorable for a body that cannot be recorded.
    """
    rehearsal = Rehearsal(body, marker)
    try:
        return str(rehearsal.fit(schedule))
    finally:
        rehearsal.close()
