"""The explored graph as a report tells it: states, the ways between them in words, and where it goes wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_once.boundaries import Boundary
from pytest_once.checks import LogicalKey, Verdict
from pytest_once.faults import DELIVER, END, OPTION, LifePlan, PlannedFault, Schedule, duration
from pytest_once.graph import Graph
from pytest_once.report import Explored, State, Violation, Way, Wrong


def explored(graph: Graph, violations: Sequence[Violation]) -> Explored:
    """The graph as data. violations: those that are reported; what a replay did not confirm is left out."""
    paths = {graph.path(node.number): node.number for node in graph.nodes}
    states = tuple(
        State(
            node.number,
            node.crashes,
            node.faults,
            node.deliveries,
            str(Schedule(graph.path(node.number))),
            tuple(node.counts.items()),
            "" if node.onward is None else node.onward.kind,
            None if node.onward is None else node.onward.node,
        )
        for node in graph.nodes
    )
    ways = tuple(
        Way(source, target, str(plan), in_words(plan, graph.places), graph.nodes[target].parent == source)
        for (source, target), plan in sorted(graph.ways.items(), key=lambda way: way[0])
    )
    return Explored(states, ways, _wrong(graph, paths, violations))


def _wrong(
    graph: Graph, paths: Mapping[tuple[LifePlan, ...], int], violations: Sequence[Violation]
) -> tuple[Wrong, ...]:
    reported = {(violation.verdict, violation.key) for violation in violations}
    first: dict[tuple[int, Verdict, LogicalKey | None], LifePlan] = {}
    lives: dict[tuple[int, Verdict, LogicalKey | None], int] = {}
    for finding, schedule, _ in graph.findings:
        if finding.subject not in reported:
            continue
        length = next(n for n in range(len(schedule.lives), -1, -1) if schedule.lives[:n] in paths)
        # What is stuck stays in known states; its schedule may be the path to one of them and nothing else.
        step = schedule.lives[length] if length < len(schedule.lives) else LifePlan()
        what = (paths[schedule.lives[:length]], *finding.subject)
        first.setdefault(what, step)
        lives[what] = lives.get(what, 0) + 1
    return tuple(
        Wrong(source, verdict, key, str(step), in_words(step, graph.places), lives[source, verdict, key])
        for (source, verdict, key), step in first.items()
    )


def in_words(plan: LifePlan, places: Mapping[str, Boundary]) -> str:
    """What happens to one incarnation. places: mark -> boundary."""
    said = [_fault(fault, places) for fault in plan.faults]
    if plan.deliver:
        said.append("what was on its way arrives")
    if plan.crash == END:
        said.append("killed while it waits, at the end" if plan.asleep else "killed after its last boundary")
    elif plan.crash is not None:
        said.append(f"killed {'while it waits, ' if plan.asleep else ''}before {_target(plan.crash, places)}")
    told = ", ".join(said) or "undisturbed"
    return f"{duration(plan.after_s)} later: {told}" if plan.after_s else told


def _fault(fault: PlannedFault, places: Mapping[str, Boundary]) -> str:
    name, _, number = fault.fault.partition(":")
    boundary = places.get(fault.mark)
    if name == DELIVER:
        return f"a request arrives before {_target(fault.mark, places)}"
    if name == OPTION:
        known = boundary is not None and int(number) < len(boundary.options)
        option = boundary.options[int(number)] if boundary is not None and known else f"option {number}"
        return f"{option} at {_target(fault.mark, places)}"
    return f"{fault.fault}{' from' if fault.lasting else ' at'} {_target(fault.mark, places)}{' on' * fault.lasting}"


def _target(mark: str, places: Mapping[str, Boundary]) -> str:
    return places[mark].target if mark in places else mark
