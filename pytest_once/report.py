"""What an exploration found: verdict, coverage, stories, and the numbers behind them. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_once.boundaries import Boundary
from pytest_once.checks import Counts, LogicalKey, Verdict
from pytest_once.faults import Schedule
from pytest_once.site import Site


@dataclass(frozen=True, slots=True)
class Step:
    """One boundary in a story: what the process did there, what was done to it, and what came of it.

    fault: soft fault performed, or option chosen, or None. effects: keys whose count changed, with the new count.
    arrived: what arrived or ended just before of what was on its way, in words; arrived_effects: what came of that.
    """

    boundary: Boundary
    fault: str | None
    effects: tuple[tuple[LogicalKey, int], ...]
    arrived: tuple[str, ...] = ()
    arrived_effects: tuple[tuple[LogicalKey, int], ...] = ()


@dataclass(frozen=True, slots=True)
class LifeStory:
    """One incarnation as told to a person. ending: how it ended, in words; site: where, when known.

    between: no incarnation, but what arrived or ended while no process lived; ending says what it was, effects what
    came of it. after_s: seconds that passed before it, besides the restart.
    """

    number: int
    steps: tuple[Step, ...]
    ending: str
    killed: bool
    site: Site | None = None
    effects: tuple[tuple[LogicalKey, int], ...] = ()
    after_s: float = 0.0
    between: bool = False


@dataclass(frozen=True, slots=True)
class Violation:
    """Something untrue of "exactly once", and the schedule that shows it.

    key, expected, actual: the logical key and its counts, when the verdict is about one. detail: one sentence.
    confirmed: replayed from nothing with real SIGKILL and seen again. variants: other schedules that differ
    only in which boundaries were hit, each confirmed too.
    """

    verdict: Verdict
    key: LogicalKey | None
    expected: int | None
    actual: int | None
    schedule: Schedule
    detail: str
    confirmed: bool = False
    story: tuple[LifeStory, ...] = ()
    variants: tuple[Schedule, ...] = ()
    variants_unlisted: int = 0


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """What becomes of the fault-free run when one thing goes wrong before or at this boundary, and nothing else.

    outcomes: "crash" or a fault name -> short outcome: "once", "2x", "0x", "stuck", "later" (once time has passed),
    "esc." (escalated), "no" (honestly failed), "lied", "?".
    boundary is None for the crash point after the last one.
    """

    boundary: Boundary | None
    outcomes: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Report:
    """The result of `explore`.

    coverage: "exhausted" when no state was left to explore, "bounded" when `bound` stopped it, "none" when
    the exploration could not begin, "replay" when one schedule was replayed.
    soft_faults, fault_kinds: how many per incarnation were explored besides any number of crashes, and which.
    states, runs, crash_points: how much was looked at; crash_diameter: most crashes on a shortest path to a state.
    intended: logical key -> count. impossible: why no code could do better under these contracts; "" if that was not
    shown. problem: why no answer could be given, with the remedy; "" otherwise.
    """

    name: str
    verdict: Verdict
    coverage: str
    impossible: str = ""
    bound: str = ""
    profile: str = "standard"
    soft_faults: int = 0
    fault_kinds: tuple[str, ...] = ()
    states: int = 0
    runs: int = 0
    crash_points: int = 0
    crash_diameter: int = 0
    intended: Counts = field(default_factory=dict)
    violations: tuple[Violation, ...] = ()
    boundaries: tuple[Boundary, ...] = ()
    matrix: tuple[MatrixRow, ...] = ()
    assumptions: tuple[str, ...] = ()
    problem: str = ""
    traceback: str = ""
    output: str = ""
    escalation_allowed: bool = False
    replayed: tuple[LifeStory, ...] = ()

    @property
    def passed(self) -> bool:
        """Exactly once, proven to the end; or escalated where the test allows it. Unknown is never a pass."""
        if self.coverage == "replay":
            return not self.violations and not self.problem
        return (
            self.coverage == "exhausted"
            and not self.problem
            and not self.violations
            and (
                self.verdict is Verdict.EXACTLY_ONCE or (self.verdict is Verdict.ESCALATED and self.escalation_allowed)
            )
        )
