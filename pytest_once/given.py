"""A `@given` test: each example that Hypothesis draws is a test of its own, with its own fresh world.

Hypothesis runs in the parent, where it draws, shrinks and remembers; what it calls explores the example, or runs it
plainly. Knows nothing of pytest.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import re
import time
import types
import unittest
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.errors import DidNotReproduce, InvalidArgument, UnsatisfiedAssumption
from hypothesis.strategies import DataObject

from pytest_once.checks import SEVERITY, Verdict
from pytest_once.conviction import NotOnce, conviction
from pytest_once.premises import Premises
from pytest_once.report import Report
from pytest_once.scenario import Limits
from pytest_once.stores.directory import DirectoryStore
from pytest_once.stores.ledger import LedgerStore
from pytest_once.world import World

EXAMPLES = 20
"""Examples to explore at most where the test has no @settings and Hypothesis' own number stands."""

_HYPOTHESIS_OWN = 100
_NO_PYTEST_CHECKS = (HealthCheck.function_scoped_fixture, HealthCheck.differing_executors)
_BLOB = re.compile(r"@reproduce_failure\('[^']+', b(['\"])(?P<blob>[^'\"]+)\1\)")


class Rejected(Exception):
    """The body has said `assume(False)`: the example is none."""

    def __str__(self) -> str:
        return "rejected by assume()"


class Fixture:
    """Stands for a fixture in the parent, where function-scoped ones are not set up."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<fixture {self.name}>"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of all examples together. report: of the failing example, or the sum of all.

    said: how Hypothesis describes the failing example. blob: what `--once-example` takes to draw it again, or "".
    """

    report: Report
    said: tuple[str, ...] = ()
    blob: str = ""


class Beginning:
    """The world before the first example, to begin each of them with."""

    def __init__(self, premises: Premises, tmp_path: Path | None) -> None:
        self._premises = premises
        self._world = World([LedgerStore(premises.ledger_path), DirectoryStore(premises.world, "once.path")])
        if tmp_path is not None:
            self._world.add(DirectoryStore(tmp_path, "tmp_path"))
        self._picture = self._world.take()

    def restore(self) -> None:
        """Make the world what it was, and forget the databases that an example has tracked."""
        self._premises.close_stores()
        self._premises.once.forget_providers()
        self._world.put(self._picture)


# -- Hypothesis' settings --------------------------------------------------------------------------------


def prepare(test: Any, *, explored: bool, shared: Sequence[str]) -> str:
    """Set what Hypothesis must know of a test before it begins; returns why it cannot begin, or "".

    explored: examples take as long as they take, and few are drawn. shared: fixtures that all examples would share.
    """
    function = _function(test)
    own: settings = function._hypothesis_internal_use_settings
    if shared and HealthCheck.function_scoped_fixture not in own.suppress_health_check:
        return (
            f"in a plain run all examples share what pytest made for the first: {', '.join(shared)} (function-scoped; "
            "`once` and `tmp_path` begin anew with each example, and with --once-chaos every fixture does). If that is "
            "right here, say so: @settings(suppress_health_check=[HealthCheck.function_scoped_fixture]). If not, make "
            "it in the test instead"
        )
    silenced = {*own.suppress_health_check, *_NO_PYTEST_CHECKS}
    changed: dict[str, Any] = {}
    if explored:
        silenced |= {HealthCheck.too_slow}
        changed = {
            "deadline": None,
            "print_blob": True,
            "report_multiple_bugs": False,
            # Explaining tries hundreds of variants of an example, each an exploration.
            "phases": tuple(phase for phase in own.phases if phase is not Phase.explain),
        }
        if own.max_examples == _HYPOTHESIS_OWN and not hasattr(function, "_hypothesis_internal_settings_applied"):
            changed["max_examples"] = EXAMPLES
    function._hypothesis_internal_use_settings = settings(own, suppress_health_check=silenced, **changed)
    return ""


@contextlib.contextmanager
def _only_known_examples(test: Any, blob: str) -> Iterator[None]:
    """For a replay: the example of the blob; without one, the explicit examples and those in the database."""
    function = _function(test)
    before = function._hypothesis_internal_use_settings
    if blob:
        hypothesis.reproduce_failure(hypothesis.__version__, blob.encode("ascii"))(function)
    else:
        phases = (Phase.explicit, Phase.reuse)
        function._hypothesis_internal_use_settings = settings(before, phases=phases)
    try:
        yield
    finally:
        function._hypothesis_internal_use_settings = before
        function._hypothesis_internal_use_reproduce_failure = None


