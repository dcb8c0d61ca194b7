"""Contract-impossible: two states that look the same to any code, in which it would have to do different things.

A process that starts on a world knows what is stored, and what the provider answers when asked. If in one state the
effect has happened and in the other not, and neither tells them apart, then acting doubles it in the first and not
acting loses it in the second: no code can be both safe and live, whatever it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_once.checks import LogicalKey, Oracle
from pytest_once.faults import Schedule
from pytest_once.graph import Graph, Node


@dataclass(frozen=True, slots=True)
class Impossible:
    """A pair of states that prove it. fewer, more: how the worlds with fewer and with more effects were reached.

    in_flight: the counts are equal, but in the second a request is still on its way.
    """

    key: LogicalKey
    counts: tuple[int, int]
    fewer: Schedule
    more: Schedule
    in_flight: bool
    has_lookup: bool

    def __str__(self) -> str:
        provider = self.key.provider
        one, two = self.counts
        difference = (
            f"{provider} has done nothing more in the second than in the first, but there a request is still on its way"
            if self.in_flight
            else f"{provider} has acted {_times(one)} in the first and {_times(two)} in the second"
        )
        asked = (
            f"asking {provider} does not tell them apart"
            if self.has_lookup
            else f"{provider} recognises no repeated request and answers no question"
        )
        missing = "an idempotency key, or a fence, that the provider enforces" + (
            "" if self.has_lookup else "; or at least a look-up by a reference of your own, for what is not in flight"
        )
        return (
            f"contract-impossible: {_when(self.fewer)} and {_when(self.more)} the process finds the same stored state; "
            f"{difference}, and {asked}. Acting again doubles {self.key} in one, not acting loses it in the other: no "
            f"code can be both safe and live here. Missing is {missing}. Otherwise let it give up and say so "
            "(blocked=), and have a person look"
        )


def _when(schedule: Schedule) -> str:
    return f"after {schedule}" if schedule.lives else "at the start"


def _times(n: int) -> str:
    return {0: "not at all", 1: "once", 2: "twice"}.get(n, f"{n} times")


def diagnose(graph: Graph, oracle: Oracle, providers: frozenset[str], with_lookup: frozenset[str]) -> Impossible | None:
    """The first such pair among the states before completion, or None.

    providers: those that recognise no repeated request. with_lookup: those of them that can be asked.
    """
    alike: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if node.deliveries == 0 and node.view:
            alike.setdefault(node.view, []).append(node)
    for nodes in alike.values():
        for key, intended in oracle.intended.items():
            if key.provider not in providers:
                continue
            pair = _differing(nodes, key, intended)
            if pair is not None:
                one, two = pair
                counts = one.counts.get(key, 0), two.counts.get(key, 0)
                paths = Schedule(graph.path(one.number)), Schedule(graph.path(two.number))
                return Impossible(key, counts, *paths, counts[0] == counts[1], key.provider in with_lookup)
    return None


def _differing(nodes: Sequence[Node], key: LogicalKey, intended: int) -> tuple[Node, Node] | None:
    for one in nodes:
        if one.counts.get(key, 0) >= intended or key.provider in one.in_flight:
            continue
        for two in nodes:
            more = two.counts.get(key, 0) > one.counts.get(key, 0)
            if more or (two.counts.get(key, 0) == one.counts.get(key, 0) and key.provider in two.in_flight):
                return one, two
    return None
