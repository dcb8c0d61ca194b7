"""Requests that arrive after their sender has given them up: later, twice, or never."""

from __future__ import annotations

from pathlib import Path

import pytest

from once_fakes import Contract
from pytest_once import Once, Verdict, explore, replay
from pytest_once.boundaries import Boundary
from pytest_once.events import Event, Recorded, ViolationFound
from pytest_once.faults import mark_of
from pytest_once.ledger import Ledger
from pytest_once.reporting import terminal
from tests.engine.bodies import careful, careless, proven, put, state, tasks

ORDER = {"order": "order_1"}
LATE = ("late", "late-copy")


def first_call(body: object) -> Boundary:
    found: list[Boundary] = []

    def listener(event: Event) -> None:
        if isinstance(event, Recorded):
            found.extend(boundary for boundary in event.boundaries if boundary.faults)

    explore(body, soft_faults=0, limits={"max_states": 1}, listener=listener)  # type: ignore[arg-type]
    return found[0]


def one_call(once: Once) -> None:
    careful(once).call("refund", ORDER, key="order_1")


def test_a_late_request_acts_when_it_arrives(tmp_path: Path) -> None:
    """Nothing before, one effect after; the sender has seen a time-out."""
    mark = mark_of(first_call(one_call))
    held, arrived = tmp_path / "held", tmp_path / "arrived"
    replay(one_call, f"la@{mark}", keep=held)
    assert [one.what for one in Ledger(held / "ledger.db").told()] == ["TimeoutError"]
    assert len(Ledger(held / "ledger.db").in_flight()) == 1
    assert Ledger(held / "ledger.db").effects() == []
    report = replay(one_call, f"la@{mark}/d1", keep=arrived)
    assert not report.problem
    assert Ledger(arrived / "ledger.db").in_flight() == []
    assert len(Ledger(arrived / "ledger.db").effects()) == 1
    assert "still on its way arrives" in terminal.render(report)


def test_an_arrival_between_two_lives_is_no_incarnation() -> None:
    """Counting it, the story would jump from the first incarnation to the third."""
    report = replay(one_call, f"la@{mark_of(first_call(one_call))}/d1/.")
    assert [(life.between, life.number) for life in report.replayed] == [(False, 1), (True, 1), (False, 2)]
    assert "incarnation 2" in terminal.render(report)
    assert "incarnation 3" not in terminal.render(report)


def test_a_late_copy_acts_now_and_arrives_again(tmp_path: Path) -> None:
    """The sender has its answer; the copy meets the receipt."""
    mark = mark_of(first_call(one_call))
    replay(one_call, f"lc@{mark}/d1", keep=tmp_path)
    ledger = Ledger(tmp_path / "ledger.db")
    assert [arrival.outcome for arrival in ledger.arrivals()] == ["executed", "replayed"]
    assert len(ledger.effects()) == 1


def test_a_request_given_up_on_may_arrive_twice(tmp_path: Path) -> None:
    """Neither answer is heard; without a key both act."""
    mark = mark_of(first_call(one_call))
    replay(one_call, f"lt@{mark}/d1/d1", keep=tmp_path)
    ledger = Ledger(tmp_path / "ledger.db")
    assert [arrival.outcome for arrival in ledger.arrivals()] == ["executed", "replayed"]
    assert [one.what for one in ledger.told()] == ["TimeoutError"]

    def keyless(once: Once) -> None:
        careless(once).call("refund", ORDER)

    schedules: list[str] = []

    def listener(event: Event) -> None:
        if isinstance(event, ViolationFound):
            schedules.append(event.schedule)

    explore(keyless, faults=("late-twice",), in_flight=2, blocked=(TimeoutError,), key="order_1", listener=listener)
    assert any("lt@" in schedule and schedule.endswith("d1/d1") for schedule in schedules), schedules


def test_an_arrival_that_has_nothing_to_deliver_is_a_misfit() -> None:
    report = replay(one_call, "./d1")
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "nothing was on its way that d1 could mean" in report.problem


def stop_at_a_time_out(once: Once) -> None:
    """Takes a time-out for a failure, and tries another way once: right unless the first request arrives after all."""
    with tasks(once) as db:
        if state(db) == "done":
            return
        provider = careless(once)
        try:
            provider.call("refund", ORDER)
        except TimeoutError:
            provider.call("refund", ORDER)
        put(db, "done")


@pytest.mark.slow
def test_a_request_given_up_on_arrives_after_the_retry() -> None:
    """Neither crash nor loss is needed: the first request was only slow."""
    report = explore(stop_at_a_time_out, faults=("late",), profile="deep", key="order_1")
    assert report.verdict is Verdict.DUPLICATE
    late = [str(schedule) for schedule in (report.violations[0].schedule, *report.violations[0].variants)]
    assert any("la@" in schedule and "d1" in schedule for schedule in late)


