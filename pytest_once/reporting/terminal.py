"""The report as text: readable without colour, at 80 columns, and in a CI log."""

from __future__ import annotations

import io
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_once.checks import Verdict
from pytest_once.faults import KINDS, Schedule
from pytest_once.report import LifeStory, MatrixRow, Report, Step, Violation
from pytest_once.site import Site, shown_path

if TYPE_CHECKING:
    from rich.table import Table

WIDTH = 80
"""Columns of a report, unless the caller says otherwise."""

_COLUMNS = {"crash": "X", **{name: kind.code for name, kind in KINDS.items()}}
_LEGEND = {"crash": "killed", **{name: name for name in KINDS}}

_WHY = {
    Verdict.DUPLICATE: "The effect happened more often than intended: a customer sees it twice.",
    Verdict.OMISSION: "The process says that it is done, and the effect never happens.",
    Verdict.STUCK: "The process never finishes, although nothing fails any more.",
    Verdict.ESCALATED: "The process gives up and says so: safe, but somebody has to finish the work.",
    Verdict.FALSE_FAILURE: "The caller is told that nothing happened, and acts on it.",
    Verdict.CONFLICT_MISSED: "Another request was taken for a repetition, and swallowed.",
}


def render(report: Report, *, replay_prefix: str = "pytest --once-replay=", width: int = WIDTH) -> str:
    """The whole report. replay_prefix: the command that replays a schedule once its id is appended."""
    lines: list[str] = []
    if report.problem:
        lines += _wrapped(f"{report.verdict}  {report.problem}", width, "", "  ")
        if report.traceback:
            lines += ["", *report.traceback.rstrip().splitlines()]
        return "\n".join(lines)
    for number, violation in enumerate(report.violations):
        if number:
            lines += ["", "-" * width, ""]
        lines += _violation(violation, replay_prefix, width)
    if report.coverage == "replay":
        if not report.violations:
            lines += [f"replayed: nothing wrong on this schedule ({report.verdict}); it says nothing of others"]
            for life in report.replayed:
                lines += _life(life, width)
        return "\n".join(lines)
    if report.bound:
        lines += ["", *_wrapped(f"bounded by {report.bound}", width, "", "  ")]
        if not report.violations:
            lines += _wrapped(
                f"INCONCLUSIVE  no violation in {report.states} states, but not all were explored. Raise the limit "
                "(--once-max-states, --once-deadline), or make the test smaller",
                width,
                "",
                "  ",
            )
    if report.matrix:
        lines += ["", "what one fault in the fault-free run leads to (nothing fails afterwards):"]
        lines += _matrix(report.matrix, width)
    lines += ["", *_wrapped(f"explored: {numbers(report)}", width, "", "  ")]
    lines += _wrapped(f"assumed: {'; '.join(report.assumptions)}", width, "", "  ")
    return "\n".join(lines).lstrip("\n")


def one_line(report: Report) -> str:
    """What a passing test says: what was exhausted, under which assumptions."""
    intended = "; ".join(f"{key}: {n}" for key, n in report.intended.items())
    escalations = " (some ends escalated, as allowed)" if report.verdict is Verdict.ESCALATED else ""
    return (
        f"{report.verdict}{escalations}: {numbers(report)} [{intended}]; assuming {'; '.join(report.assumptions)}"
    )


def numbers(report: Report) -> str:
    """States, runs, crash points, crash diameter, coverage, in one phrase."""
    faults = {"crash": "any number of crashes"}.get(
        report.profile, f"any number of crashes, and soft faults ({report.profile})"
    )
    coverage = f"exhausted for {faults}" if report.coverage == "exhausted" else f"{report.coverage}"
    return (
        f"{coverage}; {report.states} states, {report.runs} runs, {report.crash_points} crash points, "
        f"crash diameter {report.crash_diameter}"
    )


