"""All results of a run as one dictionary of JSON values: what every written report is made from.

Described for machines in docs/report.schema.json; `VERSION` is its version. Nothing in it depends on when or in which
process a test ran, apart from "seconds".
"""

from __future__ import annotations

import importlib.metadata
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_once.boundaries import Boundary
from pytest_once.checks import LogicalKey, Verdict
from pytest_once.faults import KINDS, told_as
from pytest_once.report import Explored, LedgerRows, LifeStory, MatrixRow, Report, Step, Violation
from pytest_once.reporting import terminal
from pytest_once.site import Site

VERSION = 1
LISTED_STATES = 1000
"""States of one test that are listed; of a larger graph the first ones, and those on the way to a violation."""
LISTED_OUTPUT = 20_000
"""Characters of the last incarnation's output that are kept, the last ones."""

Json = dict[str, Any]


def whole(
    tests: Iterable[Mapping[str, Any]],
    *,
    ended: str = "finished",
    unfinished: Iterable[str] = (),
    unmarked: Iterable[str] = (),
) -> Json:
    """The document of a run. tests: as `of_test` makes them, in any order. ended: "finished", "interrupted", or
    "stopped" (by -x and the like).

    unfinished: tests that had begun when the run ended. unmarked: tests that use `once` and are not explored.
    """
    listed = sorted(tests, key=lambda test: str(test["test"]))
    return {
        "schema": VERSION,
        "tool": {"name": "pytest-once-chaos", "version": _version()},
        "ended": ended,
        "totals": totals(listed),
        "unfinished": sorted(set(unfinished)),
        "unmarked": sorted(set(unmarked)),
        "tests": listed,
    }


