"""The report as text: readable without colour, at 80 columns, and in a CI log."""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_once.checks import LogicalKey, Verdict
from pytest_once.faults import KINDS, STANDARD_FAULTS, Schedule, duration, told_as
from pytest_once.report import LifeStory, MatrixRow, Report, Step, Violation
from pytest_once.site import Site, shown_path

if TYPE_CHECKING:
    from rich.table import Table


WIDTH = 80
"""Columns of a report, unless the caller says otherwise."""

HEADLINE = 160
"""Characters of a headline: it stands in lists, titles and pytest's short summary."""

_COLUMNS = {"crash": "X", **{name: kind.code for name, kind in KINDS.items()}}
_LEGEND = {"crash": "killed", **{name: name for name in KINDS}}

_WHY = {
    Verdict.DUPLICATE: "The effect happened more often than intended: a customer sees it twice.",
    Verdict.OMISSION: "The process says that it is done, and the effect never happens.",
    Verdict.STUCK: "The process never finishes, although nothing fails any more.",
    Verdict.ESCALATED: "The process gives up and says so: safe, but somebody has to finish the work.",
    Verdict.FALSE_FAILURE: "The caller is told that nothing happened, and acts on it.",
    Verdict.CONFLICT_MISSED: "Another request was taken for a repetition, and swallowed.",
    Verdict.TOO_MANY_ATTEMPTS: "The provider sees more attempts than the code is said to make.",
}

_REMEDY = {
    Verdict.DUPLICATE: "Make the key from the intent, store it before the first attempt, and send it with every "
    "attempt and after every restart, to a provider that deduplicates by it.",
    Verdict.OMISSION: "Store that the work is done only after an answer that says so (look at the status), and "
    "begin again at the next start until then.",
    Verdict.STUCK: "What an earlier incarnation left half done must be finished, or released, by the next one.",
    Verdict.FALSE_FAILURE: "A lost answer is no failure: ask the provider, or say that it is unknown (blocked=).",
    Verdict.CONFLICT_MISSED: "Store what was asked for beside its key, and refuse the key for anything else.",
    Verdict.TOO_MANY_ATTEMPTS: "Set the retries of every layer (client, transport, framework), and leave them to one.",
}

_AFTER_A_TIME = (
    "After so long a time a repetition may count as new (a receipt that has expired, a lease that has run out): record "
    "that it is done, or look it up, before doing it again, and repeat only while the provider remembers."
)

UNANSWERED = frozenset(map(str, (Verdict.INCONCLUSIVE, Verdict.NONDETERMINISTIC, Verdict.ESCAPED_EFFECT)))
"""Verdicts that say nothing of the code's effects, only why they cannot be judged."""


def render(report: Report, *, replay_prefix: str | None = "pytest --once-replay=", width: int = WIDTH) -> str:
    """The whole report.

    replay_prefix: the command that replays a schedule once its id is appended; None where no schedule id can.
    """
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
            lines += _wrapped(
                "replayed: nothing wrong on this schedule. It is one schedule only and proves nothing about others; "
                "run --once-chaos to explore them all",
                width,
                "",
                "  ",
            )
            for life in report.replayed:
                lines += _life(life, width)
        return "\n".join(lines)
    if report.impossible:
        lines += ["", *_wrapped(report.impossible, width, "", "  ")]
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


def example(said: Sequence[str]) -> list[str]:
    """What Hypothesis says of the example that failed, to be told after the report."""
    lines = [line for part in said for line in part.rstrip().splitlines()]
    return ["", *(f"  {line}".rstrip() for line in lines)] if lines else []


def in_summary(test: Mapping[str, Any]) -> dict[str, Any]:
    """What `summary` needs of a test of the document, as JSON values."""
    return {
        **{name: test[name] for name in ("test", "verdict", "coverage", "passed", "reach", "assumptions")},
        "numbers": f"{test['coverage']}, {test['states']} states, {test['crash_points']} crash points",
        "story": test["text"] if test["coverage"] == "replay" and test["passed"] else "",
    }


