"""A state machine whose rules submit intents and disturb the workers that carry them out, for Hypothesis to play with.

class Refunds(OnceStateMachine):
    intents = st.sampled_from(["order_1", "order_2"])

    def body(self, once, intent, payload):
        refund(once.path / "agent.db", once.provider("pay", contract="client_key"), order=intent)

TestRefunds = Refunds.TestCase
"""

from __future__ import annotations

import atexit
import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from pytest_once import inherited
from pytest_once.conviction import NotOnce
from pytest_once.course import Course
from pytest_once.faults import STANDARD_FAULTS
from pytest_once.once import Once
from pytest_once.premises import ProviderServer
from pytest_once.report import Report
from pytest_once.scenario import seconds
from pytest_once.shared_heap import shared_heap

EXAMPLES = 40
"""Sequences of steps to play, unless the test or a profile says otherwise; a life takes about 20 ms."""
STEPS = 10
"""Steps in a sequence at most, unless the test or a profile says otherwise."""
_HYPOTHESIS_OWN = (100, 50)

inherited.watch()


@functools.cache
def _server() -> ProviderServer:
    """The loopback server of all machines in this process."""
    server = ProviderServer()
    atexit.register(server.close)
    return server


_courses: dict[type[OnceStateMachine], Course] = {}


def _course_of(cls: type[OnceStateMachine]) -> Course:
    """The course on which the machines of a class play, one after the other: it costs more to make than a life."""
    if cls not in _courses:
        _courses[cls] = Course(cls.__name__, _server(), cls.marker, _render)
        atexit.register(_close, cls)
    return _courses[cls]


def _close(cls: type[OnceStateMachine]) -> None:
    if cls in _courses:
        _courses.pop(cls).close()


def _render(report: Report) -> str:
    from pytest_once.reporting import terminal

    return terminal.render(report, replay_prefix=None)


def _of(name: str) -> st.SearchStrategy[Any]:
    """The strategy that the machine's class has under a name."""
    return st.runner().flatmap(lambda machine: getattr(machine, name))


_SUBMITTED = st.runner().flatmap(lambda machine: st.sampled_from(list(machine._course.jobs) or [""]))
_AT = st.runner().flatmap(lambda machine: st.integers(0, machine._course.most_boundaries()))
_CALL = st.runner().flatmap(lambda machine: st.integers(0, max(1, machine._course.most_calls(machine.faults)) - 1))


class _TestCase:
    """`TestX = Machine.TestCase`: Hypothesis' own, with settings that suit machines of processes."""

    def __get__(self, machine: object, cls: type[OnceStateMachine]) -> Any:
        return _test_case(cls)


@functools.cache
def _test_case(cls: type[OnceStateMachine]) -> Any:
    plain: Any = RuleBasedStateMachine.__dict__["TestCase"].__get__(None, cls)
    own: settings = plain.settings
    usual = settings(
        own,
        max_examples=EXAMPLES if own.max_examples == _HYPOTHESIS_OWN[0] else own.max_examples,
        stateful_step_count=STEPS if own.stateful_step_count == _HYPOTHESIS_OWN[1] else own.stateful_step_count,
    )

    def run_test(self: Any) -> None:
        try:
            with shared_heap():
                run_state_machine_as_test(cls, settings=_that_fit(self.settings))
        finally:
            _close(cls)

    test: Any = run_test
    test.is_hypothesis_test = True
    test._hypothesis_state_machine_class = cls
    return type(plain.__name__, (plain,), {"settings": usual, "runTest": run_test, "__qualname__": plain.__qualname__})


def _that_fit(given: settings) -> settings:
    """The settings that a person has given, without those that suit functions only."""
    return settings(
        given,
        deadline=None,
        print_blob=True,
        report_multiple_bugs=False,
        # Explaining tries hundreds of variants of a sequence, each with new processes.
        phases=tuple(phase for phase in given.phases if phase is not Phase.explain),
        suppress_health_check=list(HealthCheck),
    )


_WEIGHTS = {"crash": 4, "lose": 3, "second_worker": 3, "redeliver": 2, "submit": 1, "expire_receipts": 1}
"""How often a rule is chosen, the simplest first; others, and a person's own, once each."""


def _telling_first(usual: Any) -> Any:
    """Another way to choose a rule than Hypothesis has.

    That leaves out some rules at random, and prefers those with few arguments: it would let time pass again and again,
    and take more choices for a step than it can drop at once when it shrinks.
    """
    order = list(_WEIGHTS)
    rules = sorted(
        usual.rules,
        key=lambda one: order.index(one.function.__name__) if one.function.__name__ in order else len(order),
    )
    weighted = [one for one in rules for _ in range(_WEIGHTS.get(one.function.__name__, 1))]
    return (
        st.sampled_from(weighted)
        .filter(usual.is_valid)
        .flatmap(lambda one: st.tuples(st.just(one), st.fixed_dictionaries(one.arguments)))
    )