def _violation(violation: Violation, replay_prefix: str, width: int) -> list[str]:
    head = str(violation.verdict)
    if violation.key is not None:
        head += f"  {violation.key}: {violation.actual} effects, {violation.expected} intended"
    lines = _wrapped(head, width, "", "  ")
    lines += _wrapped(violation.detail, width, "  ", "  ")
    if why := _WHY.get(violation.verdict):
        lines += _wrapped(why, width, "  ", "  ")
    lines.append("")
    for life in violation.story:
        lines += _life(life, width)
    lines.append("")
    crashes = violation.schedule.crashes
    if violation.confirmed:
        lines.append(
            "  confirmed by SIGKILL"
            if crashes
            else "  confirmed: replayed from nothing (no crash is needed for this one)"
        )
    else:
        lines.append("  NOT confirmed")
    lines.append(f"  replay: {replay_prefix}{_quoted(violation.schedule)}")
    for other in violation.variants:
        lines.append(f"  also:   {replay_prefix}{_quoted(other)}")
    if violation.variants_unlisted:
        lines.append(f"  and {violation.variants_unlisted} more schedules with the same outcome")
    return lines


def _quoted(schedule: Schedule) -> str:
    return shlex.quote(str(schedule))


def _life(life: LifeStory, width: int) -> list[str]:
    lines = [f"  incarnation {life.number}"]
    told: list[str] = []
    repeated = 0
    for number, step in enumerate(life.steps):
        last = number == len(life.steps) - 1
        if life.killed and last and life.ending.startswith("killed before"):
            now = _wrapped(
                f"X killed (SIGKILL) before {step.boundary.target}  [{_short(step.boundary.site)}]",
                width,
                "    ",
                "        ",
            )
        else:
            now = _step(step, width)
        if now == told:
            repeated += 1
            continue
        lines += _again(repeated)
        lines += now
        told, repeated = now, 0
    lines += _again(repeated)
    if not life.ending.startswith("killed before"):
        where = f"  [{_short(life.site)}]" if life.site is not None and life.site.line else ""
        mark = "X " if life.killed else ""
        lines += _wrapped(f"{mark}{life.ending}{where}", width, "    ", "        ")
    return lines


def _again(times: int) -> list[str]:
    return [f"      ... and the same {times} more time{'s' if times > 1 else ''}"] if times else []


def _step(step: Step, width: int) -> list[str]:
    place = _short(step.boundary.site)
    lines = _wrapped(f"{step.boundary.kind:7} {step.boundary.target}  [{place}]", width, "    ", "        ")
    if step.fault is not None:
        lines += _wrapped(f"! {step.fault}: {KINDS[step.fault].story}", width, "      ", "        ")
    for key, n in step.effects:
        lines += _wrapped(f"=> effect number {n}: {key}", width, "      ", "         ")
    return lines


def _short(site: Site) -> str:
    return f"{shown_path(site.file)}:{site.line}" if site.line else "place unknown"


def _matrix(rows: Sequence[MatrixRow], width: int) -> list[str]:
    used = [name for name in _COLUMNS if any(name in row.outcomes for row in rows)]
    lines = _printed(_table(rows, used, width), width)
    legend = ", ".join(f"{_COLUMNS[name]} {_LEGEND[name]}" for name in used)
    return [*(f"  {line.rstrip()}" for line in lines), *_wrapped(legend, width, "  ", "  ")]


def _table(rows: Sequence[MatrixRow], columns: Sequence[str], width: int) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 1), show_edge=False, safe_box=True)
    table.add_column("before", no_wrap=True, overflow="ellipsis", max_width=width - 4 - 7 * len(columns))
    for column in columns:
        table.add_column(_COLUMNS[column], no_wrap=True, width=5)
    for number, row in enumerate(rows, 1):
        name = "the end" if row.boundary is None else row.boundary.target
        table.add_row(f"{number} {name}", *(row.outcomes.get(column, "") for column in columns))
    return table


def _printed(table: Table, width: int) -> list[str]:
    from rich.console import Console

    out = io.StringIO()
    console = Console(file=out, width=width - 2, color_system=None, force_terminal=False, legacy_windows=False)
    console.print(table)
    return out.getvalue().translate({ord("\u2500"): "-", ord("\u2026"): "~"}).rstrip("\n").splitlines()


def _wrapped(text: str, width: int, first: str, rest: str) -> list[str]:
    import textwrap

    lines: list[str] = []
    for number, paragraph in enumerate(text.splitlines()):
        lines += textwrap.wrap(
            paragraph,
            width,
            initial_indent=first if number == 0 else rest,
            subsequent_indent=rest,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
    return lines