def summary(results: Sequence[Mapping[str, Any]], unmarked: Sequence[str] = (), *, width: int = WIDTH) -> list[str]:
    """The end of a session: one line a passing test, and once what all of them assume."""
    lines: list[str] = []
    passed = [result for result in results if result.get("passed")]
    proven = [result for result in passed if not result["story"]]
    shared = [said for said in _said(proven) if all(said in _said([result]) for result in proven)]
    for result in passed:
        if result["story"]:
            lines += [result["test"], *result["story"].splitlines()]
            continue
        lines += _wrapped(f"{result['verdict']}  {result['test']}: {result['numbers']}", width, "", "    ")
        for said in _said([result]):
            if said not in shared:
                lines += _wrapped(said, width, "    ", "      ")
    if not results:
        lines.append("no test marked once_effect was explored")
    for nodeid in unmarked:
        lines += _wrapped(
            f"not explored: {nodeid} uses `once` but is not marked @pytest.mark.once_effect", width, "", "    "
        )
    if proven:
        lines += _wrapped(f"exhausted means: {'; '.join(shared)}", width, "", "  ")
    counted = {
        "exhausted": len(proven),
        "replayed, one schedule only": len(passed) - len(proven),
        "violated": sum(not result.get("passed") and not _unanswered(result) for result in results),
        "without an answer": sum(not result.get("passed") and _unanswered(result) for result in results),
    }
    if results:
        lines.append(", ".join(f"{n} {what}" for what, n in counted.items() if n))
    return lines


def control(name: str, verdict: Verdict, wanted: Verdict, why: str, *, width: int = WIDTH) -> list[str]:
    """A control mutant and its verdict, on a line; if another was wanted, that, and what the engine said."""
    lines = _wrapped(f"{verdict!s:16}  {name}", width, "", "    ")
    if verdict is not wanted:
        lines += _wrapped(
            f"WRONG: {wanted} was expected, so no verdict of this engine can be relied on here. It said: {why}",
            width,
            "    ",
            "    ",
        )
    return lines


