"""The explored graph: states, how they were reached, and where a life without faults leads from each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pytest_once.boundaries import Boundary
from pytest_once.checks import Counts
from pytest_once.evidence import Evidence
from pytest_once.faults import LifePlan, Schedule
from pytest_once.judgement import Finding, stuck

Found = tuple[Finding, Schedule, tuple[str, ...]]
"""Something untrue, the schedule that shows it, and the boundaries it hit (what tells it from its variants)."""


@dataclass(frozen=True, slots=True)
class Onward:
    """Where a life without faults leads: to another state, to an end, or nowhere."""

    kind: Literal["state", "complete", "escalated", "failed", "violation", "loop", "unknown"]
    node: int | None = None
    finding: Finding | None = None


@dataclass(slots=True)
class Node:
    """A state. lives: incarnations before it on the shortest known path; the path itself is (parent, life).

    in_flight: providers of the requests on their way. view: digest of what a process can find out there, where that
    is less than the state ("" where it does not matter).

    after: seconds that passed before a restart -> where a life without faults then leads. onward: the first of these.
    """

    number: int
    deliveries: int
    crashes: int
    faults: int
    lives: int
    parent: int | None
    life: LifePlan | None
    picture: int
    now_s: float
    tokens: frozenset[str]
    counts: Counts
    in_flight: tuple[str, ...] = ()
    view: str = ""
    expanded: bool = False
    onward: Onward | None = None
    after: dict[float, Onward] = field(default_factory=dict)

    @property
    def cost(self) -> tuple[int, int]:
        """How far from the start: faults of any kind, then those of them that are soft."""
        return self.crashes + self.faults, self.faults


@dataclass(slots=True)
class Graph:
    """What the search has found so far.

    bound: the limit that stopped it, or ""; covered: of how many faults every schedule was tried all the same.
    time_matters: why the answer holds only for the delays explored, or "".
    ways: (state, state) -> the first life found that leads from one to the other. places: mark -> its boundary.
    """

    nodes: list[Node] = field(default_factory=list)
    findings: list[Found] = field(default_factory=list)
    crash_points: int = 0
    bound: str = ""
    covered: int | None = None
    time_matters: str = ""
    matrix: dict[tuple[int, str], Onward] = field(default_factory=dict)
    escalated: bool = False
    ways: dict[tuple[int, int], LifePlan] = field(default_factory=dict)
    places: dict[str, Boundary] = field(default_factory=dict)

    @property
    def crash_diameter(self) -> int:
        return max((node.crashes for node in self.nodes), default=0)

    def path(self, number: int) -> tuple[LifePlan, ...]:
        lives: list[LifePlan] = []
        node = self.nodes[number]
        while node.parent is not None and node.life is not None:
            lives.append(node.life)
            node = self.nodes[node.parent]
        return tuple(reversed(lives))


def stuck_states(graph: Graph, evidence: Evidence) -> list[Found]:
    """Liveness: every state must lead to completion by lives without faults, if time enough passes between them."""
    alive = _leading_to_an_end(graph)
    found: list[Found] = []
    decided: set[int] = set(alive)
    for node in graph.nodes:
        way: list[int] = []
        number = node.number
        while number not in decided:
            decided.add(number)
            way.append(number)
            after_s, onward = max(graph.nodes[number].after.items(), key=lambda one: one[0])
            if onward.node is None:
                found += _stuck(graph, evidence, [number], after_s)
                break
            number = onward.node
            if number in way:
                found += _stuck(graph, evidence, way[way.index(number) :], after_s)
    return found


def _leading_to_an_end(graph: Graph) -> set[int]:
    """States from which some lives without faults come to an end, of whatever kind."""
    before: dict[int, list[int]] = {}
    waiting: list[int] = []
    for node in graph.nodes:
        onwards = node.after.values()
        if not onwards or any(onward.kind not in ("state", "loop") for onward in onwards):
            waiting.append(node.number)
        for onward in onwards:
            if onward.node is not None:
                before.setdefault(onward.node, []).append(node.number)
    alive = set(waiting)
    while waiting:
        for number in before.get(waiting.pop(), ()):
            if number not in alive:
                alive.add(number)
                waiting.append(number)
    return alive


def _stuck(graph: Graph, evidence: Evidence, cycle: list[int], after_s: float) -> list[Found]:
    node = graph.nodes[cycle[0]]
    if node.deliveries > 0:
        return []  # it had completed before
    lives = (*graph.path(node.number), *(LifePlan(after_s=after_s) for _ in cycle))
    return [(stuck(evidence, node.counts, len(cycle)), Schedule(lives), (f"state {node.number}",))]
