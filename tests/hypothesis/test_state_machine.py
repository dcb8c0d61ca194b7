"""The state machine: known-bad workers are convicted by the shortest sequence, their corrected twins go free."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from once_fakes import CLIENT_KEY, CLIENT_KEY_24H, Contract
from pytest_once import Once
from pytest_once.conviction import NotOnce
from pytest_once.course import Course
from pytest_once.premises import ProviderServer
from pytest_once.reporting.terminal import render
from pytest_once.state_machine import OnceStateMachine
from tests.plugin.conftest import Lab

LOOKED_UP = Contract(name="looked_up", dedup="none", lookup="by_client_ref")
NATURAL = Contract(name="natural", dedup="natural_key", natural_key_field="client_ref", lookup="by_client_ref")


@contextmanager
def table(once: Once) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(once.path / "agent.db", isolation_level=None)) as db:
        db.execute("CREATE TABLE IF NOT EXISTS done(id TEXT PRIMARY KEY)")
        yield db


def is_done(db: sqlite3.Connection, intent: str) -> bool:
    return db.execute("SELECT 1 FROM done WHERE id = ?", (intent,)).fetchone() is not None


class Refunds(OnceStateMachine):
    """Call with the intent as key, then note that it is done."""

    contract: Contract | str = CLIENT_KEY

    def body(self, once: Once, intent: str, payload: Any) -> object:
        with table(once) as db:
            if not is_done(db, intent):
                self.refund(once, intent, payload)
                db.execute("INSERT OR IGNORE INTO done VALUES (?)", (intent,))
        return None

    def refund(self, once: Once, intent: str, payload: Any) -> None:
        once.provider("pay", contract=self.contract).call(
            "refund", {"order": intent, "asked": payload}, key=intent
        ).raise_for_status()


class Careless(Refunds):
    """The provider knows no keys."""

    contract = "none"
    faults = ()


class KeyPerAttempt(Refunds):
    """A new key for each attempt."""

    faults = ()

    def refund(self, once: Once, intent: str, payload: Any) -> None:
        key = f"{random.getrandbits(64):x}"
        once.provider("pay", contract=self.contract).call("refund", {"order": intent}, key=key).raise_for_status()


class MarkFirst(OnceStateMachine):
    """Note that it is done, then call."""

    faults = ()

    def body(self, once: Once, intent: str, payload: Any) -> object:
        with table(once) as db:
            if not is_done(db, intent):
                db.execute("INSERT INTO done VALUES (?)", (intent,))
                once.provider("pay", contract=CLIENT_KEY).call("refund", {"order": intent}, key=intent)
        return None


class Forgetful(Refunds):
    """Never notes anything: right until the provider has forgotten."""

    contract = CLIENT_KEY_24H
    faults = ()
    delays = ("1h",)

    def body(self, once: Once, intent: str, payload: Any) -> object:
        self.refund(once, intent, payload)
        return None


class HoldsItsClaim(OnceStateMachine):
    """Claims the intent first; after a crash nobody ever releases it."""

    faults = ()

    def body(self, once: Once, intent: str, payload: Any) -> object:
        with table(once) as db:
            if is_done(db, f"{intent} ended"):
                return None
            if is_done(db, intent):
                raise RuntimeError("somebody else is at it")
            db.execute("INSERT INTO done VALUES (?)", (intent,))
            once.provider("pay", contract=CLIENT_KEY).call("refund", {"order": intent}, key=intent).raise_for_status()
            db.execute("INSERT INTO done VALUES (?)", (f"{intent} ended",))
        return None


class LooksUpFirst(OnceStateMachine):
    """Asks whether it has happened, then acts: right after any crash, wrong as soon as two do it at once."""

    workers = 2
    faults: ClassVar[tuple[str, ...]] = ()
    contract: Contract = LOOKED_UP

    def body(self, once: Once, intent: str, payload: Any) -> object:
        pay = once.provider("pay", contract=self.contract)
        if pay.find(intent).status == 404:
            pay.call("refund", {"client_ref": intent})
        return None


class LooksUpOneWorker(LooksUpFirst):
    """The same where two never do it at once."""

    workers = 1


class LooksUpAndIsRefused(LooksUpFirst):
    """The same at a provider that refuses the second one."""

    contract = NATURAL


class LooksUpTooSoon(LooksUpOneWorker):
    """The same where a request may be late: what is still on its way is not found."""

    faults = ("late",)


class Async(Refunds):
    """A coroutine does the same."""

    intents = st.sampled_from(["o1", "o2"])
    payloads = st.integers(1, 9)

    async def body(self, once: Once, intent: str, payload: Any) -> object:
        return Refunds.body(self, once, intent, payload)


def play(machine: type[OnceStateMachine], examples: int = 60, steps: int = 6) -> NotOnce | None:
    """What a machine finds, always the same."""
    try:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=steps,
                derandomize=True,
                database=None,
                deadline=None,
                report_multiple_bugs=False,
                phases=(Phase.generate, Phase.shrink),
                suppress_health_check=list(HealthCheck),
            ),
        )
    except NotOnce as found:
        return found
    return None


def steps_of(found: NotOnce) -> list[str]:
    """The steps as Hypothesis tells them, without what begins and ends each sequence."""
    lines = [line.strip() for note in found.__notes__ for line in note.splitlines()]
    return [line.removeprefix("state.") for line in lines if line.startswith("state.")][1:-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "verdict", "steps"),
    [
        (Careless, "DUPLICATE", ["crash(intent='intent_1', at=2)"]),
        (KeyPerAttempt, "DUPLICATE", ["crash(intent='intent_1', at=2)"]),
        (MarkFirst, "OMISSION", ["crash(intent='intent_1', at=2)"]),
        (HoldsItsClaim, "STUCK", ["crash(intent='intent_1', at=2)"]),
        (Forgetful, "DUPLICATE", ["crash(intent='intent_1', at=1)", "expire_receipts()"]),
        (LooksUpFirst, "DUPLICATE", ["second_worker(intent='intent_1', at=1)"]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_wrong_worker_is_convicted_by_the_shortest_sequence(
    machine: type[OnceStateMachine], verdict: str, steps: list[str]
) -> None:
    """S1.6, S2, S3: the verdict, and nothing in the sequence that could be left out."""
    found = play(machine)
    assert found is not None
    assert str(found.report.verdict) == verdict
    assert steps_of(found) == steps
    assert verdict in str(found)
    assert "incarnation 1" in str(found)


@pytest.mark.slow
def test_a_late_request_is_found_by_the_shortest_sequence() -> None:
    """A request that was given up may still arrive, when another one has done its work."""
    found = play(LooksUpTooSoon)
    assert found is not None
    assert str(found.report.verdict) == "DUPLICATE"
    assert steps_of(found) == ["lose(intent='intent_1', fault='late', at=0)"]
    assert "a request that was still on its way arrives" in str(found)


@pytest.mark.slow
@pytest.mark.parametrize("machine", [Refunds, LooksUpOneWorker, LooksUpAndIsRefused, Async])
def test_the_corrected_twin_goes_free(machine: type[OnceStateMachine]) -> None:
    """A machine that convicts everybody says nothing."""
    found = play(machine, examples=8)
    assert found is None, found


# -- a course, step by step ------------------------------------------------------------------------------


@pytest.fixture
def course() -> Iterator[Course]:
    with ProviderServer() as server:
        course = Course("course", server, {}, lambda report: render(report, replay_prefix=None))
        try:
            yield course
        finally:
            course.close()


def test_the_story_of_two_workers_tells_who_did_what(course: Course) -> None:
    """Interleaved lives are hard to read: the first stops, the second does all of it, the first goes on."""
    course.begin(LooksUpFirst().body)
    course.submit("o1", None)
    with pytest.raises(NotOnce) as caught:
        course.overtake("o1", 1)
    told = str(caught.value)
    order = [
        told.index(part)
        for part in (
            "incarnation 1",
            "stands still before pay refund; another worker comes",
            "incarnation 2",
            "=> effect number 1",
            "the first worker again",
        )
    ]
    assert order == sorted(order)
    assert "=> effect number 2" in told[told.index("=> effect number 1") :]


def test_a_worker_that_stops_with_a_lock_does_not_hang_the_other(course: Course) -> None:
    """SQLite's own wait takes five seconds of real time; the other gives up sooner and is delivered again."""

    def body(once: Once, intent: str, payload: Any) -> None:
        with table(once) as db:
            db.execute("BEGIN IMMEDIATE")
            if not is_done(db, intent):
                once.provider("pay", contract=CLIENT_KEY).call("refund", {"order": intent}, key=intent)
                db.execute("INSERT INTO done VALUES (?)", (intent,))
            db.execute("COMMIT")

    course.begin(body)
    course.submit("o1", None)
    course.overtake("o1", 1)
    assert "locked" in course.story[-2].ending
    course.finish()