def _said(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the results rest on, each sentence once: how far they reach, and what they assume."""
    return list(dict.fromkeys(said for result in results for said in (result["reach"], *result["assumptions"])))


def _unanswered(result: Mapping[str, Any]) -> bool:
    return result["verdict"] in UNANSWERED or result.get("coverage") == "none"


def reach(report: Report) -> str:
    """The faults that were explored, in words."""
    if not report.soft_faults:
        return "any number of crashes, no soft faults"
    faults = "fault" if report.soft_faults == 1 else "faults"
    usual = report.fault_kinds in (STANDARD_FAULTS, tuple(KINDS))
    only = "" if usual else f" ({', '.join(report.fault_kinds)})"
    return f"any number of crashes, and up to {report.soft_faults} soft {faults} per incarnation{only}"


def numbers(report: Report) -> str:
    """States, runs, crash points, crash diameter, coverage, in one phrase."""
    coverage = f"exhausted for {reach(report)}" if report.coverage == "exhausted" else report.coverage
    return (
        f"{coverage}; {report.states} states, {report.runs} runs, {report.crash_points} crash points, "
        f"crash diameter {report.crash_diameter}"
    )


def _violation(violation: Violation, replay_prefix: str | None, width: int) -> list[str]:
    head = str(violation.verdict)
    if violation.key is not None:
        head += f"  {violation.key}"
        if violation.actual is not None:
            head += f": {violation.actual} effects, {violation.expected} intended"
    lines = _wrapped(head, width, "", "  ")
    why = _WHY.get(violation.verdict)
    if why is None or not _says_the_counts_again(violation):
        lines += _wrapped(violation.detail, width, "  ", "  ")
    if why is not None:
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
    if remedy := remedy_of(violation):
        lines += _wrapped(f"usual remedy: {remedy}", width, "  ", "    ")
    if replay_prefix is None:
        return lines
    lines.append(f"  replay: {replay_prefix}{quoted(violation.schedule)}")
    for other in violation.variants:
        lines.append(f"  also:   {replay_prefix}{quoted(other)}")
    if violation.variants_unlisted:
        lines.append(f"  and {violation.variants_unlisted} more schedules with the same outcome")
    return lines


def headline(report: Report) -> str:
    """What became of a test, in one line: the worst violation, or why there is no answer."""
    if not report.violations:
        said = report.problem or (f"bounded by {report.bound}" if report.bound else "")
        first = said.splitlines()[0] if said else ""
        return shorten(f"{report.verdict} {first}".strip(), HEADLINE)
    worst, *others = report.violations
    what = f"{worst.key.provider} {worst.key.operation}".strip() if worst.key is not None else ""
    told = f"{what}: {worst.actual} effects, {worst.expected} intended"
    if worst.actual is None:
        told = f"{what}: {worst.detail}" if what else worst.detail
    more = f" (and {len(others)} more)" if others else ""
    return shorten(" ".join(f"{worst.verdict} {told}".split()), HEADLINE - len(more)) + more


def shorten(text: str, most: int) -> str:
    """The text, cut with three dots if it is longer than so many characters."""
    return text if len(text) <= most else f"{text[: most - 3].rstrip()}..."


def meaning_of(verdict: Verdict) -> str:
    """Why a verdict matters; "" for those that say nothing of the code's effects."""
    return _WHY.get(verdict, "")


def remedy_of(violation: Violation) -> str:
    """What usually helps; "" where nothing can be said in general."""
    if violation.verdict is Verdict.DUPLICATE and any(life.after_s for life in violation.schedule.lives):
        return _AFTER_A_TIME
    return _REMEDY.get(violation.verdict, "")


def _says_the_counts_again(violation: Violation) -> bool:
    """Whether the detail is no more than what the heading and the verdict's meaning say."""
    return violation.detail in (
        f"{violation.actual} effects for one intent; {violation.expected} intended",
        f"it says that it is done, with {violation.actual} of {violation.expected} effects",
    )


def quoted(schedule: Schedule) -> str:
    return shlex.quote(str(schedule))


def _life(life: LifeStory, width: int) -> list[str]:
    waited = f"{duration(life.after_s)} later: " if life.after_s else ""
    if life.between:
        return [*_wrapped(waited + life.ending, width, "  ", "    "), *_effects(life.effects, width)]
    lines = [f"  {waited}incarnation {life.number}"]
    told: list[str] = []
    repeated = 0
    for number, step in enumerate(life.steps):
        last = number == len(life.steps) - 1
        if life.killed and last and _killed_there(life):
            waiting = "while it waits, " if "while it waits" in life.ending else ""
            now = _wrapped(
                f"X killed (SIGKILL) {waiting}before {step.boundary.target}  [{_short(step.boundary.site)}]",
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
    if not _killed_there(life):
        where = f"  [{_short(life.site)}]" if life.site is not None and life.site.line else ""
        mark = "X " if life.killed else ""
        lines += _wrapped(f"{mark}{life.ending}{where}", width, "    ", "        ")
    return lines


def _killed_there(life: LifeStory) -> bool:
    """Whether it was killed at a boundary, which then tells the end."""
    return life.ending.startswith(("killed before", "killed while it waits, before"))


def _again(times: int) -> list[str]:
    return [f"      ... and the same {times} more time{'s' if times > 1 else ''}"] if times else []


def _step(step: Step, width: int) -> list[str]:
    place = _short(step.boundary.site)
    lines: list[str] = []
    for what in step.arrived:
        lines += _wrapped(f"! {what}", width, "    ", "      ")
    lines += _effects(step.arrived_effects, width)
    lines += _wrapped(f"{step.boundary.kind:7} {step.boundary.target}  [{place}]", width, "    ", "        ")
    if step.boundary.options:
        chosen = int(step.fault.partition(":")[2]) if step.fault is not None else 0
        lines += _wrapped(f"> {step.boundary.options[chosen]}", width, "      ", "        ")
    elif step.fault is not None:
        lines += _wrapped(f"! {step.fault}: {told_as(step.fault)}", width, "      ", "        ")
    return lines + _effects(step.effects, width)


def _effects(grown: Iterable[tuple[LogicalKey, int]], width: int) -> list[str]:
    lines: list[str] = []
    for key, n in grown:
        lines += _wrapped(f"=> effect number {n}: {key}", width, "      ", "         ")
    return lines


def _short(site: Site) -> str:
    return f"{shown_path(site.file)}:{site.line}" if site.line else "place unknown"


def _matrix(rows: Sequence[MatrixRow], width: int) -> list[str]:
    used = [name for name in _COLUMNS if any(name in row.outcomes for row in rows)]
    lines = _printed(_table(rows, used, width), width)
    legend = ", ".join(f"{_COLUMNS[name]}={_LEGEND[name]}" for name in used)
    return [*(f"  {line.rstrip()}" for line in lines), *_wrapped(legend, width, "  ", "  ")]


def _table(rows: Sequence[MatrixRow], columns: Sequence[str], width: int) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False, safe_box=True)
    table.add_column("before", no_wrap=True, overflow="ellipsis", max_width=width - 4 - 6 * len(columns))
    for column in columns:
        table.add_column(_COLUMNS[column], no_wrap=True, width=5)
    for number, row in enumerate(rows, 1):
        name = "the end" if row.boundary is None else row.boundary.target
        table.add_row(f"{number} {name}", *(row.outcomes.get(column, "") for column in columns))
    return table


def _printed(table: Table, width: int) -> list[str]:
    from rich.console import Console

    out = io.StringIO()
    console = Console(file=out, width=width - 2, color_system=None, force_terminal=False, markup=False, emoji=False)
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
