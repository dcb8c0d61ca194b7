"""The explored graph: states, how they were reached, and where a life without faults leads from each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

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
    """A state. lives: incarnations before it on the shortest known path; the path itself is (parent, life)."""

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
    expanded: bool = False
    onward: Onward | None = None

    @property
    def cost(self) -> tuple[int, int]:
        """How far from the start: faults of any kind, then those of them that are soft."""
        return self.crashes + self.faults, self.faults


@dataclass(slots=True)
class Graph:
    """What the search has found so far."""

    nodes: list[Node] = field(default_factory=list)
    findings: list[Found] = field(default_factory=list)
    crash_points: int = 0
    bound: str = ""
    matrix: dict[tuple[int, str], Onward] = field(default_factory=dict)
    escalated: bool = False

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
    """Liveness: every state must lead to completion by lives without faults. Those after a completion have."""
    found: list[Found] = []
    decided: set[int] = set()
    for node in graph.nodes:
        way: list[int] = []
        number: int | None = node.number
        while number is not None and number not in decided:
            decided.add(number)
            way.append(number)
            onward = graph.nodes[number].onward
            if onward is None or onward.kind not in ("state", "loop"):
                break
            if onward.kind == "loop":
                found += _stuck(graph, evidence, [number])
                break
            number = onward.node
            if number in way:
                found += _stuck(graph, evidence, way[way.index(number) :])
    return found


def _stuck(graph: Graph, evidence: Evidence, cycle: list[int]) -> list[Found]:
    node = graph.nodes[cycle[0]]
    if node.deliveries > 0:
        return []
    lives = (*graph.path(node.number), *(LifePlan() for _ in cycle))
    return [(stuck(evidence, node.counts, len(cycle)), Schedule(lives), (f"state {node.number}",))]
