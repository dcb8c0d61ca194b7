"""Choices of the environment, and a model played around a tool with them (S3.1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_once import Once, Verdict, explore, replay
from pytest_once.boundaries import Boundary
from pytest_once.events import Event, Recorded
from pytest_once.faults import mark_of
from pytest_once.reporting import terminal
from tests.engine.bodies import careful, careless, proven, put, state, tasks, told

ORDER = "order_1"


def boundaries_of(body: object) -> list[Boundary]:
    found: list[Boundary] = []

    def listener(event: Event) -> None:
        if isinstance(event, Recorded):
            found.extend(event.boundaries)

    explore(body, soft_faults=0, limits={"max_states": 1}, listener=listener)  # type: ignore[arg-type]
    return found


def test_every_option_is_explored_also_without_soft_faults() -> None:
    """The third option alone is wrong, and no crash shows it."""

    def body(once: Once) -> None:
        times = once.choose("how often", ["once", "never twice", "twice"])
        careful(once).call("refund", {"order": ORDER}, key="one")
        if times == "twice":
            careful(once).call("refund", {"order": ORDER}, key="two")

    report = explore(body, profile="crash", key=ORDER)
    assert report.verdict is Verdict.DUPLICATE
    assert str(report.violations[0].schedule).startswith("o2@")


def test_choices_are_combined_with_each_other_and_with_faults() -> None:
    """Only yes, yes and a lost answer together go wrong."""

    def body(once: Once) -> None:
        one = once.choose("one", [False, True])
        two = once.choose("two", [False, True])
        provider = careful(once)
        try:
            provider.call("refund", {"order": ORDER}, key=ORDER)
        except TimeoutError:
            provider.call("refund", {"order": ORDER}, key="another" if one and two else ORDER)

    report = explore(body, key=ORDER, faults=("lost-response",))
    assert report.verdict is Verdict.DUPLICATE
    shortest = str(report.violations[0].schedule)
    assert shortest.count("o1@") == 2 and shortest.count("lr@") == 1


@pytest.mark.slow
def test_a_body_that_is_right_under_every_choice_is_exhausted() -> None:
    def body(once: Once) -> None:
        note = once.choose("wording", ["please", "now", "thanks"])
        with tasks(once) as db:
            if state(db) != "done":
                careful(once).call("refund", {"order": ORDER}, key=ORDER).raise_for_status()
                put(db, "done", note=note)

    assert proven(explore(body, key=ORDER))


def test_the_first_option_is_what_happens_undisturbed() -> None:
    """In the recording, and when the faults have stopped: a body that never ends under it is not live."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            if state(db) is None:
                put(db, "begun")
                careful(once).call("refund", {"order": ORDER}, key=ORDER).raise_for_status()
                put(db, "done")
            elif state(db) == "begun" and once.choose("may go on", ["no", "yes"]) == "yes":
                careful(once).call("refund", {"order": ORDER}, key=ORDER).raise_for_status()
                put(db, "done")
            elif state(db) == "begun":
                raise RuntimeError("not yet")

    assert explore(body, key=ORDER, profile="crash").verdict is Verdict.STUCK


def test_an_option_has_a_place_in_a_schedule_and_in_its_story(tmp_path: Path) -> None:
    def body(once: Once) -> None:
        chosen = once.choose("tone", ["calm", "cross"])
        careful(once).call("refund", {"order": ORDER, "tone": "any"}, key=ORDER)
        (once.path / "seen.txt").write_text(chosen)

    mark = mark_of(boundaries_of(body)[0])
    report = replay(body, f"o1@{mark}", keep=tmp_path)
    assert not report.problem
    assert (tmp_path / "seen.txt").read_text() == "cross"
    assert "> cross" in terminal.render(report)


def test_an_option_that_is_not_there_any_more_is_a_misfit() -> None:
    def body(once: Once) -> None:
        once.choose("tone", ["calm", "cross"])
        careful(once).call("refund", {"order": ORDER}, key=ORDER)

    mark = mark_of(boundaries_of(body)[0])
    report = replay(body, f"o7@{mark}")
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "cannot happen there" in report.problem and "options 1 to 1" in report.problem


