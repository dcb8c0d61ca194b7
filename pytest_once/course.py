"""A course of events, decided step by step: intents are handed over, workers live and die, time passes.

One world from beginning to end: nothing is restored in between, a crash is a real SIGKILL, and after each step it is
judged what has happened. Knows nothing of pytest or Hypothesis.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_once.boundaries import Boundary
from pytest_once.canonical import Naming
from pytest_once.checks import Counts, LogicalKey, Oracle, Verdict
from pytest_once.clock import WINDOW_S
from pytest_once.conviction import NotOnce, conviction
from pytest_once.evidence import Evidence
from pytest_once.explorer import RESTART_S
from pytest_once.faults import END, Delivery, LifePlan, Schedule, mark_of
from pytest_once.incarnation import Ended
from pytest_once.judgement import Finding, judge_attempts, judge_end, judge_moment
from pytest_once.ledger import canonical_payload
from pytest_once.life import Birth, Decision, Life, Sight, Stage
from pytest_once.once import Once
from pytest_once.premises import Premises, ProviderServer
from pytest_once.recording import FrontEnd, Recorder
from pytest_once.replaying import A_DAY_S, PATIENCE, tell, trouble_of
from pytest_once.report import LifeStory, Report, Violation
from pytest_once.scenario import from_marker, profile_limits
from pytest_once.stores import StoreError
from pytest_once.trouble import Unexplorable
from pytest_once.world import Picture

AT_ONCE = 3
"""Restarts in a row that a process gets to complete before time passes between them."""

_LOCK_WAIT_S = 0.05
"""Seconds that a worker waits for a lock of SQLite's which another, stopped one holds: it would wait in vain."""

_ENDS = ("done", "failed", "unknown")
"""Claims after which nobody calls again."""

Body = Callable[[Once, str, Any], object]
"""What a worker does with an intent: body(once, intent, payload), sync or async."""


@dataclass(frozen=True, slots=True)
class Learnt:
    """What the fault-free runs of an intent have shown: the effects it should have, and the boundaries it passes."""

    oracle: Oracle
    boundaries: tuple[Boundary, ...]


@dataclass(slots=True)
class Job:
    """An intent that was handed over. completed: some life has said how it ended, and was heard."""

    intent: str
    payload: Any
    learnt: Learnt
    completed: bool = False

    @property
    def oracle(self) -> Oracle:
        """What it should have done when all is well."""
        return self.learnt.oracle

    def calls(self, fault: str) -> int:
        """How many of its calls can fail so, in a fault-free run."""
        return sum(fault in boundary.faults for boundary in self.learnt.boundaries)


@dataclass(frozen=True, slots=True)
class _Meanwhile:
    """What a second worker did while the first stood still. here: the world when it came, with counts."""

    here: Sight
    counts: Counts
    number: int
    life: Life


@dataclass(slots=True)
class _Disturbance:
    """The director of one life. Boundaries are counted from 0.

    crash: boundary before which it is killed. fault: what befalls the at-th call that can fail so. stop: boundary
    before which it waits while `meanwhile` happens.
    """

    crash: int | None = None
    fault: str | None = None
    at: int = 0
    stop: int | None = None
    meanwhile: Callable[[], None] = lambda: None
    crashed_before: str | None = None
    _failing: int = 0

    def direct(self, index: int, boundary: Boundary) -> Decision:
        if index == self.crash:
            self.crashed_before = mark_of(boundary)
            return Decision(kill=True)
        if index == self.stop:
            self.meanwhile()
        if self.fault in boundary.faults:
            self._failing += 1
            if self._failing == self.at + 1:
                return Decision(self.fault)
        return Decision()


