"""What became of a mutant, in words: the row of docs/mutants.md."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from pytest_once import Report, Verdict, explore
from pytest_once.faults import KINDS
from pytest_once.report import LifeStory, Step
from tests.reference.mutants.scenes import Body, Mutant, world

ENOUGH_STATES = 25
"""A mutant need not be explored to the end: one schedule convicts it."""


def convicted(mutant: Mutant) -> Report:
    """What the harness says of the mistake."""
    return _explored(mutant, mutant.wrong, {"max_states": ENOUGH_STATES, "ignore": (), **mutant.wrong_how})


def acquitted(mutant: Mutant) -> Report:
    """What it says of the same code without it, to the end."""
    return _explored(mutant, mutant.right, {})


def _explored(mutant: Mutant, body: Body, more: dict[str, object]) -> Report:
    with tempfile.TemporaryDirectory() as directory:
        world(Path(directory))
        return explore(lambda once: body(once, Path(directory)), name=mutant.name, **{**mutant.how, **more})


def row(mutant: Mutant, report: Report) -> str:
    """One row of the table, from a real run."""
    return f"| `{mutant.name}` | {mutant.what} | `{report.verdict}` | {story(report)} |"


HEAD = "| mutant | the mistake | verdict | shortest story |\n|---|---|---|---|"


def story(report: Report) -> str:
    """The schedule, and what happened on it."""
    if not report.violations:
        said = report.problem.removeprefix("already without any fault: ").partition(". ")[0]
        return f"without any fault: {said}"
    violation = report.violations[0]
    lives = [_life(life) for life in violation.story]
    what = "attempts" if report.verdict is Verdict.TOO_MANY_ATTEMPTS else "effects"
    counts = "" if violation.actual is None else f"; {what}: {violation.actual}, intended: {violation.expected}"
    return f"`{violation.schedule}`: {'. '.join(lives)}{counts}"


def _life(life: LifeStory) -> str:
    said = [part for step in life.steps for part in _step(step)]
    said.append(_ending(life))
    later = f", {_span(life.after_s)} later" if life.after_s else ""
    return f"({life.number}{later}) {', '.join(said)}"


def _step(step: Step) -> list[str]:
    target = _short(step.boundary.target)
    acts = bool(step.effects) and step.effects != step.arrived_effects
    said = []
    if step.arrived:
        said.append("what was held up arrives" + (" and acts" if step.arrived_effects else ""))
    name, _, number = (step.fault or "").partition(":")
    if name == "option":
        said.append(f"{target}: {step.boundary.options[int(number)]}")
    elif name in KINDS:
        said.append(f"{target}: {name}" + (", and it acts" if acts else ""))
    elif acts:
        said.append(f"{target} acts")
    return said


def _ending(life: LifeStory) -> str:
    ending = _short(life.ending)
    if ending.startswith("raised "):
        return ending.partition(":")[0]
    return ending.removeprefix("returned: ").partition(" (")[0] if not life.killed else ending


def _span(seconds: float) -> str:
    for length, unit in ((86400.0, "d"), (3600.0, "h")):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:g} {unit}"
    return f"{seconds:g} s"


def _short(text: str) -> str:
    return re.sub(r" \((gate_intents|inbox|outbox|work|shown)[^)]*\)", r" (\1)", text)