def test_a_course_begins_anew_on_an_empty_world(course: Course) -> None:
    """Hypothesis plays hundreds of sequences on one course; none may see another."""
    for _ in range(2):
        course.begin(Refunds().body)
        course.submit("o1", 5)
        course.deliver("o1")
        assert course.story[-1].effects == ()
        assert [step.effects for step in course.story[-1].steps if step.effects]
        course.finish()


def test_intents_are_counted_each_on_its_own(course: Course) -> None:
    """Another intent's missing effect is no omission of this one, and its effect none too many."""
    course.begin(Refunds().body)
    course.submit("o1", 5)
    course.submit("o2", 7)
    course.deliver("o1")
    course.crash("o2", 40)
    course.finish()
    assert all(job.completed for job in course.jobs.values())


def test_a_worker_that_fails_without_any_fault_is_told_as_such(course: Course) -> None:
    """Crashes say nothing about code that is broken anyway."""

    def body(once: Once, intent: str, payload: Any) -> None:
        raise LookupError("no such order")

    course.begin(body)
    with pytest.raises(NotOnce, match=r"the fault-free run\s+raised LookupError: no such order"):
        course.submit("o1", None)


def test_receipts_expire_as_late_as_any_contract_says(course: Course) -> None:
    """What has been forgotten is what the providers promised to forget, and nothing is before it was asked."""
    course.begin(Forgetful().body)
    course.submit("o1", None)
    assert course.receipts_live_s() == 0
    course.deliver("o1")
    assert course.receipts_live_s() == 86401
    course.begin(Refunds().body)
    course.submit("o1", None)
    course.deliver("o1")
    assert course.receipts_live_s() == 0


