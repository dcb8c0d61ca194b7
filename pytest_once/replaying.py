"""A schedule, replayed from nothing with real SIGKILL, and told as a story."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pytest_once.boundaries import Boundary
from pytest_once.checks import Counts, LogicalKey, Verdict
from pytest_once.clock import BOUNDARY_TAKES_S
from pytest_once.evidence import Evidence
from pytest_once.explorer import RESTART_S
from pytest_once.faults import DELIVER, END, OPTION, Delivery, LifePlan, Schedule, mark_of, told_as
from pytest_once.incarnation import Died, Ended, Hung, Misuse
from pytest_once.judgement import Finding, judge_afterwards, judge_attempts, judge_end, judge_moment, stuck
from pytest_once.life import Birth, Decision, Life, Looped, Passage, Sight, Stage
from pytest_once.report import LifeStory, Step
from pytest_once.scenario import Expectations
from pytest_once.trouble import died_message, hung_message, progressing_message


class Misfit(Exception):
    """The schedule does not fit the code any more; the message says where they part."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a schedule did. findings: everything untrue that was seen, in order. last: the world afterwards.

    needs_time: it would be stuck if restarts followed at once, but completes when enough time passes between them.
    """

    findings: tuple[Finding, ...]
    story: tuple[LifeStory, ...]
    last: Sight
    needs_time: bool = False


class _Script:
    """The director of one life: faults and the crash by mark."""

    def __init__(self, plan: LifePlan) -> None:
        self.plan = plan
        self.hit: list[str] = []
        self._lasting: dict[str | None, str] = {}

    def direct(self, index: int, boundary: Boundary) -> Decision:
        mark = mark_of(boundary)
        fault = self._lasting.get(boundary.provider)
        option = 0
        deliver: tuple[Delivery, ...] = ()
        for planned in self.plan.faults:
            if planned.mark != mark:
                continue
            name, _, number = planned.fault.partition(":")
            if name == DELIVER:
                deliver = (*deliver, Delivery.of(planned.fault))
            elif name == OPTION and int(number) < len(boundary.options):
                option = int(number)
            elif planned.fault in boundary.faults:
                fault = planned.fault
                if planned.lasting:
                    self._lasting[boundary.provider] = fault
            else:
                continue
            self.hit.append(mark)
        if mark == self.plan.crash:
            self.hit.append(mark)
            return Decision(kill=True, deliver=deliver)
        return Decision(fault if fault in boundary.faults else None, option=option, deliver=deliver)


def replay(stage: Stage, evidence: Evidence, expectations: Expectations, root: Sight, schedule: Schedule) -> Replayed:
    """Run the schedule from the root world, never restoring anything in between. Raises Misfit."""
    stage.put(root.picture)
    findings: list[Finding] = []
    story: list[LifeStory] = []
    sight = root
    completed = False
    said: Ended | None = None
    idle = [evidence.digest(root)]
    for number, plan in enumerate(schedule.lives):
        if plan.deliver:
            before = evidence.counts(sight)
            sight, what = _arrived(stage, evidence, schedule, sight, plan)
            findings += _first([judge_moment(evidence, sight)])
            if said is not None:
                findings += _first([judge_afterwards(evidence, sight, said)])
            grown = _grown(before, evidence.counts(sight))
            story.append(LifeStory(_lives(story), (), what, False, None, grown, plan.after_s, between=True))
            continue
        said = None
        start_s = sight.now_s + (RESTART_S + plan.after_s if number else 0.0)
        script = _Script(plan)
        life = stage.live(Birth(number, 0, start_s), sight.tokens, script.direct, kill_at_end=plan.crash == END)
        _check_fit(script, number, life, schedule)
        assert life.last is not None
        findings += _first(judge_moment(evidence, seen) for seen in life.sights if seen is not None)
        if isinstance(life.ending, Ended) and plan.crash != END:
            findings += _first([judge_end(evidence, expectations, life.last, life.ending)])
            findings += _first([judge_attempts(evidence, expectations, life.last, number)])
            completed |= life.ending.claim in ("done", "failed", "unknown")
            said = life.ending
        findings += _first([trouble_of(life)])
        undisturbed = plan.crash is None and not plan.faults
        idle = [*idle, evidence.digest(life.last)] if undisturbed else [evidence.digest(life.last)]
        if not completed and (
            idle[-1] in idle[:-1] or (isinstance(life.ending, Looped) and not life.ending.progressing)
        ):
            findings.append(stuck(evidence, evidence.counts(life.last), len(idle) - 1 - idle.index(idle[-1])))
        story.append(tell(_lives(story), plan, life, evidence, evidence.counts(sight)))
        sight = _asleep(life, plan) if plan.asleep else life.last
    needs_time = any(finding.verdict is Verdict.STUCK for finding in findings) and _completes_in_time(
        stage, evidence, expectations, sight, len(schedule.lives)
    )
    if needs_time:
        findings = [finding for finding in findings if finding.verdict is not Verdict.STUCK]
    return Replayed(tuple(findings), tuple(story), sight, needs_time)


def _arrived(stage: Stage, evidence: Evidence, schedule: Schedule, sight: Sight, plan: LifePlan) -> tuple[Sight, str]:
    """The world after a request on its way has arrived, and in words what that was. Raises Misfit."""
    now_s = sight.now_s + plan.after_s
    if plan.deliver is None or plan.deliver not in evidence.deliveries(sight, now_s):
        raise Misfit(
            f"schedule {schedule} does not fit this code any more: nothing was on its way that {plan.deliver} could "
            "mean when it should have arrived; run --once-chaos to explore anew"
        )
    what = evidence.delivered(sight, plan.deliver, now_s)
    stage.settle()
    stage.deliver(plan.deliver, now_s)
    return Sight(stage.world.take(), now_s, sight.tokens), what


def _asleep(life: Life, plan: LifePlan) -> Sight:
    """The world left by a life that died when its last wait began: the clock had not moved on."""
    assert life.last is not None
    before = life.passages[: len(life.passages) if plan.crash == END else -1]
    return replace(life.last, now_s=before[-1].now_s + BOUNDARY_TAKES_S) if before else life.last


PATIENCE = 12
"""Lives without faults that a process may need to complete, when time passes between them."""
A_DAY_S = 86400.0


def _completes_in_time(stage: Stage, evidence: Evidence, expectations: Expectations, sight: Sight, number: int) -> bool:
    """Whether it completes, on the world as it is, when each restart waits for the next stored deadline to pass.

    Without a stored deadline each restart waits a day: code may count from an instant that lies behind.
    """
    for life_number in range(number, number + PATIENCE):
        ahead = [instant for instant in evidence.instants(sight) if instant > sight.now_s]
        start_s = RESTART_S + (ahead[0] if ahead else sight.now_s + A_DAY_S)
        life = stage.live(Birth(life_number, 0, start_s), sight.tokens, lambda index, boundary: Decision(look=False))
        if life.last is None or not isinstance(life.ending, Ended):
            return False
        if judge_moment(evidence, life.last) or judge_end(evidence, expectations, life.last, life.ending):
            return False
        if life.ending.claim in ("done", "failed", "unknown"):
            return True
        sight = life.last
    return False


def _first(findings: Iterable[Finding | None]) -> list[Finding]:
    return [finding for finding in findings if finding is not None][:1]


def trouble_of(life: Life) -> Finding | None:
    """What to report of a life that neither ended by itself nor was killed on purpose."""
    if isinstance(life.ending, Hung):
        return Finding(Verdict.INCONCLUSIVE, None, None, None, hung_message(life.ending, life))
    if isinstance(life.ending, Died):
        return Finding(Verdict.INCONCLUSIVE, None, None, None, died_message(life.ending, life))
    if isinstance(life.ending, Misuse):
        return Finding(Verdict.INCONCLUSIVE, None, None, None, life.ending.message)
    if isinstance(life.ending, Looped) and life.ending.progressing:
        return Finding(Verdict.INCONCLUSIVE, None, None, None, progressing_message(life.ending))
    return None


def _check_fit(script: _Script, number: int, life: Life, schedule: Schedule) -> None:
    planned = [fault.mark for fault in script.plan.faults]
    if script.plan.crash not in (None, END):
        planned.append(str(script.plan.crash))
    missed = [mark for mark in planned if mark not in script.hit]
    if script.plan.crash == END and not isinstance(life.ending, Ended):
        missed.append(END)
    if missed:
        there = "\n".join(
            f"  {mark_of(boundary)}  {boundary.target}  ({boundary.site})" for boundary in life.boundaries
        )
        passed = [mark_of(boundary) for boundary in life.boundaries]
        if missed[0] in passed:
            boundary = life.boundaries[passed.index(missed[0])]
            raise Misfit(
                f"schedule {schedule} does not fit this code: what it plans at {boundary.target} ({boundary.site}) "
                f"cannot happen there. Possible are {', '.join(boundary.faults) or 'no faults'}"
                + (f", and the options 1 to {len(boundary.options) - 1}" if len(boundary.options) > 1 else "")
            )
        raise Misfit(
            f"schedule {schedule} does not fit this code any more: incarnation {number + 1} never reached "
            f"boundary {', '.join(missed)}, so what was planned there did not happen. It passed:\n"
            f"{there or '  no boundary at all'}\n"
            "The line at that boundary, its function or what it touches has changed; run --once-chaos to explore anew"
        )


Grown = tuple[tuple[LogicalKey, int], ...]


def _grown(before: Counts, now: Counts) -> Grown:
    return tuple((key, n) for key, n in now.items() if n != before.get(key, 0))


def _lives(story: Sequence[LifeStory]) -> int:
    """How many incarnations have been told: what arrives between two is none."""
    return sum(not told.between for told in story)


def tell(number: int, plan: LifePlan, life: Life, evidence: Evidence, before: Counts) -> LifeStory:
    """A life as a story. number: 0 for the first. before: the counts at its beginning."""
    counts = dict(before)
    steps: list[Step] = []
    ends = life.sights[1:]
    killed = plan.crash is not None
    for index, (passage, after) in enumerate(zip(life.passages, ends, strict=True)):
        stopped_here = killed and plan.crash != END and index == len(life.passages) - 1
        arrived: Grown = ()
        if passage.delivered and passage.sight is not None:
            now = evidence.counts(passage.sight)
            arrived, counts = _grown(counts, now), dict(now)
        follower = life.passages[index + 1] if index + 1 < len(life.passages) else None
        if follower is not None and follower.undelivered is not None:
            after = Sight(follower.undelivered, follower.now_s, follower.tokens)
        now = counts if after is None or stopped_here else evidence.counts(after)
        came = _came(evidence, passage)
        steps.append(Step(passage.boundary, passage.fault, _grown(counts, now), came, arrived))
        counts = dict(now)
    site = life.ending.site if isinstance(life.ending, Ended) and life.ending.error else None
    return LifeStory(number + 1, tuple(steps), _ending(plan, life), killed, site, after_s=plan.after_s)


def _came(evidence: Evidence, passage: Passage) -> tuple[str, ...]:
    """What arrived just before a boundary, in words; of several, the later ones are told by what they are called."""
    if passage.undelivered is None:
        return ()
    before = Sight(passage.undelivered, passage.now_s, passage.tokens)
    first, *others = passage.delivered
    return evidence.delivered(before, first, passage.now_s), *(told_as(other.step) for other in others)


def _ending(plan: LifePlan, life: Life) -> str:
    if plan.crash == END:
        if plan.asleep:
            return "killed while it waits, after its last boundary"
        return "killed after its last boundary, before anybody heard that it had finished"
    if plan.crash is not None:
        waiting = "while it waits, " if plan.asleep else ""
        return f"killed {waiting}before {life.passages[-1].boundary.target}"
    ending = life.ending
    if isinstance(ending, Ended):
        return {
            "done": "returned: done",
            "failed": f"claims a definite failure ({ending.error})",
            "unknown": f"says that it does not know ({ending.error})",
            "in_progress": "claims to be in progress",
            "none": f"raised {ending.error}",
        }[ending.claim]
    if isinstance(ending, Looped):
        return f"stopped after {ending.boundaries} boundaries: it loops"
    if isinstance(ending, Hung):
        return f"silent for {ending.seconds:g}s, killed"
    if isinstance(ending, Died):
        return f"ended by itself ({ending.how})"
    return "stopped: misuse" if ending is not None else "killed"
