"""The graph search: every state that any number of crashes can leave, until none is new.

Nodes are states (digests of the world, and how often the call was delivered after it had completed). From each,
one life without faults shows every crash state along its way, and one life for each soft fault shows what
follows from it.
The search is ordered by the number of faults, and of equally many prefers crashes, so that the first story found
is a short one.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from pytest_once.boundaries import Boundary
from pytest_once.checks import Verdict
from pytest_once.clock import BOUNDARY_TAKES_S
from pytest_once.events import Listener, Progress, ViolationFound
from pytest_once.evidence import Evidence
from pytest_once.faults import (
    DELIVER,
    DUPLICATE,
    END,
    KINDS,
    OPTION,
    Delivery,
    LifePlan,
    PlannedFault,
    Schedule,
    mark_of,
)
from pytest_once.graph import Graph, Node, Onward, stuck_states
from pytest_once.incarnation import Died, Ended, Hung, Misuse
from pytest_once.judgement import Finding, judge_afterwards, judge_attempts, judge_end, judge_moment
from pytest_once.life import Birth, Decision, Life, Looped, OutOfTime, Sight, Stage, let_live
from pytest_once.perturbation import differs_anyway, ignored_yet_decisive, outcome_differs, perturbed
from pytest_once.scenario import Expectations, Limits
from pytest_once.trouble import (
    Unexplorable,
    check_announced,
    died_message,
    hung_message,
    misuse_verdict,
    named,
    parting,
    progressing_message,
)
from pytest_once.unannounced import unannounced_change
from pytest_once.world import Picture, PictureShelf

RESTART_S = 1.0
"""Virtual seconds that a restart takes at the least: a clock read after it shows another second."""

AT_ONCE_S = (0.0,)
"""The delays before a restart where the test names none."""

MUCH_LATER_S = 30 * 86400.0
"""A restart after so many seconds must do what an early one does, unless the test names its delays."""

LASTING_BOUNDARIES = 60
"""Boundaries after which a life under a lasting fault is taken to retry for ever, if it makes no new states."""

COMPARED_STATES = 20
"""How many of the states found last are compared at a limit, to name what keeps changing."""

Plan = tuple[tuple[int, str, bool], ...]
"""What happens in one life by position: (index of the boundary; fault, "option:2" or "deliver:1"; whether it lasts)."""


@dataclass(slots=True)
class Explorer:
    """Searches from a root picture. `run()` fills and returns the graph."""

    stage: Stage
    evidence: Evidence
    shelf: PictureShelf
    expectations: Expectations
    limits: Limits
    recorded: Life
    root: Sight
    listener: Listener
    deadline: float
    graph: Graph = field(default_factory=Graph)
    _known: dict[tuple[str, int], int] = field(default_factory=dict)
    _waiting: list[tuple[int, int, int]] = field(default_factory=list)
    _latest: deque[Picture] = field(default_factory=lambda: deque(maxlen=COMPARED_STATES))
    _hung: int = 0
    still_changing: tuple[str, ...] = ()
    exchanged: set[str] = field(default_factory=set)
    not_exchanged: set[str] = field(default_factory=set)

    def run(self) -> Graph:
        """Search to closure or to a limit; `graph.bound` says which limit."""
        self._arrive(self.root, 0, crashes=0, faults=0, parent=None, life=None)
        while self._waiting:
            number = heapq.heappop(self._waiting)[2]
            node = self.graph.nodes[number]
            if node.expanded:
                continue
            if bound := self._limit_reached():
                self.graph.bound = bound
                self.still_changing = self._most_varied()
                self.graph.covered = min(node.cost[0], self.graph.covered or node.cost[0])
                break
            node.expanded = True
            try:
                self._expand(node)
            except OutOfTime:
                node.expanded = False  # not to the end
                heapq.heappush(self._waiting, (*node.cost, number))
                continue  # the limit is told, with what is left
            self.listener(
                Progress(len(self.graph.nodes), self.stage.lives, self.graph.crash_points, len(self._waiting))
            )
        if not self.graph.bound:
            self.graph.findings += stuck_states(self.graph, self.evidence)
        return self.graph

    def _most_varied(self) -> tuple[str, ...]:
        """What differs most among the latest states, random parts of names written as *."""
        tokens: frozenset[str] = frozenset().union(*(node.tokens for node in self.graph.nodes))
        mask = self.evidence.mask(tokens)
        named = (mask(label).replace("~", "*") for label in self.stage.world.most_varied(self._latest))
        # Of the providers' ledger nothing can be ignored.
        return tuple(dict.fromkeys(label for label in named if not label.startswith("ledger/")))

    def _limit_reached(self) -> str:
        if len(self.graph.nodes) > self.limits.max_states:
            return f"max-states={self.limits.max_states}"
        if time.monotonic() > self.deadline:
            return f"deadline={self.limits.deadline_s:g}s"
        return ""

    # -- states --------------------------------------------------------------------------------------

    def _arrive(
        self,
        sight: Sight,
        deliveries: int,
        *,
        crashes: int,
        faults: int,
        parent: Node | None,
        life: LifePlan | None,
        young: bool = False,
    ) -> int:
        """Note a state; returns its number, old or new. young: what is stored there is younger than order tells."""
        digest = self.evidence.digest(sight) + ("/young" if young else "")
        lives = 0 if parent is None else parent.lives + 1
        known = self._known.get((digest, deliveries))
        if parent is not None and life is not None:
            self.graph.ways.setdefault((parent.number, len(self.graph.nodes) if known is None else known), life)
        if known is not None:
            node = self.graph.nodes[known]
            if node.expanded or node.cost <= (crashes + faults, faults):
                return known
            self.shelf.drop(node.picture)
        else:
            known = len(self.graph.nodes)
        node = Node(
            known,
            deliveries,
            crashes,
            faults,
            lives,
            None if parent is None else parent.number,
            life,
            self.shelf.put(sight.picture),
            sight.now_s,
            self.evidence.occurring(sight),
            self.evidence.counts(sight),
            self.evidence.in_flight(sight),
            self.evidence.view(sight),
        )
        if known == len(self.graph.nodes):
            self.graph.nodes.append(node)
            self._latest.append(sight.picture)
        else:
            self.graph.nodes[known] = node
        self._known[digest, deliveries] = known
        heapq.heappush(self._waiting, (*node.cost, known))
        return known

    # -- expansion -----------------------------------------------------------------------------------

    def _expand(self, node: Node) -> None:
        picture = self.shelf.get(node.picture)
        if self.evidence.oracle.excess(self.evidence.expected(Sight(picture, node.now_s, node.tokens))):
            # Too much has been accepted. Nobody can mend that: it only has to be done.
            node.onward = self._let_arrive(node, picture, 0.0)
            self.shelf.drop(node.picture)
            return
        bases: list[Life] = []
        for after_s in self.expectations.restart_after_s if node.parent is not None else (0.0,):
            birth = Birth(node.lives, 0, node.now_s + (RESTART_S + after_s if node.parent is not None else 0.0))

            def live(plan: Plan, birth: Birth = birth) -> Life:
                self.stage.put(picture)
                lasts = any(lasting for _, _, lasting in plan)
                limit = min(LASTING_BOUNDARIES, self.limits.max_boundaries) if lasts else None
                return self.stage.live(birth, node.tokens, _follow(plan), max_boundaries=limit)

            base = self.recorded if node.parent is None else live(())
            bases.append(base)
            change = unannounced_change(self.stage.world, base, Sight(picture, node.now_s, node.tokens))
            if change is not None:
                raise Unexplorable(Verdict.ESCAPED_EFFECT, change)
            onward = self._follow_up(node, base, (), after_s)
            node.after[after_s] = onward
            if self.expectations.ignore:
                self._ignored_decides_nothing(node, picture, birth, base)
            if node.onward is None:
                node.onward = onward
            for _ in self._plans(node, base, live, after_s):
                if bound := self._limit_reached():
                    self.graph.bound = bound
                    self.graph.covered = node.cost[0]
                    break
            self._let_arrive(node, picture, after_s)
        if node.parent is not None and not self.graph.time_matters:
            self._try_much_later(node, picture, bases)
        self.shelf.drop(node.picture)

    def _let_arrive(self, node: Node, picture: Picture, after_s: float) -> Onward | None:
        """Requests that are on their way may arrive while no process lives. Returns what the oldest one leads to."""
        now_s = node.now_s + after_s
        first: Onward | None = None
        for delivery in self._deliveries(Sight(picture, node.now_s, node.tokens), now_s):
            step = LifePlan(after_s=after_s, deliver=delivery)
            self.stage.put(picture)
            self.stage.deliver(delivery, now_s)
            sight = Sight(self.stage.world.take(), now_s, node.tokens)
            finding = judge_moment(self.evidence, sight)
            if finding is not None:
                onward = self._violated(finding, (*self.graph.path(node.number), step))
            else:
                faults = node.faults + 1
                number = self._arrive(
                    sight, node.deliveries, crashes=node.crashes, faults=faults, parent=node, life=step
                )
                onward = Onward("state", number)
            first = first or onward
            if node.settles is None and self.evidence.is_completion(Sight(picture, node.now_s, node.tokens), delivery):
                node.settles = onward
        return first

    def _deliveries(self, sight: Sight, now_s: float) -> list[Delivery]:
        """What may arrive or end. Nobody could complete work that fails for ever, so that is bounded."""
        enough = self.evidence.failures(sight) >= max(1, self.limits.soft_faults)
        possible = self.evidence.deliveries(sight, now_s)
        return [one for one in possible if not (enough and self.evidence.is_failure(sight, one))]

    def _ignored_decides_nothing(self, node: Node, picture: Picture, birth: Birth, base: Life) -> None:
        """States that differ in ignored values are one node: a life must go the same way with others in their place."""
        disturbed = perturbed(self.stage.world, picture, self.expectations.ignore)
        if disturbed is None:
            return
        self.exchanged.update(disturbed.changed)
        self.not_exchanged.update(disturbed.left)
        if not disturbed.changed:
            return
        self.stage.put(disturbed.picture)
        life = self.stage.live(birth, node.tokens, let_live)
        difference = outcome_differs(self.evidence, base, life)
        if difference is None:
            return
        # Not to be blamed on what was exchanged if it is another life each time anyway.
        self.stage.put(picture)
        again = self.stage.live(birth, node.tokens, let_live)
        unsteady = differs_anyway(self.stage.world, self.evidence, base, again)
        if unsteady is not None:
            raise Unexplorable(Verdict.NONDETERMINISTIC, unsteady)
        raise Unexplorable(Verdict.INCONCLUSIVE, ignored_yet_decisive(disturbed, difference))

    def _try_much_later(self, node: Node, picture: Picture, bases: list[Life]) -> None:
        """Times are compared by order, so what code makes of their age is not seen: look whether it makes anything."""
        sight = Sight(picture, node.now_s, node.tokens)
        if not self.evidence.naming.columns and not self.evidence.instants(sight):
            return  # nothing stored could tell it how much time has passed
        if node.settles is not None:
            return  # what will have ended by then is explored by itself
        if self.expectations.restart_after_s != AT_ONCE_S:
            return  # the test names its delays, and the report says so
        self.stage.put(picture)
        late = self.stage.live(Birth(node.lives, 0, node.now_s + MUCH_LATER_S), node.tokens, let_live)
        if any(self._course(late) == self._course(base) for base in bases):
            return
        at = parting(late, bases[-1])
        self.graph.time_matters = (
            f"what it does depends on how much time has passed: restarted {MUCH_LATER_S / 86400:g} days after "
            f"{Schedule(self.graph.path(node.number))}, it went on with {named(late, at)}, where it goes on with "
            f"{named(bases[-1], at)} otherwise, or left other effects. Say which delays to explore, for instance "
            'restart_after=("0s", "1h", "30d")'
        )

    def _course(self, life: Life) -> tuple[object, ...]:
        """What a life did, apart from the values it stored."""
        claim = life.ending.claim if isinstance(life.ending, Ended) else type(life.ending).__name__
        counts = {} if life.last is None else self.evidence.counts(life.last)
        return tuple(boundary.anchor for boundary in life.boundaries), claim, tuple(counts.items())

    def _plans(self, node: Node, base: Life, live: Callable[[Plan], Life], after_s: float) -> Iterator[Plan]:
        """Live each plan of soft faults, choices and arrivals in turn, shortest first; yields it afterwards."""
        waiting: list[tuple[Plan, Life]] = [((), base)]
        while waiting:
            plan, life = waiting.pop(0)
            for index, fault in self._moves(plan, life):
                boundary = life.passages[index].boundary
                once = (*plan, (index, fault, False))
                after = live(once)
                onward = self._follow_up(node, after, once, after_s, like=life)
                if node.parent is None and not plan and fault in KINDS:
                    self.graph.matrix[index, fault] = onward
                waiting.append((once, after))
                yield once
                if fault in KINDS and self._called_again(after, boundary, index, fault):
                    lastingly = (*plan, (index, fault, True))
                    after = live(lastingly)
                    self._follow_up(node, after, lastingly, after_s, like=life)
                    waiting.append((lastingly, after))
                    yield lastingly

    def _moves(self, plan: Plan, life: Life) -> Iterator[tuple[int, str]]:
        """What else may happen in a life after the last step of its plan: (index of the boundary, what)."""
        last, latest = (plan[-1][0], plan[-1][1]) if plan else (-1, "")
        lasting = {life.passages[index].boundary.provider for index, _, lasts in plan if lasts}
        faults = sum(fault in KINDS for _, fault, _ in plan)
        chosen = sum(fault.startswith(OPTION) for _, fault, _ in plan)
        for index, passage in enumerate(life.passages):
            boundary, sight = passage.boundary, passage.sight
            if life.violated_at is not None and index >= life.violated_at:
                return
            if index < last or (index == last and not latest.startswith(DELIVER)) or sight is None:
                continue
            held, waiting = self.evidence.in_flight(sight), self.evidence.requests(sight)
            # Only a provider shows that a request has arrived: what arrives before it is asked for the first time in
            # a life might as well arrive before that life, and between two questions every moment is the same.
            if any(earlier.boundary.provider == boundary.provider for earlier in life.passages[:index]):
                for delivery in self._deliveries(sight, passage.now_s):
                    if held[delivery.number - 1] == boundary.provider:
                        yield index, delivery.step
            if len(boundary.options) > 1 and chosen >= self.limits.choices:
                self.graph.bound = f"choices={self.limits.choices}"
                continue
            for number in range(1, len(boundary.options)):
                yield index, f"{OPTION}:{number}"
            if faults >= self.limits.soft_faults or boundary.provider in lasting:
                continue
            for fault in boundary.faults:
                kept = KINDS[fault].held
                if fault in self.limits.fault_kinds and not (kept and waiting + kept > self.limits.in_flight):
                    yield index, fault

    @staticmethod
    def _called_again(life: Life, boundary: Boundary, index: int, fault: str) -> bool:
        """Whether the provider was called again after a fault, so that a lasting fault would differ.

        One that leaves requests on their way does not last: their number is bounded.
        """
        return (
            fault != DUPLICATE
            and not KINDS[fault].held
            and any(
                passage.boundary.provider == boundary.provider and fault in passage.boundary.faults
                for passage in life.passages[index + 1 :]
            )
        )

    def _follow_up(self, node: Node, life: Life, plan: Plan, after_s: float, like: Life | None = None) -> Onward:
        """Judge a life, note the states it leaves at its crash points and its end."""
        faults = _planned(life, plan)
        if like is not None:
            self._same_so_far(life, like, plan)
        first = plan[-1][0] + 1 if plan else 0
        path = self.graph.path(node.number)
        for index in range(first, len(life.passages)):
            sight = life.passages[index].sight
            assert sight is not None
            self.graph.crash_points += 1
            mark = mark_of(life.passages[index].boundary)
            self.graph.places.setdefault(mark, life.passages[index].boundary)
            crash = LifePlan(faults, mark, after_s)
            finding = judge_moment(self.evidence, sight)
            if finding is not None:
                # What has happened cannot be undone: no need to kill it here, nor to disturb it any further.
                life.violated_at = index
                return self._violated(finding, (*path, LifePlan(faults, None, after_s)))
            number = self._arrive(
                sight,
                node.deliveries,
                crashes=node.crashes + 1,
                faults=node.faults + len(plan),
                parent=node,
                life=crash,
            )
            if node.parent is None and not plan:
                self.graph.matrix[index, "crash"] = Onward("state", number)
            self._die_asleep(node, life, index, replace(crash, asleep=True), len(plan))
        return self._end(node, life, LifePlan(faults, None, after_s), path, bool(plan))

    def _die_asleep(self, node: Node, life: Life, index: int, crash: LifePlan, faults: int) -> None:
        """A process may also die when its wait begins: nothing else is stored, but less time has passed."""
        sight = life.passages[index].sight if index < len(life.passages) else life.last
        if index == 0 or sight is None:
            return  # a wait before the first boundary begins where the node is
        began_s = life.passages[index - 1].now_s + BOUNDARY_TAKES_S
        if sight.now_s - began_s <= BOUNDARY_TAKES_S:
            return
        if self.evidence.naming.columns or self.evidence.instants(sight):
            # Instants are compared by order, so the state may well look the same: it is the ages that differ.
            earlier = replace(sight, now_s=began_s)
            self.graph.crash_points += 1
            self._arrive(
                earlier,
                node.deliveries,
                crashes=node.crashes + 1,
                faults=node.faults + faults,
                parent=node,
                life=crash,
                young=True,
            )

    def _end(self, node: Node, life: Life, ended: LifePlan, path: tuple[LifePlan, ...], faulty: bool) -> Onward:
        last = life.last
        assert last is not None
        schedule = (*path, ended)
        if not isinstance(life.ending, Ended):
            return self._trouble(life, schedule)
        finding = (
            judge_moment(self.evidence, last)
            or judge_end(self.evidence, self.expectations, last, life.ending)
            or judge_attempts(self.evidence, self.expectations, last, node.lives)
        )
        check_announced(self.evidence, life, node.lives)
        if life.ending.incarnation_was_read:
            raise Unexplorable(
                Verdict.INCONCLUSIVE,
                "the body reads once.incarnation, so what it does depends on how often it was restarted and no "
                "two states can be taken for the same; decide on what is stored instead",
            )
        if finding is not None:
            return self._violated(finding, schedule)
        belied = self._belied(last, life.ending, schedule)
        if belied is not None:
            return belied
        faults = node.faults + len(ended.faults)
        claim = life.ending.claim
        self.graph.crash_points += 1
        killed = LifePlan(ended.faults, END, ended.after_s)
        self._die_asleep(node, life, len(life.passages), replace(killed, asleep=True), len(ended.faults))
        unheard = self._arrive(last, node.deliveries, crashes=node.crashes + 1, faults=faults, parent=node, life=killed)
        if node.parent is None and not faulty:
            self.graph.matrix[len(life.passages), "crash"] = Onward("state", unheard)
        if claim in ("none", "in_progress"):
            number = self._arrive(last, node.deliveries, crashes=node.crashes, faults=faults, parent=node, life=ended)
            return Onward("state", number)
        if node.deliveries < self.expectations.redeliver:
            self._arrive(last, node.deliveries + 1, crashes=node.crashes, faults=faults, parent=node, life=ended)
        if claim == "unknown":
            self.graph.escalated = True
            return Onward("escalated")
        return Onward("failed" if claim == "failed" else "complete")

    def _belied(self, last: Sight, ended: Ended, schedule: tuple[LifePlan, ...]) -> Onward | None:
        """What a life said at its end may come out untrue although nobody does anything any more."""
        if ended.claim not in ("done", "failed"):
            return None
        for delivery in self._deliveries(last, last.now_s):
            self.stage.put(last.picture)
            self.stage.deliver(delivery, last.now_s)
            finding = judge_afterwards(self.evidence, replace(last, picture=self.stage.world.take()), ended)
            if finding is not None:
                return self._violated(finding, (*schedule, LifePlan(deliver=delivery)))
        return None

    def _trouble(self, life: Life, schedule: tuple[LifePlan, ...]) -> Onward:
        """A life that neither ended nor was killed on purpose."""
        ending = life.ending
        if isinstance(ending, Misuse):
            raise Unexplorable(
                misuse_verdict(ending),
                f"{ending.message} ({ending.site})",
            )
        if isinstance(ending, Looped):
            if not ending.progressing:
                return Onward("loop")
            detail = progressing_message(ending)
        elif isinstance(ending, Hung):
            self._hung += 1
            detail = hung_message(ending, life)
        else:
            assert isinstance(ending, Died)
            detail = died_message(ending, life)
        onward = self._violated(Finding(Verdict.INCONCLUSIVE, None, None, None, detail), schedule)
        if self._hung >= 3:
            self.graph.bound = "three incarnations hung"
            self._waiting.clear()
        return onward

    def _violated(self, finding: Finding, lives: tuple[LifePlan, ...]) -> Onward:
        schedule = Schedule(lives)
        hit = tuple(
            step
            for plan in lives
            for step in (
                *(str(fault) for fault in plan.faults),
                *((f"x@{plan.crash}",) if plan.crash else ()),
                *((str(plan.deliver),) if plan.deliver else ()),
            )
        )
        self.graph.findings.append((finding, schedule, hit))
        self.listener(ViolationFound(str(finding.verdict), str(finding.key or ""), str(schedule)))
        return Onward("violation", None, finding)

    def _same_so_far(self, life: Life, like: Life, plan: Plan) -> None:
        """A life with a further fault must be the same as the one without it, up to that fault."""
        index = plan[-1][0]
        if len(life.passages) <= index and not isinstance(life.ending, Ended):
            self._trouble(life, ())
        ours = [passage.boundary.anchor for passage in life.passages[: index + 1]]
        theirs = [passage.boundary.anchor for passage in like.passages[: index + 1]]
        if ours != theirs:
            at = parting(life, like)
            raise Unexplorable(
                Verdict.NONDETERMINISTIC,
                "the same schedule was run twice from the same state and took different ways: "
                f"boundary {at + 1} was {named(like, at)}, then {named(life, at)}. Remove what the body decides "
                "by thread timing, iteration order of sets, or anything outside the tracked world",
            )
        passage, other = life.passages[index], like.passages[index].sight
        one = passage.sight
        if plan[-1][1].startswith(DELIVER):
            if len(passage.delivered) > 1 or passage.undelivered is None:
                return  # the life without this arrival had the earlier ones, and then was looked at
            one = Sight(passage.undelivered, passage.now_s, passage.tokens)
        if one is None or other is None or one.picture.key == other.picture.key:
            return
        if self.evidence.digest(one) != self.evidence.digest(other):
            changes = self.stage.world.changes(other.picture, one.picture)
            raise Unexplorable(
                Verdict.NONDETERMINISTIC,
                "the same schedule was run twice from the same state and left different worlds before "
                f"{named(life, index)}: {'; '.join(changes[:3]) or 'order of rows'}. Make the value a function of "
                "the stored state, or name the column in ignore= if it never decides anything",
            )


def _follow(plan: Plan) -> Callable[[int, Boundary], Decision]:
    """Director for a plan: its steps at their positions; pictures only where something may be new."""
    if not plan:
        return let_live
    at = {index: (fault, lasts) for index, fault, lasts in plan if fault in KINDS}
    options = {index: _number(fault) for index, fault, _ in plan if fault.startswith(OPTION)}
    deliveries: dict[int, tuple[Delivery, ...]] = {}
    for index, fault, _ in plan:
        if fault.startswith(DELIVER):
            deliveries[index] = (*deliveries.get(index, ()), Delivery.of(fault))
    look_from = plan[-1][0]
    lasting: dict[str | None, str] = {}

    def direct(index: int, boundary: Boundary) -> Decision:
        fault, lasts = at.get(index, (None, False))
        if fault is not None and lasts:
            lasting[boundary.provider] = fault
        if fault is None:
            # Under None: every store together, as a full disk is full for all of them.
            fault = lasting.get(boundary.provider)
        if fault not in boundary.faults:
            fault = None
        return Decision(fault, False, index >= look_from, options.get(index, 0), deliveries.get(index, ()))

    return direct


def _number(step: str) -> int:
    return int(step.partition(":")[2])


def _planned(life: Life, plan: Plan) -> tuple[PlannedFault, ...]:
    if len(life.passages) <= max((index for index, _, _ in plan), default=-1):
        return ()  # it did not come that far; _same_so_far reports it
    return tuple(PlannedFault(fault, mark_of(life.passages[index].boundary), lasts) for index, fault, lasts in plan)