def test_a_keyed_retry_is_safe_from_late_arrivals() -> None:
    """S1.4: one key for the intent; whatever arrives when, it acts once."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            if state(db) != "done":
                careful(once).call("refund", ORDER, key="order_1").raise_for_status()
                put(db, "done")

    report = explore(body, faults=LATE, profile="deep", key="order_1")
    assert proven(report)


def look_then_send(once: Once, wait: bool) -> None:
    """Asks before it sends again: right only if nothing can still be on its way."""
    mail = once.provider("mail", contract=Contract(name="lookup", dedup="none", lookup="by_client_ref"))
    with tasks(once) as db:
        if state(db) == "done":
            return
        if state(db) != "sent" or mail.find("order_1").status == 404:
            put(db, "sent")
            mail.call("send", {"client_ref": "order_1"}).raise_for_status()
        put(db, "done")


def test_a_lookup_alone_does_not_make_a_resend_safe() -> None:
    """S3.5: not found proves nothing while the request may still arrive; crashes alone do not show it."""
    crashes = explore(lambda once: look_then_send(once, False), name="looks", key="order_1", profile="crash")
    assert crashes.passed, terminal.render(crashes)
    report = explore(lambda once: look_then_send(once, False), name="looks", key="order_1", faults=("late",))
    assert report.verdict is Verdict.DUPLICATE
    assert "contract-impossible" in report.impossible
    assert "still on its way" in report.impossible


def test_a_request_arrives_between_two_questions_of_one_life(tmp_path: Path) -> None:
    """While the process lives on: found by whoever asks again, not by whoever asked before."""

    def body(once: Once) -> None:
        mail = once.provider("mail", contract=Contract(name="lookup", dedup="none", lookup="by_client_ref"))
        try:
            mail.call("send", {"client_ref": "order_1"})
        except TimeoutError:
            found = [mail.find("order_1").status for _ in range(2)]
            (once.path / "found.txt").write_text(repr(found))
            if found == [404, 200]:
                mail.call("send", {"client_ref": "order_1"})

    report = explore(body, faults=("late",), redeliver=0, key="order_1")
    schedules = [str(v) for one in report.violations for v in (one.schedule, *one.variants)]
    alive = [schedule for schedule in schedules if "la@" in schedule and "d1@" in schedule and "/" not in schedule]
    assert alive, terminal.render(report)
    replayed = replay(body, alive[0], keep=tmp_path, redeliver=0, key="order_1")
    assert replayed.verdict is Verdict.DUPLICATE
    assert (tmp_path / "found.txt").read_text() == "[404, 200]"
    assert "! a request that was still on its way arrives" in terminal.render(replayed)


def keyed(once: Once, contract: Contract) -> None:
    with tasks(once) as db:
        if state(db) != "done":
            once.provider("pay", contract=contract).call("refund", ORDER, key="order_1").raise_for_status()
            put(db, "done")


@pytest.mark.slow
def test_a_receipt_that_expires_before_the_old_attempt_arrives() -> None:
    """S1.8: retention must cover the delay of a request, or the old attempt acts again."""
    day = Contract(name="a day", retention_s=86400.0)
    delays = ("0s", "25h")
    report = explore(
        lambda once: keyed(once, day), name="keyed", key="order_1", faults=("late-copy",), restart_after=delays
    )
    assert report.verdict is Verdict.DUPLICATE
    schedules = [str(v) for one in report.violations for v in (one.schedule, *one.variants)]
    assert any("w90000+d1" in schedule for schedule in schedules), schedules
    for_ever = Contract(name="for ever")
    assert proven(
        explore(
            lambda once: keyed(once, for_ever), name="keyed", key="order_1", faults=("late-copy",), restart_after=delays
        )
    )


@pytest.mark.slow
def test_the_story_tells_how_much_time_has_passed() -> None:
    """That is the cause, so the remedy speaks of it too."""
    day = Contract(name="a day", retention_s=86400.0)
    report = explore(
        lambda once: keyed(once, day), name="keyed", key="order_1", profile="crash", restart_after=("0s", "25h")
    )
    text = " ".join(terminal.render(report).split())
    assert "25 h later: incarnation 2" in text
    assert "a receipt that has expired" in text


@pytest.mark.parametrize("in_flight", [0, 1, 2])
def test_so_many_requests_may_be_on_their_way_and_no_more(in_flight: int) -> None:
    """The bound is a limit of the search; with 0 no request is ever held up."""

    def body(once: Once) -> None:
        for number in range(2):
            try:
                careless(once).call("refund", {"order": f"order_{number}"})
            except TimeoutError:
                continue

    found: list[str] = []

    def listener(event: Event) -> None:
        if isinstance(event, ViolationFound):
            found.append(event.schedule)

    explore(body, faults=("late",), soft_faults=2, in_flight=in_flight, redeliver=0, listener=listener)
    lives = [life for schedule in found for life in schedule.split("/")]
    assert max((life.count("la@") - life.count("d1@") for life in lives), default=0) == in_flight


def test_standard_says_what_it_does_not_explore() -> None:
    """Late arrivals are for `deep`, or for who names them."""
    assert not set(LATE) & set(explore(one_call).fault_kinds)
    assert set(LATE) <= set(explore(one_call, profile="deep", soft_faults=0).fault_kinds)