def _function(test: Any) -> Any:
    return getattr(test, "__func__", test)


# -- exploring -------------------------------------------------------------------------------------------

Explore = Callable[[Mapping[str, Any], Limits], Report]
"""Explores one example, given the values that were drawn for it. Raises Rejected for one that is none."""


@dataclass(slots=True)
class _Examples:
    """The examples of one test, explored as Hypothesis draws them. given: names of arguments that are not drawn."""

    given: frozenset[str]
    explore: Explore
    limits: Limits
    reports: list[Report] = field(default_factory=list)
    failed: bool = False
    unexplored: int = 0
    _deadline: float = 0.0

    def __post_init__(self) -> None:
        self._deadline = time.monotonic() + self.limits.deadline_s

    def run(self, arguments: Mapping[str, Any]) -> None:
        drawn = {name: value for name, value in arguments.items() if name not in self.given}
        left_s = self._deadline - time.monotonic()
        if not self.failed and left_s <= 0:
            self.unexplored += 1
            return
        # A failing example is shrunk for as long as Hypothesis likes: at most five minutes.
        limits = self.limits if self.failed else replace(self.limits, deadline_s=left_s)
        try:
            report = self._too_late(drawn) or self.explore(drawn, limits)
        except Rejected:
            hypothesis.reject()
        stopped = report.bound if not report.problem else report.problem
        if not self.failed and stopped.startswith("deadline=") and not report.violations:
            self.unexplored += 1  # the time was up while it was explored, or even recorded
            return
        self.reports.append(report)
        if not report.passed:
            self.failed = True
            raise conviction(report, f"{report.verdict}: {report.problem or _first_detail(report)}")

    def _too_late(self, drawn: Mapping[str, Any]) -> Report | None:
        """Why an example cannot be explored whose values are drawn while the test runs."""
        for name, value in drawn.items():
            if isinstance(value, DataObject):
                return _no_answer(
                    self.limits,
                    f"{name}=data() draws while the test runs, in a process that is killed and started again, so "
                    "Hypothesis would not know what was drawn. Draw the values before: with @given(...), or with a "
                    "strategy made by @composite",
                )
        return None

    def together(self) -> Report:
        """All of them as one report, when none has failed."""
        explored = len(self.reports)
        if not explored and not self.unexplored:
            raise AssertionError("Hypothesis has drawn no example")
        worst = (
            min(self.reports, key=lambda report: SEVERITY.index(report.verdict))
            if explored
            else Report(name="", verdict=Verdict.INCONCLUSIVE, coverage="bounded", profile=self.limits.profile)
        )
        drawn = f"holds for the {explored} example{'s' * (explored != 1)} that Hypothesis has drawn"
        together = replace(
            worst,
            states=sum(report.states for report in self.reports),
            runs=sum(report.runs for report in self.reports),
            crash_points=sum(report.crash_points for report in self.reports),
            crash_diameter=max((report.crash_diameter for report in self.reports), default=0),
            assumptions=(*worst.assumptions, drawn),
        )
        if not self.unexplored:
            return together
        return replace(
            together,
            verdict=Verdict.INCONCLUSIVE,
            coverage="bounded",
            bound=f"deadline={self.limits.deadline_s:g}s for all examples together: {explored} of "
            f"{explored + self.unexplored} examples were explored. Draw fewer with @settings(max_examples=...)",
        )


def explore_each(test: Any, fixtures: Mapping[str, object], explore: Explore, limits: Limits) -> Outcome:
    """Have Hypothesis draw examples of a test, and explore each.

    fixtures: what stands for the arguments that are not drawn. limits: the deadline is that of all examples together.
    """
    examples = _Examples(_not_drawn(test, fixtures), explore, limits)
    # A profile that sees less than another must not drop what the other has found from the database.
    with _calling(test, lambda inner: _exploring(inner, examples), f"once-chaos {limits.profile}"):
        try:
            test(**fixtures)
        except NotOnce as failure:
            said = tuple(getattr(failure, "__notes__", ()))
            found = _BLOB.search("\n".join(said))
            return Outcome(failure.report, said, found["blob"] if found else "")
    return Outcome(examples.together())