def test_choices_without_end_make_the_answer_unknown() -> None:
    """A limit that bites is named; what is not explored is no pass."""

    def body(once: Once) -> None:
        careful(once).call("refund", {"order": ORDER}, key=ORDER)
        while once.choose("again", ["no", "yes"]) == "yes":
            pass

    report = explore(body, key=ORDER, profile="crash", limits={"choices": 3})
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "choices=3" in report.bound


def test_a_choice_without_options_is_refused() -> None:
    def body(once: Once) -> None:
        once.choose("nothing", [])

    assert "at least one option" in told(explore(body))


# A model around a tool


def refunding(once: Once, key_from: str) -> None:
    """A refund tool whose idempotency key is the call's id or the order."""

    def refund(order: str, note: str, call_id: str) -> None:
        key = {"call id": call_id, "order": order, "arguments": f"{order}-{note}"}[key_from]
        careful(once).call("refund", {"order": order}, key=key).raise_for_status()

    once.agent(refund, call_id="call_id", reworded={"note": "as asked"})(order=ORDER, note="")


@pytest.mark.parametrize(
    ("key_from", "shown"), [("call id", "ask again after success"), ("arguments", "repeat the call in other words")]
)
def test_a_key_that_changes_with_the_call_is_convicted(key_from: str, shown: str) -> None:
    """S3.1, S3.2, S4.10: a call id or a hash of the arguments is not the operation's identity."""
    report = explore(lambda once: refunding(once, key_from), name="refunding", key=ORDER, profile="crash")
    assert report.verdict is Verdict.DUPLICATE
    assert report.violations[0].key is not None and report.violations[0].key.name == ORDER
    assert shown in terminal.render(report)


@pytest.mark.slow
def test_a_key_made_from_the_intent_survives_the_model() -> None:
    """S3.1: stop, same call, new id, other words, ask again: one refund."""
    assert proven(explore(lambda once: refunding(once, "order"), name="refunding", key=ORDER))


def test_the_same_call_id_is_repeated_too() -> None:
    """A framework's retry keeps the id: whoever dedupes by it is safe from that, and from that alone."""
    seen: list[str] = []

    def body(once: Once) -> None:
        def pay(call_id: str) -> None:
            careless(once).call("refund", {"order": ORDER, "id": call_id})

        once.agent(pay, call_id="call_id", calls=2)()

    report = explore(body, key=ORDER, profile="crash", redeliver=0)
    seen += [terminal.render(report)]
    assert report.verdict is Verdict.DUPLICATE
    schedules = [report.violations[0].schedule, *report.violations[0].variants]
    assert {str(schedule)[:2] for schedule in schedules} >= {"o1", "o2"}


def test_a_model_may_give_up_after_a_failure() -> None:
    """gives_up= lets the turn end as if nothing was wrong: an omission that the tool cannot help."""

    def body(once: Once) -> None:
        def pay() -> None:
            careful(once).call("refund", {"order": ORDER}, key=ORDER).raise_for_status()

        once.agent(pay, calls=1, gives_up=(OSError,))()

    assert explore(body, key=ORDER, faults=("refused",)).verdict is Verdict.OMISSION


def test_without_gives_up_the_tools_exception_is_the_agents() -> None:
    def body(once: Once) -> None:
        def pay() -> None:
            careful(once).call("refund", {"order": ORDER}, key=ORDER).raise_for_status()

        once.agent(pay, calls=2)()

    assert proven(explore(body, key=ORDER))


def test_an_async_tool_is_played_as_well() -> None:
    async def body(once: Once) -> None:
        async def pay(call_id: str) -> None:
            careful(once).call("refund", {"order": ORDER}, key=call_id).raise_for_status()

        await once.agent(pay, call_id="call_id")()

    assert explore(body, key=ORDER, profile="crash").verdict is Verdict.DUPLICATE


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"calls": 0}, "1 or more"),
        ({"call_id": "id"}, "no parameter 'id'"),
        ({"reworded": {"x": 1}}, "no parameter 'x'"),
    ],
)
def test_what_cannot_be_played_is_refused(arguments: dict[str, object], words: str) -> None:
    def body(once: Once) -> None:
        def pay(order: str) -> None:
            raise AssertionError(order)

        once.agent(pay, **arguments)(ORDER)  # type: ignore[arg-type]

    assert words in told(explore(body))
