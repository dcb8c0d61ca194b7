"""What an exploration found: verdict, coverage, stories, and the numbers behind them. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_once.boundaries import Boundary
from pytest_once.checks import Counts, LogicalKey, Verdict
from pytest_once.faults import Schedule
from pytest_once.ledger import Arrival, Declared, Effect, Told
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

    number: 1 for the first incarnation. between: no incarnation, but what arrived or ended while no process lived,
    after the incarnation of that number; ending says what it was, effects what came of it. after_s: seconds that passed
    before it, besides the restart.
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
class LedgerRows:
    """What the ledger says at one moment. effects: pending and failed ones too, and the rows of counted tables."""

    providers: tuple[Declared, ...] = ()
    arrivals: tuple[Arrival, ...] = ()
    effects: tuple[Effect, ...] = ()
    told: tuple[Told, ...] = ()


@dataclass(frozen=True, slots=True)
class State:
    """A state of the explored graph.

    crashes, faults, deliveries: on the shortest path to it. schedule: id of that path; "" for the start.
    effects: how many there are by then. onward: what a life without faults leads to: "state", "complete",
    "escalated", "failed", "violation", "loop", "unknown", or "" if that was not tried; onward_state: which state.
    """

    number: int
    crashes: int
    faults: int
    deliveries: int
    schedule: str
    effects: tuple[tuple[LogicalKey, int], ...]
    onward: str = ""
    onward_state: int | None = None


@dataclass(frozen=True, slots=True)
class Way:
    """One life that leads from a state to another. step: as in a schedule id; told: in words.

    shortest: part of the shortest path to the target.
    """

    source: int
    target: int
    step: str
    told: str
    shortest: bool


@dataclass(frozen=True, slots=True)
class Wrong:
    """Where the search left a state for a violation. step, told: the first life that does; lives: how many do."""

    source: int
    verdict: Verdict
    key: LogicalKey | None
    step: str
    told: str
    lives: int


@dataclass(frozen=True, slots=True)
class Explored:
    """The explored graph: its states, the ways between them, and where it goes wrong."""

    states: tuple[State, ...] = ()
    ways: tuple[Way, ...] = ()
    wrong: tuple[Wrong, ...] = ()


@dataclass(frozen=True, slots=True)
class Violation:
    """Something untrue of "exactly once", and the schedule that shows it.

    key, expected, actual: the logical key and its counts, when the verdict is about one. detail: one sentence.
    confirmed: replayed from nothing with real SIGKILL and seen again. variants: other schedules that differ
    only in which boundaries were hit, each confirmed too. ledger: as it is at the end of the replay.
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
    ledger: LedgerRows = field(default_factory=LedgerRows)


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
    explored: the graph. recorded: the ledger at the end of the fault-free run. ended_at: the ledger at the end of the
    one schedule that was replayed.
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
    explored: Explored = field(default_factory=Explored)
    recorded: LedgerRows = field(default_factory=LedgerRows)
    ended_at: LedgerRows = field(default_factory=LedgerRows)

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