# -- under pytest ----------------------------------------------------------------------------------------

SUITE = """
from hypothesis import strategies as st
from pytest_once.state_machine import OnceStateMachine

class Refunds(OnceStateMachine):
    intents = st.sampled_from(["o1", "o2"])
    faults = ()

    def body(self, once, intent, payload):
        once.provider("pay").call("refund", {"order": intent}).raise_for_status()

TestRefunds = Refunds.TestCase
"""


@pytest.mark.slow
def test_the_test_case_is_collected_and_the_database_replays_it(lab: Lab) -> None:
    """`TestX = Machine.TestCase` is all one writes; the second run begins with the sequence that failed."""
    lab.write(SUITE)
    first = lab.run_apart()
    assert first.returncode == 1
    assert "DUPLICATE  order=o1 (pay refund): 2 effects, 1 intended" in first.stdout
    assert "state.submit_first(intent='o1', payload=None)" in first.stdout
    assert "@reproduce_failure(" in first.stdout
    again = lab.run_apart("--hypothesis-show-statistics")
    assert "during reuse phase" in again.stdout
    assert "during generate phase" not in again.stdout


def test_a_machine_without_a_body_says_what_to_write(lab: Lab) -> None:
    """The first thing one forgets."""
    lab.write(
        "from pytest_once.state_machine import OnceStateMachine\n"
        "class Empty(OnceStateMachine):\n    pass\nTestEmpty = Empty.TestCase\n"
    )
    result = lab.run("--hypothesis-seed=1")
    result.assert_outcomes(failed=1)
    assert "needs a method body(self, once, intent, payload)" in " ".join(result.stdout.str().split())