class Course:
    """What has happened so far, and what may happen next. May begin anew any number of times; close it at the end."""

    def __init__(
        self, name: str, server: ProviderServer, marker: Mapping[str, Any], render: Callable[[Report], str]
    ) -> None:
        """marker: arguments of `once_effect`. render: a report as text. Raises ScenarioError."""
        expectations, limits = from_marker((), marker, profile_limits("standard"))
        self._name = name
        self._render = render
        self._premises = Premises(server)
        self._recorder = Recorder(self._premises, FrontEnd(act=self._act), expectations, limits)
        naming = Naming(ignore=expectations.ignore, clock_window=WINDOW_S)
        self._evidence = Evidence(self._stage.world, naming)
        self._learnt: dict[str, Learnt] = {}

    def begin(self, body: Body) -> None:
        """The world is as it was at first, and nothing has been handed over. body: what a worker does."""
        self._body = body
        self.jobs: dict[str, Job] = {}
        self.story: list[LifeStory] = []
        self._plans: list[LifePlan] = []
        self._acting: tuple[str, Any] = ("", None)
        self._in_a_hurry = False
        self._births = 0
        self._waited_s = 0.0
        self._sight = self._recorder.root
        self._stage.put(self._sight.picture)

    def close(self) -> None:
        """Give everything up: the last child, the world, the ledger."""
        self._recorder.settle()
        self._premises.close()

    @property
    def _stage(self) -> Stage:
        return self._recorder.stage

    # -- steps ---------------------------------------------------------------------------------------

    def submit(self, intent: str, payload: Any) -> None:
        """Hand an intent over; no worker has begun with it. Handing it over again changes nothing."""
        if intent not in self.jobs:
            self.jobs[intent] = Job(intent, payload, self._learn(intent, payload))

    def deliver(self, intent: str) -> None:
        """A worker lives undisturbed."""
        self._live(self.jobs[intent], _Disturbance())

    def crash(self, intent: str, at: int) -> None:
        """A worker is killed before its at-th boundary, or after its last one if it has not so many."""
        self._live(self.jobs[intent], _Disturbance(crash=at), killed=True)

    def fail(self, intent: str, fault: str, at: int) -> None:
        """A soft fault befalls the at-th call of a worker that can fail so."""
        self._live(self.jobs[intent], _Disturbance(fault=fault, at=at))

    def overtake(self, intent: str, at: int) -> None:
        """A worker stops before its at-th boundary, a second one does all of the same, and then the first goes on."""
        job = self.jobs[intent]
        met: list[_Meanwhile] = []

        def meanwhile() -> None:
            here = Sight(self._stage.world.take(), self._stage.now_s, self._sight.tokens)
            counts = self._evidence.counts(self._judged(here))
            number = self._births
            self._in_a_hurry = True
            try:
                life = self._lived(job, _Disturbance(), here.now_s, False)
            finally:
                self._in_a_hurry = False
            self._stage.settle()
            met.append(_Meanwhile(here, counts, number, life))

        self._live(job, _Disturbance(stop=at, meanwhile=meanwhile), met=met)

    def wait(self, seconds: float) -> None:
        """Time passes, while no worker lives."""
        self._waited_s += seconds
        self._sight = replace(self._sight, now_s=self._sight.now_s + seconds)

    def receipts_live_s(self) -> float:
        """How long it takes until every provider may have forgotten; 0 if none ever forgets, or none was asked."""
        if not self._evidence.keys_sent(self._sight):
            return 0.0
        declared = self._premises.once.ledger.providers()
        longest_s = max((_longest_s(json.loads(one.contract)) for one in declared), default=0.0)
        return longest_s + 1.0 if longest_s else 0.0

    def on_their_way(self) -> list[Delivery]:
        """What may arrive now."""
        return self._evidence.deliveries(self._sight, self._sight.now_s)

    def arrive(self, delivery: Delivery) -> None:
        """A request that was on its way arrives, or accepted work ends."""
        before = self._evidence.counts(self._judged(self._sight))
        what = self._evidence.delivered(self._sight, delivery, self._sight.now_s)
        self._stage.settle()
        self._stage.deliver(delivery, self._sight.now_s)
        self._sight = replace(self._sight, picture=self._stage.world.take())
        now = self._evidence.counts(self._sight)
        grown = tuple((key, n) for key, n in now.items() if n != before.get(key, 0))
        self._tell(
            LifeStory(len(self.story) + 1, (), what, False, None, grown, between=True), LifePlan(deliver=delivery)
        )
        self.check()

    def most_boundaries(self) -> int:
        """How many boundaries a worker has passed at most, undisturbed."""
        return max((len(job.learnt.boundaries) for job in self.jobs.values()), default=0)

    def most_calls(self, faults: Sequence[str]) -> int:
        """How many calls of a worker can fail at most, in one of these ways."""
        return max((job.calls(fault) for job in self.jobs.values() for fault in faults), default=0)

    def check(self) -> None:
        """No intent has more effects than it should, and none was taken for another."""
        self._convict(judge_moment(self._evidence, self._judged(self._sight)))

    def finish(self) -> None:
        """Nothing fails any more: every intent must complete, and what is still on its way must do no harm."""
        for attempt in range(PATIENCE):
            waiting = [job for job in self.jobs.values() if not job.completed]
            if waiting and attempt >= AT_ONCE:
                self.wait(self._until_the_next_instant_s())
            for job in waiting:
                self._live(job, _Disturbance())
        for job in self.jobs.values():
            if not job.completed:
                self._convict(self._never_completes(job))
        while deliveries := self.on_their_way():
            self.arrive(deliveries[0])

    # -- a life --------------------------------------------------------------------------------------

    def _live(
        self, job: Job, disturbance: _Disturbance, *, killed: bool = False, met: Sequence[_Meanwhile] = ()
    ) -> None:
        before = self._evidence.counts(self._judged(self._sight))
        number = self._births
        life = self._lived(job, disturbance, self._sight.now_s + (RESTART_S if number else 0.0), killed)
        assert life.last is not None
        plan = LifePlan(crash=(disturbance.crashed_before or END) if killed else None)
        self._sight = life.last
        for second in met:
            self._tell_parted(number, life, disturbance.stop or 0, before, second)
            self._judge(job, second.number, second.life, heard=True)
        if not met:
            self._tell(tell(number, plan, life, self._evidence, before), plan)
        self._judge(job, number, life, heard=not killed)

    def _lived(self, job: Job, disturbance: _Disturbance, start_s: float, killed: bool) -> Life:
        self._acting = job.intent, job.payload
        birth = Birth(self._births, 0, start_s)
        self._births += 1
        try:
            return self._stage.live(birth, self._sight.tokens, disturbance.direct, kill_at_end=killed)
        except StoreError as error:
            raise self._no_answer(Verdict.INCONCLUSIVE, str(error)) from None

    def _judge(self, job: Job, number: int, life: Life, *, heard: bool) -> None:
        assert life.last is not None
        for sight in life.sights:
            if sight is not None:
                self._convict(judge_moment(self._evidence, self._judged(sight)))
        self._convict(trouble_of(life))
        if isinstance(life.ending, Ended) and heard:
            # Of the others nobody has said that they are done.
            self._evidence.oracle = job.oracle
            expectations = self._recorder.expectations
            self._convict(judge_end(self._evidence, expectations, life.last, life.ending))
            self._convict(judge_attempts(self._evidence, expectations, life.last, number))
            job.completed = job.completed or life.ending.claim in _ENDS

    def _judged(self, sight: Sight) -> Sight:
        """The sight, to be judged by what all intents together should have."""
        self._evidence.oracle = _together([job.oracle for job in self.jobs.values()])
        return sight

    def _never_completes(self, job: Job) -> Finding:
        self._evidence.oracle = job.oracle
        counts = self._evidence.counts(self._sight)
        missing = job.oracle.missing(counts)
        key = next(iter(missing), None)
        return Finding(
            Verdict.STUCK,
            key,
            None if key is None else job.oracle.intended[key],
            None if key is None else missing[key],
            f"nothing fails any more, yet {job.intent} has not completed in {PATIENCE} further lives, the last of them "
            "with time in between",
        )

    def _until_the_next_instant_s(self) -> float:
        ahead = [instant for instant in self._evidence.instants(self._sight) if instant > self._sight.now_s]
        return ahead[0] - self._sight.now_s if ahead else A_DAY_S

    # -- the recording -------------------------------------------------------------------------------

    def _learn(self, intent: str, payload: Any) -> Learnt:
        """What the intent does by itself, from the beginning, when nothing fails."""
        name = canonical_payload([intent, payload])
        known = self._learnt.get(name)
        if known is not None:
            return known
        self._acting = intent, payload
        self._stage.settle()
        present = self._stage.world.take()
        self._stage.put(self._with_all(self._recorder.root.picture))
        try:
            recording = self._recorder.record()
        except Unexplorable as problem:
            raise self._no_answer(problem.verdict, f"{intent}: {problem}", problem.traceback) from None
        except (StoreError, ValueError) as problem:
            raise self._no_answer(Verdict.INCONCLUSIVE, f"{intent}: {problem}") from None
        finally:
            self._stage.put(self._with_all(present))
        self._sight = replace(self._sight, picture=self._stage.world.take())
        self._learnt[name] = known = Learnt(recording.evidence.oracle, recording.first.boundaries)
        return known

    def _with_all(self, picture: Picture) -> Picture:
        """The picture, with the beginning of what has been tracked since."""
        there = {name for name, _ in picture.snapshots}
        since = [(name, snapshot) for name, snapshot in self._recorder.root.picture.snapshots if name not in there]
        return Picture((*picture.snapshots, *since))

    def _act(self, once: Once) -> object:
        """In a child: what a worker does."""
        if self._in_a_hurry:
            _wait_briefly_for_locks()
        answer = self._body(once, *self._acting)
        return asyncio.run(answer) if inspect.iscoroutine(answer) else answer

    # -- telling -------------------------------------------------------------------------------------

    def _tell(self, story: LifeStory, plan: LifePlan) -> None:
        self.story.append(replace(story, after_s=self._waited_s))
        self._plans.append(plan)
        self._waited_s = 0.0

    def _tell_parted(self, number: int, life: Life, stopped: int, before: Counts, second: _Meanwhile) -> None:
        """A worker that stopped, the one that came meanwhile, and what the first then did."""
        assert second.life.last is not None
        at = life.passages[stopped]
        first = tell(number, LifePlan(), Life(life.passages[:stopped], None, second.here), self._evidence, before)
        ending = f"stands still before {at.boundary.target}; another worker comes"
        self._tell(replace(first, ending=ending), LifePlan())
        self._tell(tell(second.number, LifePlan(), second.life, self._evidence, second.counts), LifePlan())
        rest = Life(life.passages[stopped:], life.ending, life.last)
        counts = self._evidence.counts(second.life.last)
        told = tell(number, LifePlan(), rest, self._evidence, counts)
        self._tell(replace(told, ending=f"the first worker again: {told.ending}"), LifePlan())

    def _convict(self, finding: Finding | None) -> None:
        if finding is None:
            return
        violation = Violation(
            finding.verdict,
            finding.key,
            finding.expected,
            finding.actual,
            Schedule(tuple(self._plans)),
            finding.detail,
            confirmed=True,
            story=tuple(self.story),
        )
        report = Report(name=self._name, verdict=finding.verdict, coverage="replay", violations=(violation,))
        raise conviction(report, self._render(report))

    def _no_answer(self, verdict: Verdict, problem: str, trace: str = "") -> NotOnce:
        report = Report(name=self._name, verdict=verdict, coverage="none", problem=problem, traceback=trace)
        return conviction(report, self._render(report))


