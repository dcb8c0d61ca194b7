"""From a body to a report: record, explore, confirm. Knows nothing of pytest."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_once import matrix
from pytest_once.boundaries.seam import Seam
from pytest_once.canonical import matches_column, matches_place
from pytest_once.checks import SEVERITY, Verdict
from pytest_once.events import Listener, Recorded, silent
from pytest_once.evidence import Evidence
from pytest_once.explored import explored
from pytest_once.explorer import AT_ONCE_S, Explorer
from pytest_once.faults import Schedule, duration
from pytest_once.graph import Found, Graph
from pytest_once.impossible import diagnose
from pytest_once.incarnation import ForkUnavailable
from pytest_once.judgement import Finding
from pytest_once.life import Life, OutOfTime, Sight
from pytest_once.premises import Premises
from pytest_once.recording import FrontEnd, Recorder, Recording
from pytest_once.replaying import Misfit, Replayed, replay
from pytest_once.report import Report, Violation
from pytest_once.scenario import Expectations, Limits, ScenarioError
from pytest_once.shared_heap import shared_heap
from pytest_once.stores import StoreError
from pytest_once.trouble import Unexplorable
from pytest_once.world import PictureShelf

CONFIRMED_VARIANTS = 12
"""How many schedules that differ only in the boundaries hit are replayed and listed for one verdict and key."""

FOUND_AGAIN = (
    "the schedules of the last run: a failure was found again, so nothing else was searched; --once-database=off "
    "searches anew"
)


@dataclass(slots=True)
class Exploration:
    """One test under exploration.

    tracked: directories of the world besides once.path. seams: third parties', besides the built-in ones. known:
    schedules that may still fail; if one does, nothing else is searched.
    """

    name: str
    premises: Premises
    front: FrontEnd
    expectations: Expectations = field(default_factory=Expectations)
    limits: Limits = field(default_factory=Limits)
    tracked: Sequence[Path] = ()
    seams: Sequence[Seam] = ()
    listener: Listener = silent
    known: Sequence[Schedule] = ()
    skipped: str | None = None
    _needs_time: bool = False
    _recorder: Recorder | None = None
    _recording: Recording | None = None

    def run(self) -> Report:
        """Explore to closure or to a limit."""
        return self._reported(self._explore)

    def replay(self, schedule: Schedule) -> Report:
        """Repeat one schedule from nothing, with real SIGKILL."""
        return self._reported(lambda: self._replay(schedule))

    def rewind(self, schedule: Schedule) -> None:
        """After a report: leave the world as this schedule leaves it. Raises Misfit."""
        recording = self._recording
        assert recording is not None
        replay(recording.stage, recording.evidence, self.expectations, recording.root, schedule)
        recording.stage.settle()

    def _reported(self, answer: Callable[[], Report]) -> Report:
        try:
            with shared_heap():
                return self.premises.secrets.hidden(answer())
        except Unexplorable as failure:
            self.skipped = failure.skipped
            return self._no_answer(failure.verdict, str(failure), failure.traceback)
        except OutOfTime:
            return self._no_answer(
                Verdict.INCONCLUSIVE,
                f"deadline={self.limits.deadline_s:g}s passed before the fault-free run had been recorded (it is run "
                "several times). Raise it (--once-deadline, deadline= of the marker), or make the test quicker",
            )
        except (ScenarioError, StoreError, Misfit, ForkUnavailable) as failure:
            return self._no_answer(Verdict.INCONCLUSIVE, str(failure))
        finally:
            if self._recorder is not None:
                self._recorder.settle()

    def _record(self, until: float = math.inf) -> Recording:
        self._recorder = Recorder(
            self.premises,
            self.front,
            self.expectations,
            self.limits,
            self.tracked,
            self.seams,
            file_times=self._recorder is not None and self._recorder.file_times,
            until=until,
        )
        self._recording = self._recorder.record()
        return self._recording

    def _no_answer(self, verdict: Verdict, problem: str, trace: str = "") -> Report:
        self.premises.learn_secrets()
        report = Report(
            name=self.name,
            verdict=verdict,
            coverage="none",
            profile=self.limits.profile,
            problem=problem,
            traceback=trace,
            output=self.premises.printed(),
        )
        return self.premises.secrets.hidden(report)

    # -- exploring -----------------------------------------------------------------------------------

    def _explore(self) -> Report:
        deadline = time.monotonic() + self.limits.deadline_s
        recording = self._record(until=deadline)
        evidence, recorded = recording.evidence, recording.first
        self.listener(Recorded(recorded.boundaries))
        explorer = Explorer(
            recording.stage,
            evidence,
            PictureShelf(self.premises.shelf),
            self.expectations,
            self.limits,
            recorded,
            recording.root,
            self.listener,
            deadline,
        )
        again = self._found_again(recording)
        if again:
            graph = explorer.graph
            graph.bound = FOUND_AGAIN
        else:
            graph = explorer.run()
        recording.stage.until = math.inf  # what was found is confirmed all the same
        if self._recorder is not None and self._recorder.file_times and not evidence.naming.file_times:
            # Only a later life reads them; states that differ in nothing else were taken for one.
            recording.stage.put(recording.root.picture)
            return self._explore()
        violations = again or self._confirm(recording, graph)
        if violations:
            verdict = min((violation.verdict for violation in violations), key=SEVERITY.index)
        elif graph.bound or graph.time_matters:
            verdict = Verdict.INCONCLUSIVE
        else:
            verdict = Verdict.ESCALATED if graph.escalated else Verdict.EXACTLY_ONCE
        bound = graph.bound
        if bound and explorer.still_changing:
            bound += (
                f"; still changing from state to state: {', '.join(explorer.still_changing)} (name it in ignore= if it "
                "decides nothing, or give it a limit in the code)"
            )
        if bound and graph.covered:
            bound += f"; every schedule of at most {graph.covered} fault{'s' * (graph.covered > 1)} was tried"
        return Report(
            name=self.name,
            verdict=verdict,
            coverage="bounded" if graph.bound or graph.time_matters else "exhausted",
            problem="" if violations else graph.time_matters,
            bound=bound,
            profile=self.limits.profile,
            soft_faults=self.limits.soft_faults if self.limits.fault_kinds else 0,
            fault_kinds=self.limits.fault_kinds,
            states=len(graph.nodes),
            runs=recording.stage.lives,
            crash_points=graph.crash_points,
            crash_diameter=graph.crash_diameter,
            intended=evidence.oracle.intended,
            violations=violations,
            impossible=self._impossible(evidence, graph, verdict),
            boundaries=recorded.boundaries,
            matrix=() if again else matrix.rows(graph, recorded, needs_time=self._needs_time),
            assumptions=self._assumptions(evidence, recorded, explorer),
            output=self.premises.printed(),
            escalation_allowed=bool(self.expectations.blocked),
            explored=explored(graph, violations),
            recorded=evidence.rows(_end(recorded)),
        )

    @staticmethod
    def _impossible(evidence: Evidence, graph: Graph, verdict: Verdict) -> str:
        """Why no code could do better under these contracts, if that can be shown."""
        if verdict not in (Verdict.DUPLICATE, Verdict.OMISSION, Verdict.STUCK, Verdict.ESCALATED):
            return ""
        return str(diagnose(graph, evidence.oracle, evidence.forgetful - evidence.yielding, evidence.answering) or "")

    def _found_again(self, recording: Recording) -> tuple[Violation, ...]:
        """What the known schedules still show."""
        found: dict[Any, Violation] = {}
        for schedule in self.known:
            try:
                seen = replay(recording.stage, recording.evidence, self.expectations, recording.root, schedule)
            except Misfit:
                continue
            except OutOfTime:
                break
            for finding in seen.findings[:1]:
                if finding.verdict is not Verdict.INCONCLUSIVE:
                    found.setdefault(finding.subject, _violation(finding, schedule, seen, recording.evidence))
        return _worst_first(found.values())

    def _confirm(self, recording: Recording, graph: Graph) -> tuple[Violation, ...]:
        """Replay what was found with real SIGKILL: the shortest for each verdict and key, then its variants."""
        groups: dict[Any, list[Found]] = {}
        for found in graph.findings:
            groups.setdefault(found[0].subject, []).append(found)
        violations = []
        for group in groups.values():
            group.sort(key=lambda found: _length(found[1]))
            distinct: dict[frozenset[str], Found] = {}
            for found in group:
                # A schedule that does what a shorter one does, and more, shows nothing new.
                if not any(hit <= frozenset(found[2]) for hit in distinct):
                    distinct[frozenset(found[2])] = found
            listed = None if group[0][0].verdict is Verdict.STUCK else CONFIRMED_VARIANTS
            tried = [
                self._confirmed(recording, finding, schedule)
                for finding, schedule, _ in list(distinct.values())[:listed]
            ]
            replayed = [violation for violation in tried if violation is not None]
            if not replayed:
                continue
            confirmed = [violation for violation in replayed if violation.confirmed]
            violation, *others = confirmed or replayed[:1]
            violations.append(
                replace(
                    violation,
                    variants=tuple(other.schedule for other in others),
                    variants_unlisted=len(group) - len(confirmed or replayed[:1]),
                )
            )
        return _worst_first(violations)

    def _confirmed(self, recording: Recording, finding: Finding, schedule: Schedule) -> Violation | None:
        """The violation, confirmed or not; None if it only takes time for it to come right."""
        try:
            seen: Replayed = replay(recording.stage, recording.evidence, self.expectations, recording.root, schedule)
        except Misfit as misfit:
            return _unconfirmed(finding, schedule, str(misfit), ())
        if finding.verdict is Verdict.STUCK and seen.needs_time:
            self._needs_time = True
            return None
        if all(other.subject != finding.subject for other in seen.findings):
            what = "; ".join(f"{other.verdict} {other.key or ''}" for other in seen.findings) or "nothing wrong"
            unconfirmed = _unconfirmed(finding, schedule, f"the replay with SIGKILL showed {what}", seen.story)
            return replace(unconfirmed, ledger=recording.evidence.rows(seen.last))
        return _violation(finding, schedule, seen, recording.evidence)

    def _replay(self, schedule: Schedule) -> Report:
        recording = self._record()
        evidence, recorded = recording.evidence, recording.first
        seen = replay(recording.stage, evidence, self.expectations, recording.root, schedule)
        violations = tuple(_violation(finding, schedule, seen, evidence) for finding in seen.findings[:1])
        return Report(
            name=self.name,
            verdict=violations[0].verdict if violations else Verdict.EXACTLY_ONCE,
            coverage="replay",
            profile=self.limits.profile,
            runs=recording.stage.lives,
            intended=evidence.oracle.intended,
            violations=violations,
            boundaries=recorded.boundaries,
            output=self.premises.printed(),
            replayed=seen.story,
            recorded=evidence.rows(_end(recorded)),
            ended_at=evidence.rows(seen.last),
        )

    def _assumptions(self, evidence: Evidence, recorded: Life, explorer: Explorer) -> tuple[str, ...]:
        said = [
            "a crash is the sudden death of the process (kill -9), not a power loss; a commit is atomic",
            "the body is deterministic given the stored state; it has one worker",
            "every outside effect passes a boundary (audited, not proven)",
            *evidence.contracts(_end(recorded)),
        ]
        said += [
            f"{misnamed} names no field of its requests (a slip of the pen?): their whole payloads tell intents apart"
            for misnamed in evidence.misnamed(_end(recorded))
        ]
        asked = sorted({b.target for b in recorded.boundaries if b.kind == "http" and b.provider is None})
        if asked:
            said.append(f"asked for real, and taken to answer the same each time: {_listed(asked)}")
        if any(boundary.kind == "process" for boundary in recorded.boundaries):
            said.append(
                "another program is cut where it starts, asks a provider and ends, not between two of its own writes; "
                "its clock and its randomness are real"
            )
        if self._needs_time:
            said.append("after some crashes it completes only once time has passed (a stored deadline, or a day)")
        if self.expectations.restart_after_s != AT_ONCE_S:
            delays = ", ".join(duration(after_s) for after_s in self.expectations.restart_after_s)
            said.append(f"before a restart pass the delays that restart_after= names, and no others: {delays}")
        unknown = [pattern for pattern in self.expectations.ignore if not _names(pattern, explorer.exchanged)]
        exchanged = [pattern for pattern in self.expectations.ignore if pattern not in unknown]
        if exchanged:
            said.append(f"ignored; exchanged in every state, which made no difference: {', '.join(exchanged)}")
        if unknown and not explorer.not_exchanged and len(explorer.graph.nodes) > 1:
            said.append(f"ignore= names nothing with a value to exchange (a slip of the pen?): {', '.join(unknown)}")
        if explorer.not_exchanged:
            left = _listed(explorer.not_exchanged)
            said.append(f"ignored, but not exchanged, so nobody knows whether it decides anything: {left}")
        if self._recorder is not None and self._recorder.allowed:
            said.append(f"allowed and not explored: {_listed(self._recorder.allowed)}")
        if evidence.naming.columns:
            said.append(f"random or dated, compared by equality only: {', '.join(sorted(evidence.naming.columns))}")
        return tuple(said)


def _names(pattern: str, places: Collection[str]) -> bool:
    """Whether a pattern of `ignore=` stands for any of the places or columns ("tmp_path/agent.db/tasks.attempts")."""
    for place in places:
        table, _, column = place.rpartition(".")
        if matches_place(place, (pattern,)) or matches_column(table, column, (pattern,)):
            return True
    return False


def _listed(names: Collection[str], most: int = 8) -> str:
    """Names for a sentence, not more than so many of them."""
    shown = sorted(names)[:most]
    return ", ".join(shown) + (f" and {len(names) - most} more" if len(names) > most else "")


def _length(schedule: Schedule) -> tuple[int, int, int, int]:
    """Shortest story first; of equally long ones, that with the fewest soft faults, and those that pass."""
    lasting = sum(fault.lasting for life in schedule.lives for fault in life.faults)
    return schedule.crashes + schedule.soft_faults, schedule.soft_faults, len(schedule.lives), lasting


def _worst_first(violations: Iterable[Violation]) -> tuple[Violation, ...]:
    return tuple(sorted(violations, key=lambda violation: SEVERITY.index(violation.verdict)))


def _end(life: Life) -> Sight:
    assert life.last is not None
    return life.last


def _violation(finding: Finding, schedule: Schedule, seen: Replayed, evidence: Evidence) -> Violation:
    """A finding that a replay has confirmed."""
    return Violation(
        finding.verdict,
        finding.key,
        finding.expected,
        finding.actual,
        schedule,
        finding.detail,
        confirmed=True,
        story=seen.story,
        ledger=evidence.rows(seen.last),
    )


def _unconfirmed(finding: Finding, schedule: Schedule, why: str, story: tuple[Any, ...]) -> Violation:
    return Violation(
        Verdict.INCONCLUSIVE,
        finding.key,
        finding.expected,
        finding.actual,
        schedule,
        f"the search saw {finding.verdict} ({finding.detail}), but it was not confirmed: {why}",
        False,
        story,
    )
