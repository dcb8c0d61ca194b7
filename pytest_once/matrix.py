"""What becomes of the fault-free run when one thing goes wrong in it, and nothing afterwards."""

from __future__ import annotations

from pytest_once.checks import Verdict
from pytest_once.graph import Graph, Onward
from pytest_once.life import Life
from pytest_once.report import MatrixRow


def rows(graph: Graph, recorded: Life, *, needs_time: bool) -> tuple[MatrixRow, ...]:
    """One row for each crash point of the recorded life. needs_time: what looks stuck only has to wait."""
    idle = "later" if needs_time else "stuck"
    table: list[MatrixRow] = []
    for index in range(len(recorded.passages) + 1):
        outcomes = {
            what: _outcome(graph, onward, idle)
            for (position, what), onward in graph.matrix.items()
            if position == index
        }
        boundary = recorded.passages[index].boundary if index < len(recorded.passages) else None
        table.append(MatrixRow(boundary, outcomes))
    return tuple(table)


def _outcome(graph: Graph, onward: Onward | None, idle: str) -> str:
    passed: set[int] = set()
    while onward is not None and onward.kind == "state" and onward.node is not None:
        node = graph.nodes[onward.node]
        if node.number not in passed:
            onward = node.onward
        elif node.settles is not None and node.settles.node not in passed:
            onward = node.settles
        else:
            return "later" if _ends_in_time(graph, node.number) else idle
        passed.add(node.number)
    if onward is None:
        return "?"
    if onward.kind == "violation" and onward.finding is not None:
        return _in_short(onward.finding.verdict, onward.finding.actual)
    return {"complete": "once", "escalated": "esc.", "failed": "no", "loop": idle}.get(onward.kind, "?")


def _ends_in_time(graph: Graph, number: int) -> bool:
    """Whether lives without faults come to an end from a state, if the longest delay passes before each."""
    passed: set[int] = set()
    while number not in passed:
        passed.add(number)
        after = graph.nodes[number].after
        if not after:
            return False
        onward = after[max(after)]
        if onward.kind != "state" or onward.node is None:
            return onward.kind in ("complete", "escalated", "failed")
        number = onward.node
    return False


def _in_short(verdict: Verdict, actual: int | None) -> str:
    if verdict in (Verdict.DUPLICATE, Verdict.OMISSION) and actual is not None:
        return f"{actual}x"
    return {Verdict.STUCK: "stuck", Verdict.ESCALATED: "esc.", Verdict.FALSE_FAILURE: "lied"}.get(verdict, "?")