def _together(oracles: list[Oracle]) -> Oracle:
    """What several intents should have when all of them are done."""
    intended: Counter[LogicalKey] = Counter()
    declared: set[str] = set()
    volatile: dict[tuple[str, str], frozenset[str]] = {}
    for oracle in oracles:
        intended.update(oracle.intended)
        declared.update(oracle.declared)
        for place, leaves in oracle.volatile.items():
            volatile[place] = volatile.get(place, frozenset()) | leaves
    key = oracles[0].key if oracles else None
    return Oracle(dict(intended), tuple(sorted(declared, key=lambda name: (-len(name), name))), key, volatile)


def _longest_s(contract: Mapping[str, Any]) -> float:
    """The longest time that a contract keeps a receipt, in seconds; 0 for none, and for one that never expires."""
    kept = contract.get("retention_s")
    bounds = kept if isinstance(kept, list) else [kept]
    return max((float(bound) for bound in bounds if isinstance(bound, (int, float))), default=0.0)


def _wait_briefly_for_locks() -> None:
    """In a child: SQLite's own wait takes its real time, five seconds unless the code says otherwise."""
    connect = sqlite3.connect

    def briefly(*arguments: Any, **named: Any) -> sqlite3.Connection:
        if len(arguments) < 2:
            named["timeout"] = min(named.get("timeout", _LOCK_WAIT_S), _LOCK_WAIT_S)
        connection: sqlite3.Connection = connect(*arguments, **named)
        return connection

    own: Any = sqlite3
    own.connect = own.dbapi2.connect = briefly
