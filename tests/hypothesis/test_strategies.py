"""The strategies: what is drawn fits, survives JSON, and shrinks to the simplest."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st

from pytest_once import Once, replay
from pytest_once.faults import KINDS, LATE_FAULTS, Schedule
from pytest_once.ledger import canonical_payload
from pytest_once.positions import FaultAt, LifeByPosition, Rehearsal, ScheduleByPosition, fit
from pytest_once.scenario import ScenarioError
from pytest_once.strategies import GROUPS, faults, payloads, schedules

small = settings(
    max_examples=8, derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def refund(contract: str, once: Once) -> None:
    """Call, then note that it is done; right only if the provider knows the key."""
    pay = once.provider("pay", contract=contract)
    with closing(sqlite3.connect(once.path / "agent.db", isolation_level=None)) as db:
        db.execute("CREATE TABLE IF NOT EXISTS done(id)")
        if db.execute("SELECT 1 FROM done").fetchone() is None:
            pay.call("refund", {"order": "o1"}, key="o1").raise_for_status()
            db.execute("INSERT INTO done VALUES ('o1')")


def without_a_key(once: Once) -> None:
    refund("none", once)


def with_a_key(once: Once) -> None:
    refund("client_key", once)


def mark_first(once: Once) -> None:
    with closing(sqlite3.connect(once.path / "agent.db", isolation_level=None)) as db:
        db.execute("CREATE TABLE IF NOT EXISTS done(id)")
        if db.execute("SELECT 1 FROM done").fetchone() is None:
            db.execute("INSERT INTO done VALUES ('o1')")
            once.provider("pay", contract="client_key").call("refund", {"order": "o1"}, key="o1").raise_for_status()


# -- faults and payloads ---------------------------------------------------------------------------------


def test_faults_are_those_of_the_groups_and_shrink_to_the_first() -> None:
    """Names that `faults=` of the marker takes, and no others."""
    assert find(faults(), lambda fault: True) == next(iter(KINDS))
    assert find(faults("late"), lambda fault: True) == LATE_FAULTS[0]
    seen: set[str] = set()

    @settings(max_examples=200, derandomize=True, database=None)
    @given(faults("late", "store"))
    def draw(fault: str) -> None:
        seen.add(fault)

    draw()
    assert seen == {*GROUPS["late"], *GROUPS["store"]}


def test_an_unknown_group_is_refused() -> None:
    """A slip of the pen would test nothing."""
    with pytest.raises(ValueError, match="no such group; valid: call, http"):
        faults("lates")


@settings(max_examples=200, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(payloads())
def test_payloads_survive_json_and_stay_canonically_the_same(payload: dict[str, object]) -> None:
    """A provider reads what was written; a payload that changed on the way would look like another intent."""
    text = canonical_payload(payload)
    assert json.loads(text) == payload
    assert canonical_payload(json.loads(text)) == text
    assert canonical_payload(json.loads(json.dumps(payload, ensure_ascii=True))) == text
    text.encode("utf-8")
    assert isinstance(payload["amount"], int) and payload["amount"] >= 1


def test_payloads_shrink_to_the_least_and_reach_the_awkward() -> None:
    """The simplest failing payload is read by a person; the awkward ones are why one draws them."""
    assert find(payloads(), lambda payload: True) == {"amount": 1}
    assert find(payloads(amount=None), lambda payload: True) == {}

    lots = settings(max_examples=5000, derandomize=True, database=None)
    for wanted in ("", "Zoe\u0308", 2**53 - 1):

        def holds(payload: dict[str, object], wanted: object = wanted) -> bool:
            return wanted in payload.values()

        assert holds(find(payloads(), holds, settings=lots))

    def nested(payload: dict[str, object]) -> bool:
        return any(isinstance(value, dict) and value for value in payload.values())

    assert nested(find(payloads(), nested, settings=lots))


# -- schedules -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_schedule_that_is_drawn_for_a_body_fits_it() -> None:
    """A planned fault that does not happen proves nothing; replay would call it a misfit."""
    seen: set[str] = set()

    @small
    @given(schedules(with_a_key, crashes=2, soft_faults=1))
    def check(schedule: str) -> None:
        seen.add(schedule)
        report = replay(with_a_key, schedule)
        assert report.passed, report.problem

    check()
    assert any(Schedule.parse(schedule).crashes for schedule in seen)
    assert any(Schedule.parse(schedule).soft_faults for schedule in seen)


@pytest.mark.slow
@pytest.mark.parametrize(("body", "before", "verdict"), [(without_a_key, 2, "DUPLICATE"), (mark_first, 2, "OMISSION")])
def test_a_failing_schedule_shrinks_to_one_crash(body: object, before: int, verdict: str) -> None:
    """What a person reads is the shortest story: one crash, at the earliest place where it does harm."""
    assert callable(body)
    found = find(
        schedules(body, faults=()),
        lambda schedule: any(str(one.verdict) == verdict for one in replay(body, schedule).violations),
        settings=settings(max_examples=60, derandomize=True, database=None, deadline=None),
    )
    rehearsal = Rehearsal(body, {})
    try:
        least = ScheduleByPosition((LifeByPosition(crash=before),))
        assert found == str(rehearsal.fit(least))
    finally:
        rehearsal.close()
    assert Schedule.parse(found).crashes == 1


def test_schedules_by_position_shrink_to_nothing_and_need_no_body() -> None:
    """They are drawn before anybody knows what they meet."""
    assert find(schedules(), lambda schedule: True) == ScheduleByPosition()
    crashed = find(schedules(faults=()), lambda schedule: any(life.crash is not None for life in schedule.lives))
    assert crashed == ScheduleByPosition((LifeByPosition(crash=0),))


def test_one_schedule_by_position_meets_two_bodies() -> None:
    """A wrong body and its corrected twin, under the same disturbance: the marks differ, the positions do not."""
    lost = ScheduleByPosition((LifeByPosition(faults=(FaultAt("lost-response"),)),))
    wrong, right = fit(lost, without_a_key), fit(lost, with_a_key)
    assert [str(one.verdict) for one in replay(without_a_key, wrong).violations] == ["DUPLICATE"]
    assert replay(with_a_key, right).passed


def test_what_cannot_happen_is_left_out_and_a_crash_past_the_end_is_at_the_end() -> None:
    """A position says nothing of the body; the schedule that comes out must fit all the same."""
    far = ScheduleByPosition((LifeByPosition(crash=40, faults=(FaultAt("store-busy", 9),)),))
    assert fit(far, with_a_key).startswith("x@end/")


def test_a_late_request_is_held_and_arrives_where_the_schedule_says() -> None:
    """Deliveries are part of a schedule; without one on its way there is nothing to arrive."""
    late = ScheduleByPosition((LifeByPosition(faults=(FaultAt("late"),)), LifeByPosition(arrives=0)))
    schedule = fit(late, without_a_key)
    assert "/d1/" in schedule
    assert [str(one.verdict) for one in replay(without_a_key, schedule, profile="deep").violations] == ["DUPLICATE"]
    assert "d1" not in fit(ScheduleByPosition((LifeByPosition(arrives=0),)), without_a_key)


def test_a_wrong_fault_is_refused_at_once() -> None:
    """Not when the first schedule is drawn."""
    with pytest.raises(ScenarioError, match="fault kind 'lost' is unknown"):
        schedules(faults=("lost",))


@given(st.data())
@settings(max_examples=50, derandomize=True, database=None)
def test_schedules_by_position_keep_their_bounds(data: st.DataObject) -> None:
    """Bounds keep a test short."""
    drawn = data.draw(schedules(crashes=2, soft_faults=1, boundaries=3, faults=("late", "refused"), delays=("1h",)))
    assert len(drawn.lives) <= 2
    for life in drawn.lives:
        assert life.crash is None or 0 <= life.crash <= 3
        assert len(life.faults) <= 1
        assert life.after_s == 3600