def replay_example(test: Any, fixtures: Mapping[str, object], replay: Explore, limits: Limits, blob: str) -> Outcome:
    """Replay a schedule on one example: that of the blob, or else the first known one on which it fails."""
    examples = _Examples(_not_drawn(test, fixtures), replay, limits)
    with (
        _only_known_examples(test, blob),
        _calling(test, lambda inner: _replaying(inner, examples), f"once-chaos {limits.profile}"),
    ):
        try:
            test(**fixtures)
        except NotOnce as failure:
            return Outcome(failure.report, tuple(getattr(failure, "__notes__", ())), blob)
        except (DidNotReproduce, InvalidArgument) as misfit:
            if not blob:
                raise
            if not examples.reports:
                return Outcome(_no_answer(limits, f"--once-example does not fit this test any more: {misfit}"))
        except unittest.SkipTest:
            pass  # no phase had anything to run
    if not examples.reports:
        return Outcome(
            _no_answer(
                limits,
                "Hypothesis knows no failing example of this test that the schedule could be replayed on; copy the "
                "whole command from the report's line 'replay:', with --once-example, or run --once-chaos again",
            )
        )
    return Outcome(min(examples.reports, key=lambda report: bool(report.problem)), (), blob)


def _not_drawn(test: Any, fixtures: Mapping[str, object]) -> frozenset[str]:
    names = list(inspect.signature(test.hypothesis.inner_test).parameters)
    return frozenset({*fixtures, *(names[:1] if hasattr(test, "__self__") else ())})


def _exploring(inner: Any, examples: _Examples) -> Callable[..., None]:
    def explored(*_: Any, **arguments: Any) -> None:
        examples.run(arguments)

    return explored


def _replaying(inner: Any, examples: _Examples) -> Callable[..., None]:
    def replayed(*_: Any, **arguments: Any) -> None:
        try:
            examples.run(arguments)
        except NotOnce as failure:
            if not failure.report.violations:
                return  # the schedule does not fit this example; another one may be meant
            raise

    return replayed


def _no_answer(limits: Limits, problem: str) -> Report:
    return Report(name="", verdict=Verdict.INCONCLUSIVE, coverage="none", profile=limits.profile, problem=problem)


@contextlib.contextmanager
def _calling(test: Any, make: Callable[[Any], Callable[..., Any]], what: str) -> Iterator[None]:
    """Have Hypothesis call something else for each example. what: keeps its failing examples apart."""
    handle = test.hypothesis
    inner = handle.inner_test
    instead: Any = functools.wraps(inner)(make(inner))
    instead._hypothesis_internal_add_digest = getattr(inner, "_hypothesis_internal_add_digest", b"") + what.encode()
    handle.inner_test = instead
    try:
        yield
    finally:
        handle.inner_test = inner


def _first_detail(report: Report) -> str:
    return next((violation.detail for violation in report.violations), report.bound)


# -- in an incarnation -----------------------------------------------------------------------------------


def one_example(test: Any, drawn: Mapping[str, Any]) -> Callable[..., None]:
    """The test with one example filled in, in place of the test of all examples.

    It keeps what plugins for coroutines look for: they replace `hypothesis.inner_test`.
    """
    owner = getattr(test, "__self__", None)
    own = test.hypothesis.inner_test.__wrapped__  # below what explores
    handle = types.SimpleNamespace(inner_test=own)

    @functools.wraps(own)
    def once_drawn(**fixtures: Any) -> None:
        try:
            answer = handle.inner_test(*(() if owner is None else (owner,)), **fixtures, **drawn)
            if inspect.iscoroutine(answer):
                asyncio.run(answer)
        except UnsatisfiedAssumption:
            raise Rejected from None

    stands_in: Any = once_drawn
    stands_in.hypothesis = handle
    stands_in.is_hypothesis_test = True
    return once_drawn


# -- a plain run -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def each_plainly(test: Any, before: Callable[[], None], after: Callable[[], None]) -> Iterator[None]:
    """Begin each example of a plain run with `before`, and count with `after` what it did."""

    def make(inner: Any) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(inner):

            async def counted_async(*arguments: Any, **named: Any) -> Any:
                __tracebackhide__ = True
                before()
                await inner(*arguments, **named)
                after()

            return counted_async

        def counted(*arguments: Any, **named: Any) -> None:
            __tracebackhide__ = True
            before()
            inner(*arguments, **named)
            after()

        return counted

    with _calling(test, make, "once"):
        yield


def run_by_asyncio(test: Any) -> None:
    """Let asyncio run a coroutine test that no plugin has taken."""
    inner = test.hypothesis.inner_test
    if not inspect.iscoroutinefunction(inner):
        return

    @functools.wraps(inner)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(inner(*arguments, **named))

    test.hypothesis.inner_test = run