def totals(tests: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many tests came out how; each is counted once."""
    counts = {"exhausted": 0, "replayed": 0, "violated": 0, "without_answer": 0}
    for test in tests:
        counts[outcome_of(test)] += 1
    return counts


def outcome_of(test: Mapping[str, Any]) -> str:
    """Which of the totals a test belongs to."""
    if test["passed"]:
        return "replayed" if test["coverage"] == "replay" else "exhausted"
    if test["coverage"] == "none" or test["verdict"] in terminal.UNANSWERED:
        return "without_answer"
    return "violated"


def of_test(report: Report, *, file: str, line: int, replay_prefix: str, text: str) -> Json:
    """One test. file, line: where it is defined, the file relative to the root directory; line: 1-based.

    replay_prefix: the command that replays a schedule once its id is appended. text: what the terminal says.
    """
    return {
        **without_answer(report.name, file=file, line=line, problem=report.problem),
        "verdict": str(report.verdict),
        "coverage": report.coverage,
        "passed": report.passed,
        "headline": terminal.headline(report),
        "profile": report.profile,
        "reach": terminal.reach(report),
        "bound": report.bound,
        "impossible": report.impossible,
        "traceback": report.traceback,
        "output": report.output[-LISTED_OUTPUT:],
        "states": report.states,
        "runs": report.runs,
        "crash_points": report.crash_points,
        "crash_diameter": report.crash_diameter,
        "intended": _counts(report.intended.items()),
        "boundaries": [_boundary(boundary) for boundary in report.boundaries],
        "matrix": _matrix(report.matrix),
        "graph": _graph(report.explored),
        "recorded": _ledger(report.recorded),
        "violations": [_violation(violation, replay_prefix) for violation in report.violations],
        "replayed": [_life(life) for life in report.replayed],
        "assumptions": list(report.assumptions),
        "text": text,
    }


def without_answer(name: str, *, file: str, line: int, problem: str) -> Json:
    """A test that could not even be begun, such as one whose fixtures fail."""
    said = problem.strip().splitlines()
    return {
        "test": name,
        "file": file,
        "line": line,
        "verdict": str(Verdict.INCONCLUSIVE),
        "coverage": "none",
        "passed": False,
        "headline": terminal.shorten(f"{Verdict.INCONCLUSIVE} {said[0] if said else ''}".strip(), terminal.HEADLINE),
        "profile": "",
        "reach": "",
        "bound": "",
        "impossible": "",
        "problem": problem,
        "traceback": "",
        "output": "",
        "seconds": 0.0,
        "states": 0,
        "runs": 0,
        "crash_points": 0,
        "crash_diameter": 0,
        "intended": [],
        "boundaries": [],
        "matrix": {"columns": [], "rows": []},
        "graph": _graph(Explored()),
        "recorded": _ledger(LedgerRows()),
        "violations": [],
        "replayed": [],
        "assumptions": [],
        "text": problem,
    }


def written(document: Mapping[str, Any]) -> str:
    """The document as JSON text."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _version() -> str:
    try:
        return importlib.metadata.version("pytest-once-chaos")
    except importlib.metadata.PackageNotFoundError:
        return ""  # run from a source tree


def _key(key: LogicalKey | None) -> Json | None:
    return None if key is None else {"provider": key.provider, "operation": key.operation, "name": key.name}


def _counts(counts: Iterable[tuple[LogicalKey, int]]) -> list[Json]:
    return [{"key": _key(key), "count": n} for key, n in counts]


def _site(site: Site | None) -> Json | None:
    if site is None or not site.line:
        return None
    relative = os.path.relpath(site.file)
    file = site.file if relative.startswith("..") else relative
    return {"file": file, "line": site.line, "function": site.function, "text": site.text}


def _boundary(boundary: Boundary) -> Json:
    return {
        "kind": boundary.kind,
        "target": boundary.target,
        "provider": boundary.provider,
        "site": _site(boundary.site),
    }


def _matrix(rows: Sequence[MatrixRow]) -> Json:
    columns = [name for name in ("crash", *KINDS) if any(name in row.outcomes for row in rows)]
    return {
        "columns": columns,
        "rows": [
            {
                "before": None if row.boundary is None else _boundary(row.boundary),
                "outcomes": {name: row.outcomes[name] for name in columns if name in row.outcomes},
            }
            for row in rows
        ],
    }


def _violation(violation: Violation, replay_prefix: str) -> Json:
    return {
        "verdict": str(violation.verdict),
        "key": _key(violation.key),
        "expected": violation.expected,
        "actual": violation.actual,
        "detail": violation.detail,
        "meaning": terminal.meaning_of(violation.verdict),
        "remedy": terminal.remedy_of(violation),
        "confirmed": violation.confirmed,
        "crashes": violation.schedule.crashes,
        "soft_faults": violation.schedule.soft_faults,
        "schedule": str(violation.schedule),
        "replay": replay_prefix + terminal.quoted(violation.schedule),
        "variants": [str(schedule) for schedule in violation.variants],
        "variants_unlisted": violation.variants_unlisted,
        "story": [_life(life) for life in violation.story],
        "ledger": _ledger(violation.ledger),
    }


def _life(life: LifeStory) -> Json:
    return {
        "incarnation": life.number,
        "between": not life.steps and life.ending.startswith("a request"),
        "after_s": life.after_s,
        "steps": [_step(step) for step in life.steps],
        "ending": life.ending,
        "killed": life.killed,
        "site": _site(life.site),
        "effects": _counts(life.effects),
    }


def _step(step: Step) -> Json:
    chosen = fault = None
    if step.boundary.options:
        chosen = step.boundary.options[int(step.fault.partition(":")[2]) if step.fault is not None else 0]
    elif step.fault is not None:
        fault = {"name": step.fault, "told": told_as(step.fault)}
    return {
        **_boundary(step.boundary),
        "fault": fault,
        "chosen": chosen,
        "effects": _counts(step.effects),
        "arrived": ["a request that was still on its way arrives"] * step.arrived,
        "arrived_effects": _counts(step.arrived_effects),
    }


def _ledger(rows: LedgerRows) -> Json:
    return {
        "providers": [{"name": one.name, "contract": json.loads(one.contract)} for one in rows.providers],
        "arrivals": [
            {
                "number": one.id,
                "incarnation": one.incarnation,
                "provider": one.provider,
                "operation": one.operation,
                "key": one.key,
                "payload": one.payload,
                "outcome": one.outcome,
                "status": one.status,
            }
            for one in rows.arrivals
        ],
        "effects": [
            {
                "provider": one.provider,
                "operation": one.operation,
                "number": one.number,
                "arrival": one.arrival or None,
                "payload": one.payload,
                "state": one.state,
            }
            for one in rows.effects
        ],
        "told": [
            {
                "incarnation": one.incarnation,
                "provider": one.provider,
                "operation": one.operation,
                "arrival": one.arrival,
                "what": one.what,
            }
            for one in rows.told
        ],
    }


def _graph(explored: Explored) -> Json:
    parents = {way.target: way.source for way in explored.ways if way.shortest}
    listed: set[int] = set()
    for number in [*(wrong.source for wrong in explored.wrong), *(state.number for state in explored.states)]:
        way: list[int] = [number]
        while way[-1] in parents:
            way.append(parents[way[-1]])
        if len(listed.union(way)) <= LISTED_STATES:
            listed.update(way)
    return {
        "states": [
            {
                "number": state.number,
                "crashes": state.crashes,
                "faults": state.faults,
                "deliveries": state.deliveries,
                "schedule": state.schedule,
                "effects": _counts(state.effects),
                "onward": state.onward,
                "onward_state": state.onward_state,
            }
            for state in explored.states
            if state.number in listed
        ],
        "ways": [
            {
                "source": way.source,
                "target": way.target,
                "step": way.step,
                "told": way.told,
                "shortest": way.shortest,
            }
            for way in explored.ways
            if way.source in listed and way.target in listed
        ],
        "wrong": [
            {
                "source": wrong.source,
                "verdict": str(wrong.verdict),
                "key": _key(wrong.key),
                "step": wrong.step,
                "told": wrong.told,
                "lives": wrong.lives,
            }
            for wrong in explored.wrong
            if wrong.source in listed
        ],
        "states_unlisted": len(explored.states) - len(listed),
    }