class OnceStateMachine(RuleBasedStateMachine):
    """Subclass it, give it a `body`, and collect `Machine.TestCase`.

    intents: strategy of the logical intents (texts) that are handed over. payloads: strategy of what each of them asks
    for; drawn once for an intent, which keeps it. marker: arguments of `once_effect`, such as
    {"blocked": (Unknown,)}. faults: names of the soft faults to use. delays: how much time may pass ("1h", or
    seconds). workers: 2 if two may work on one intent at the same time.

    After each step no intent may have more effects than a fault-free run of its own; at the end, when nothing fails any
    more, each must complete.
    """

    intents: ClassVar[st.SearchStrategy[str]] = st.sampled_from(["intent_1", "intent_2", "intent_3"])
    payloads: ClassVar[st.SearchStrategy[Any]] = st.none()
    marker: ClassVar[Mapping[str, Any]] = {}
    faults: ClassVar[tuple[str, ...]] = STANDARD_FAULTS
    delays: ClassVar[tuple[str | float, ...]] = ("61s", "1h", "25h")
    workers: ClassVar[int] = 1

    TestCase = _TestCase()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # A rule that is there only to be refused makes sequences that Hypothesis can hardly shorten.
        if "lose" not in vars(cls):
            cls.lose = cls.faults and rule(intent=_SUBMITTED, fault=_of("_possible_faults"), at=_CALL)(_lose)
        if "second_worker" not in vars(cls):
            cls.second_worker = cls.workers > 1 and rule(intent=_SUBMITTED, at=_AT)(_second_worker)

    lose: ClassVar[Any]
    second_worker: ClassVar[Any]

    def __init__(self) -> None:
        super().__init__()
        self._course = _course_of(type(self))
        self._course.begin(self.body)
        self._found: NotOnce | None = None
        self._rules_strategy = _telling_first(self._rules_strategy)

    def body(self, once: Once, intent: str, payload: Any) -> object:
        """What a worker does with an intent, from its start to its end; sync or async. Runs in a process of its own."""
        raise NotImplementedError(f"{type(self).__name__} needs a method body(self, once, intent, payload)")

    @property
    def _delays(self) -> st.SearchStrategy[str | float]:
        return st.sampled_from(self.delays)

    @property
    def _possible_faults(self) -> st.SearchStrategy[str]:
        return st.sampled_from([fault for fault in self.faults if self._course.most_calls((fault,))] or self.faults)

    def _step(self, step: Callable[..., None], *arguments: Any) -> None:
        """Do a step, unless something was found already. That is told at the end, or no step after it could go."""
        if self._found is None:
            try:
                step(*arguments)
            except NotOnce as found:
                self._found = found

    # -- rules ---------------------------------------------------------------------------------------

    @initialize(intent=_of("intents"), payload=_of("payloads"))
    def submit_first(self, intent: str, payload: Any) -> None:
        """An intent is handed over. No worker has begun with it yet."""
        self._step(self._course.submit, intent, payload)

    @rule(intent=_of("intents"), payload=_of("payloads"))
    def submit(self, intent: str, payload: Any) -> None:
        """One more intent is handed over; one that was handed over before stays what it is."""
        self._step(self._course.submit, intent, payload)

    @rule(intent=_SUBMITTED)
    def redeliver(self, intent: str) -> None:
        """A worker gets an intent, for the first time or once more, as queues do, and nothing disturbs it."""
        self._step(self._course.deliver, intent)

    @rule(intent=_SUBMITTED, at=_AT)
    def crash(self, intent: str, at: int) -> None:
        """A worker is killed before its boundary number `at` (from 0), or after its last."""
        self._step(self._course.crash, intent, at)

    @rule(delay=_of("_delays"))
    def advance_time(self, delay: str | float) -> None:
        """Time passes."""
        self._step(self._course.wait, seconds(delay))

    @rule()
    def expire_receipts(self) -> None:
        """So much time passes that every provider has forgotten what it was asked; none, if none ever forgets."""
        self._step(self._course.wait, self._course.receipts_live_s())

    @rule(number=st.integers(0, 2))
    def late_arrival(self, number: int) -> None:
        """A request that was on its way arrives, or accepted work ends: `number` tells several apart, from 0."""
        for delivery in self._course.on_their_way()[number : number + 1]:
            self._step(self._course.arrive, delivery)

    def teardown(self) -> None:
        """The faults stop: everything that was handed over must complete. Raises NotOnce for what was found."""
        __tracebackhide__ = True
        if sys.exc_info()[0] is not None:
            return  # Hypothesis has given this sequence up
        self._step(self._course.finish)
        if self._found is not None:
            raise self._found.with_traceback(None)


def _lose(self: OnceStateMachine, intent: str, fault: str, at: int) -> None:
    """A request or its response is lost, or fails otherwise: that of call number `at` (from 0) that can fail so."""
    self._step(self._course.fail, intent, fault, at)


def _second_worker(self: OnceStateMachine, intent: str, at: int) -> None:
    """A worker stands still before its boundary number `at` (from 0); another does it all; then the first goes on."""
    self._step(self._course.overtake, intent, at)


_lose.__name__ = "lose"
_second_worker.__name__ = "second_worker"
