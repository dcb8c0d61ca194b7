"""Each verdict on code that deserves it, and on its corrected twin."""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from pytest_once import Once, Report, Verdict, explore
from tests.engine.bodies import NoAnswer, Rejected, careful, careless, proven, put, state, tasks, told, verdicts

ORDER = {"order": "order_1", "amount": 500}


def crashed(body: Callable[[Once], Any], **marker: Any) -> Report:
    """Explore crashes alone."""
    return explore(body, soft_faults=0, **marker)


def convicted(report: Report, verdict: Verdict) -> None:
    """Failed with this verdict as the heading, and confirmed by SIGKILL."""
    assert report.verdict is verdict, told(report)
    assert not report.passed
    assert report.violations[0].verdict is verdict
    assert report.violations[0].confirmed


# Duplicate


def without_key(once: Once) -> None:
    careful(once).call("refund", ORDER)


def with_key(once: Once) -> None:
    careful(once).call("refund", ORDER, key="order_1")


def test_a_restart_that_sends_again_without_a_key_is_a_duplicate() -> None:
    """The most common mistake: at-least-once delivery without anything that recognises a repetition."""
    report = crashed(without_key)
    convicted(report, Verdict.DUPLICATE)
    assert (report.violations[0].expected, report.violations[0].actual) == (1, 2)


def test_a_restart_that_sends_the_same_key_is_exactly_once() -> None:
    """The corrected twin: the provider recognises the repetition."""
    assert proven(crashed(with_key))


def test_a_new_key_for_each_attempt_is_a_duplicate() -> None:
    """A key that identifies the attempt protects nothing, although each single request looks careful."""

    def body(once: Once) -> None:
        careful(once).call("refund", ORDER, key=str(uuid.uuid4()))

    convicted(crashed(body), Verdict.DUPLICATE)


def test_a_key_stored_before_it_is_sent_is_exactly_once() -> None:
    """The corrected twin: random, and the same in every life that needs it."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            if state(db) is None:
                put(db, "planned", note=str(uuid.uuid4()))
            key = db.execute("SELECT note FROM tasks").fetchone()[0]
            careful(once).call("refund", ORDER, key=key)

    assert proven(crashed(body))


def test_code_that_is_right_for_one_crash_is_convicted_when_its_recovery_crashes() -> None:
    """The double fault: recovery makes a new key and stores it only after it was used."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            row = db.execute("SELECT state, note FROM tasks").fetchone()
            if row is None:
                put(db, "planned")
                key = "first-" + uuid.uuid4().hex
                put(db, "sending", note=key)
            elif row[0] == "planned":
                key = "recovery-" + uuid.uuid4().hex  # nothing was sent, so a new key is safe?
            elif row[0] == "sending":
                key = row[1]
            else:
                return
            careful(once).call("refund", ORDER, key=key)
            put(db, "done", note=key)

    report = crashed(body)
    convicted(report, Verdict.DUPLICATE)
    assert report.violations[0].schedule.crashes == 2


def test_a_recovery_that_stores_its_key_first_is_exactly_once() -> None:
    """The corrected twin of the double fault."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            row = db.execute("SELECT state, note FROM tasks").fetchone()
            if row is None or row[0] == "planned":
                if row is None:
                    put(db, "planned")
                key = uuid.uuid4().hex
                put(db, "sending", note=key)
            elif row[0] == "sending":
                key = row[1]
            else:
                return
            careful(once).call("refund", ORDER, key=key)
            put(db, "done", note=key)

    assert proven(crashed(body))


def test_code_that_forgets_what_it_completed_fails_the_redelivery() -> None:
    """At-least-once queues deliver again after completion; without redelivery nobody would notice."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            key = db.execute("SELECT note FROM tasks").fetchone()
            if key is None:
                put(db, "planned", note=uuid.uuid4().hex)
                key = db.execute("SELECT note FROM tasks").fetchone()
            careful(once).call("refund", ORDER, key=key[0])
            db.execute("DELETE FROM tasks")

    convicted(crashed(body), Verdict.DUPLICATE)
    # Nor does it help that the caller never asks twice: the crash between the deletion and the answer remains.
    report = crashed(lambda once: once.caller("refund", body, once))
    convicted(report, Verdict.DUPLICATE)
    assert report.violations[0].schedule.crashes == 1


def test_redelivery_alone_convicts_code_that_only_the_completed_delivery_harms() -> None:
    """The shortest story is then without any crash: completed, delivered again, done again."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            if state(db) == "done":
                put(db, "again")
                careful(once).call("refund", ORDER, key="second")
                return
            careful(once).call("refund", ORDER, key="first")
            put(db, "done")

    report = crashed(body)
    convicted(report, Verdict.DUPLICATE)
    assert report.violations[0].schedule.crashes == 0


def test_without_redelivery_a_completion_that_nobody_heard_of_is_called_again() -> None:
    """redeliver=0 takes away a story, not the danger: a process may die between its last step and its answer."""

    def body(once: Once) -> None:
        again = once.ledger.recall("finished")
        careful(once).call("refund", ORDER, key="second" if again else "first")
        once.ledger.remember("finished", True)  # at the very end, together with the answer

    redelivered, unheard = crashed(body, redeliver=1), crashed(body, redeliver=0)
    convicted(redelivered, Verdict.DUPLICATE)
    convicted(unheard, Verdict.DUPLICATE)
    assert str(redelivered.violations[0].schedule) == "./."
    assert str(unheard.violations[0].schedule) == "x@end/."


def test_two_effects_for_one_intent_are_a_duplicate_even_without_a_fault() -> None:
    """What the test says it intends counts, not what the code happens to do."""

    def body(once: Once) -> None:
        for attempt in ("a", "b"):
            careful(once).call("refund", ORDER, key=attempt)

    assert crashed(body, key="order_1").verdict is Verdict.DUPLICATE
    assert proven(crashed(body, keys={"order_1": 2}))


# Omission


def test_marking_the_task_done_before_the_call_is_an_omission() -> None:
    """The other half of S1: at-most-once loses the effect."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            if state(db) == "done":
                return
            put(db, "done")
            careful(once).call("refund", ORDER, key="order_1")

    report = crashed(body)
    convicted(report, Verdict.OMISSION)
    assert (report.violations[0].expected, report.violations[0].actual) == (1, 0)


def test_marking_the_task_done_after_the_call_is_exactly_once() -> None:
    """The corrected twin."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            if state(db) == "done":
                return
            careful(once).call("refund", ORDER, key="order_1")
            put(db, "done")

    assert proven(crashed(body))


def test_of_two_orders_the_one_that_is_lost_is_named() -> None:
    """Sibling keys: one order's progress must not stand for the other's."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            if state(db, "batch") == "started":
                orders = [order for order in ("order_1", "order_2") if state(db, order) == "sending"]
            else:
                put(db, "started", "batch")
                orders = ["order_1", "order_2"]
            for order in orders:
                put(db, "sending", order)
                careful(once).call("refund", {"order": order}, key=order)

    report = crashed(body, keys=["order_1", "order_2"])
    convicted(report, Verdict.OMISSION)
    lost = {violation.key.name for violation in report.violations if violation.key is not None}
    assert "order_2" in lost
    assert report.verdict is Verdict.OMISSION
    assert verdicts(report) == {"OMISSION"}


def test_two_orders_that_are_planned_in_one_commit_are_both_exactly_once() -> None:
    """The corrected twin: both intents are durable before the first is acted on."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            db.execute("INSERT OR IGNORE INTO tasks VALUES ('order_1', 'planned', 0), ('order_2', 'planned', 0)")
            for (order,) in db.execute("SELECT id FROM tasks WHERE state = 'planned'").fetchall():
                careful(once).call("refund", {"order": order}, key=order)
                put(db, "done", order)

    report = crashed(body)
    assert proven(report)
    assert sorted(report.intended.values()) == [1, 1]


def test_an_effect_intended_zero_times_that_recovery_produces_is_a_duplicate() -> None:
    """Count 0 is an intention too: a cancelled order must not be refunded by whoever cleans up."""

    def body(once: Once) -> None:
        once.intend("order_1", 0)
        with tasks(once) as db:
            if state(db) == "cancelling":
                careful(once).call("refund", ORDER, key="order_1")
            put(db, "cancelling")
            careful(once).call("cancel", {"ticket": 7}, key="cancel")
            put(db, "cancelled")

    report = crashed(body)
    convicted(report, Verdict.DUPLICATE)
    assert (report.violations[0].expected, report.violations[0].actual) == (0, 1)


def test_intended_counts_above_one_are_held_in_both_directions() -> None:
    """n instalments are neither n-1 nor n+1."""

    def body(once: Once, paid: Callable[[int], str]) -> None:
        once.intend("order_1", 3)
        for number in range(3):
            careful(once).call("pay", {"order": "order_1", "number": number}, key=paid(number))

    assert proven(crashed(lambda once: body(once, lambda number: f"order_1/{number}")))
    report = crashed(lambda once: body(once, lambda number: f"{number}/{uuid.uuid4()}"))
    convicted(report, Verdict.DUPLICATE)
    assert (report.violations[0].expected, report.violations[0].actual) == (3, 4)


def test_a_caller_that_was_answered_does_not_call_again() -> None:
    """Without the caller's memory the same code is called on every restart, which it cannot tell from a new order."""

    def place(once: Once) -> None:
        with tasks(once) as db:
            number = db.execute("SELECT count(*) FROM tasks WHERE state = 'done'").fetchone()[0]
            careful(once).call("refund", ORDER, key=f"order-{number}")
            put(db, "done", f"t{number}")

    convicted(crashed(place), Verdict.DUPLICATE)
    report = crashed(lambda once: once.caller("place", place, once))
    convicted(report, Verdict.DUPLICATE)
    assert report.violations[0].schedule.crashes == 1  # after the commit, before the answer: only a key helps

    def recognised(once: Once) -> None:
        once.caller("place", lambda: careful(once).call("refund", ORDER, key="order_1"))

    assert proven(crashed(recognised))


# Stuck


def test_a_claim_row_left_behind_by_a_crash_is_stuck() -> None:
    """Every restart finds the claim and gives way to a worker that is long dead."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            if state(db) == "done":
                return
            if state(db) == "claimed":
                raise RuntimeError("another worker has it")
            put(db, "claimed")
            careful(once).call("refund", ORDER, key="order_1")
            put(db, "done")

    report = crashed(body)
    convicted(report, Verdict.STUCK)
    assert {violation.actual for violation in report.violations} == {0, None}  # before and after the effect
    assert "it cannot say so" in told(report)


def test_a_claim_that_is_taken_over_is_exactly_once() -> None:
    """The corrected twin."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            if state(db) == "done":
                return
            put(db, "claimed")
            careful(once).call("refund", ORDER, key="order_1")
            put(db, "done")

    assert proven(crashed(body))


def test_an_answer_that_is_in_progress_for_ever_is_stuck() -> None:
    """Code that answers with values instead of exceptions is held to completion too."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            if state(db) == "claimed":
                once.claim("in_progress")
                return
            put(db, "claimed")
            careful(once).call("refund", ORDER, key="order_1")
            put(db, "done")

    convicted(crashed(body), Verdict.STUCK)


def test_restarts_that_alternate_between_states_are_stuck() -> None:
    """A livelock is no less stuck for changing its state each time."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            found = state(db)
            if found in ("ping", "pong"):
                put(db, "pong" if found == "ping" else "ping")
                raise RuntimeError("try again")
            put(db, "ping")
            careful(once).call("refund", ORDER, key="order_1")
            put(db, "done")

    report = crashed(body)
    convicted(report, Verdict.STUCK)
    assert "the same 2 states" in told(report)


# Time


def lease(once: Once, *, trusts_the_lease: bool) -> None:
    """Wait while somebody holds the lease; afterwards do it again, with a new key or with the stored one."""
    with tasks(once) as db:
        row = db.execute("SELECT state, note, id FROM tasks").fetchone()
        if row is not None and row[0] == "done":
            return
        if row is not None and float(row[1]) > time.time():
            raise NoAnswer("somebody else is at it")
        key = uuid.uuid4().hex if row is None or trusts_the_lease else str(row[2])
        db.execute("DELETE FROM tasks")
        put(db, "leased", key, time.time() + 60)
        careful(once).call("refund", ORDER, key=key)
        put(db, "done", key)


@pytest.mark.slow
def test_a_lease_that_is_trusted_fails_only_when_time_passes() -> None:
    """An expired lease says nothing about the request that its holder sent."""

    def body(once: Once) -> None:
        lease(once, trusts_the_lease=True)

    soon = crashed(body, restart_after=("0s",), blocked=(NoAnswer,))
    assert not soon.passed
    assert "depends on how much time has passed" in soon.problem
    report = crashed(body, restart_after=("0s", "1h"), blocked=(NoAnswer,))
    convicted(report, Verdict.DUPLICATE)
    assert "w3600" in str(report.violations[0].schedule)


@pytest.mark.slow
def test_a_lease_with_a_stored_key_completes_once_time_has_passed() -> None:
    """Waiting is no livelock where one of the restarts comes late enough."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            row = db.execute("SELECT state, note FROM tasks").fetchone()
            if row is not None and row[0] == "done":
                return
            if row is not None and float(row[1]) > time.time():
                raise NoAnswer("somebody else is at it")
            put(db, "leased", note=time.time() + 60)
            careful(once).call("refund", ORDER, key="order_1")
            put(db, "done")

    assert proven(crashed(body, restart_after=("0s", "1h")))
    assert proven(crashed(body, restart_after=("1h",)))
    at_once = crashed(body, restart_after=("0s",))
    assert at_once.verdict is Verdict.INCONCLUSIVE
    assert "depends on how much time has passed" in at_once.problem
    assert "restart_after" in at_once.problem


def test_a_key_that_ages_is_no_pass_until_the_delays_are_named() -> None:
    """Stored times are compared by order; code that decides by their age needs to be told how late a restart is."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            row = db.execute("SELECT state, note FROM tasks").fetchone()
            if row is not None and row[0] == "done":
                return
            if row is None or time.time() - float(row[1]) > 3600:
                put(db, "sending", note=time.time())
            key = str(db.execute("SELECT note FROM tasks").fetchone()[0])
            careful(once).call("refund", ORDER, key=key)
            put(db, "done")

    assert "depends on how much time has passed" in crashed(body).problem
    convicted(crashed(body, restart_after=("0s", "2h")), Verdict.DUPLICATE)


def test_what_never_completes_however_late_it_restarts_is_stuck() -> None:
    """The story of such a finding waits as long as the test allows."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            if state(db) == "claimed":
                raise RuntimeError("another worker has it")
            put(db, "claimed")
            careful(once).call("refund", ORDER, key="order_1")
            put(db, "done")

    report = crashed(body, restart_after=("0s", "1h"))
    convicted(report, Verdict.STUCK)
    assert str(report.violations[0].schedule).endswith("w3600")


# Escalated


def gives_up(once: Once) -> None:
    """With a careless provider: never again what may have been done."""
    with tasks(once) as db:
        if state(db) == "sending":
            raise NoAnswer
        if state(db) is None:
            put(db, "sending")
            careless(once).call("refund", ORDER)
            put(db, "done")


def says_unknown(once: Once) -> None:
    try:
        gives_up(once)
    except NoAnswer:
        once.claim("unknown")


def test_giving_up_is_no_end_unless_the_test_allows_it() -> None:
    """An exception that claims nothing is restarted for ever; that is not an escalation but a livelock."""
    convicted(crashed(gives_up), Verdict.STUCK)


def test_giving_up_passes_where_the_test_allows_it() -> None:
    """Safe, and said: more is impossible with a provider that neither deduplicates nor answers questions."""
    report = crashed(gives_up, blocked=(NoAnswer,))
    assert report.passed
    assert (report.verdict, report.coverage) == (Verdict.ESCALATED, "exhausted")


def test_an_unknown_claim_fails_unless_the_test_allows_it() -> None:
    """The report says how to allow it, since that may be the right answer."""
    report = crashed(says_unknown)
    convicted(report, Verdict.ESCALATED)
    assert 'blocked=("unknown",)' in told(report)
    assert crashed(says_unknown, blocked=("unknown",)).passed


@pytest.mark.slow
def test_allowing_an_exception_does_not_allow_the_claim_nor_the_other_way_round() -> None:
    """Each is allowed by name; code that gives up in another way than agreed has not been looked at."""
    convicted(crashed(says_unknown, blocked=(NoAnswer,)), Verdict.ESCALATED)
    convicted(crashed(gives_up, blocked=("unknown",)), Verdict.STUCK)
    convicted(crashed(gives_up, blocked=(Rejected,)), Verdict.STUCK)


def test_escalation_does_not_excuse_a_duplicate() -> None:
    """blocked= allows an answer; it does not lower the bar for those that were not given."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            if state(db) == "tried twice":
                raise NoAnswer
            put(db, "tried" if state(db) is None else "tried twice")
            careless(once).call("refund", ORDER)
            put(db, "tried twice")

    convicted(crashed(body, blocked=(NoAnswer,)), Verdict.DUPLICATE)


# False failure


def failing(error: type[Exception]) -> Callable[[Once], None]:
    def body(once: Once) -> None:
        try:
            careful(once).call("refund", ORDER, key="order_1")
        except TimeoutError:
            raise error from None

    return body


def test_a_definite_failure_after_a_lost_response_is_a_lie() -> None:
    """A time-out is no evidence of absence."""
    report = explore(failing(Rejected), definite_failure=(Rejected,), faults=("lost-response",))
    convicted(report, Verdict.FALSE_FAILURE)
    assert report.violations[0].actual == 1


def test_an_unknown_outcome_after_a_lost_response_is_honest() -> None:
    """The corrected twin."""
    report = explore(failing(NoAnswer), blocked=(NoAnswer,), faults=("lost-response",))
    assert report.passed


def test_a_definite_failure_after_a_refused_connection_is_honest() -> None:
    """Nothing arrived, nothing happened, and the code may say so: then it needs no completion."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            if state(db) == "rejected":
                raise Rejected
            try:
                careful(once).call("refund", ORDER, key="order_1")
            except ConnectionRefusedError:
                if state(db) is None:
                    put(db, "rejected")
                    raise Rejected from None
                raise
            put(db, "done")

    report = explore(body, definite_failure=(Rejected,), faults=("refused",), redeliver=0)
    # A crash before "done" makes the next life think that nothing has happened yet: still a lie, two faults deep.
    convicted(report, Verdict.FALSE_FAILURE)

    def honest(once: Once) -> None:
        with tasks(once) as db:
            if state(db) == "rejected":
                raise Rejected
            first = state(db) is None
            put(db, "sending")
            try:
                careful(once).call("refund", ORDER, key="order_1")
            except ConnectionRefusedError:
                if first:
                    put(db, "rejected")
                    raise Rejected from None
                raise
            put(db, "done")

    assert proven(explore(honest, definite_failure=(Rejected,), faults=("refused",), redeliver=0))


def test_failed_by_claim_is_held_to_the_ledger_as_well() -> None:
    """Code that answers with values can lie too."""

    def body(once: Once) -> None:
        try:
            careful(once).call("refund", ORDER, key="order_1")
        except TimeoutError:
            once.claim("failed")

    convicted(explore(body, faults=("lost-response",)), Verdict.FALSE_FAILURE)


def test_a_definite_failure_with_half_of_the_effects_done_is_a_lie() -> None:
    """ "Certainly no effect" is false as soon as there is one."""

    def body(once: Once) -> None:
        for order in ("order_1", "order_2"):
            try:
                careful(once).call("refund", {"order": order}, key=order)
            except ConnectionRefusedError:
                raise Rejected from None

    report = explore(body, definite_failure=(Rejected,), faults=("refused",), redeliver=0)
    convicted(report, Verdict.FALSE_FAILURE)
    assert report.violations[0].key is not None
    assert "order_1" in report.violations[0].key.name


# Nondeterministic


def test_branching_on_a_random_value_is_not_explored() -> None:
    """A schedule that does not replay proves nothing."""

    def body(once: Once) -> None:
        for _ in range(random.randint(1, 50)):
            once.boundary("roll")
        careful(once).call("refund", ORDER, key="order_1")

    report = crashed(body)
    assert (report.verdict, report.passed) == (Verdict.NONDETERMINISTIC, False)
    assert "roll" in report.problem


def test_a_random_value_that_decides_nothing_is_fine() -> None:
    """The corrected twin: random values may be stored and sent, as long as the way is the same."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            if state(db) != "done":
                careful(once).call("refund", ORDER, key="order_1")
                put(db, "done", note=random.random())

    assert proven(crashed(body))


def test_branching_on_the_date_is_not_explored() -> None:
    """The clock is virtual, and the second recording run has another one."""

    def body(once: Once) -> None:
        for _ in range(time.gmtime().tm_yday % 7 + 1):
            once.boundary("day")
        careful(once).call("refund", ORDER, key="order_1")

    assert crashed(body).verdict is Verdict.NONDETERMINISTIC


def test_random_amounts_of_stored_data_are_named() -> None:
    """Renaming hides random values, not random numbers of rows."""

    def body(once: Once) -> None:
        careful(once).call("refund", ORDER, key="order_1")
        with tasks(once) as db:
            db.executemany(
                "INSERT OR IGNORE INTO tasks VALUES (?, '', 0)", [(str(n),) for n in range(os.urandom(1)[0])]
            )

    report = crashed(body)
    assert (report.verdict, report.passed) == (Verdict.NONDETERMINISTIC, False)


def test_a_file_of_random_length_is_equal_to_another_one() -> None:
    """Its content is a value like another: nothing decides on its length, so nothing is wrong."""

    def body(once: Once) -> None:
        careful(once).call("refund", ORDER, key="order_1")
        (once.path / "noise.bin").write_bytes(os.urandom(50 + os.urandom(1)[0]))

    report = crashed(body)
    assert report.verdict in (Verdict.EXACTLY_ONCE, Verdict.NONDETERMINISTIC)


def test_state_outside_the_tracked_world_is_noticed(tmp_path: Path) -> None:
    """A marker elsewhere survives from one explored run to the next, which no real restart would see."""

    def body(once: Once) -> None:
        marker = tmp_path / "done"
        if not marker.exists():
            careful(once).call("refund", ORDER, key="order_1")
            marker.touch()

    report = crashed(body)
    assert (report.verdict, report.passed) == (Verdict.ESCAPED_EFFECT, False)
    assert "below no tracked directory" in report.problem
    report = crashed(body, allow=f"file:{tmp_path}/*")
    assert (report.verdict, report.passed) == (Verdict.NONDETERMINISTIC, False)
    assert "outside the tracked world" in report.problem


# Inconclusive


def counting(once: Once) -> None:
    with tasks(once) as db:
        if state(db) is None:
            put(db, "planned", note=0)
        if state(db) == "planned":
            db.execute("UPDATE tasks SET note = note + 1")
            careful(once).call("refund", ORDER, key="order_1")
            db.execute("UPDATE tasks SET state = 'done'")


def test_a_counter_of_attempts_keeps_the_search_open_and_is_named() -> None:
    """The limit is said together with the column that has to go, or no one could act on it."""
    report = crashed(counting, max_states=25)
    assert (report.verdict, report.coverage, report.passed) == (Verdict.INCONCLUSIVE, "bounded", False)
    assert report.bound.startswith("max-states=25")
    assert "tasks.db/tasks.note" in report.bound
    assert "tasks.state" not in report.bound
    assert "ignore=" in report.bound


def test_ignoring_the_counter_closes_the_search() -> None:
    """The remedy that the report names; what it assumes is said."""
    report = crashed(counting, ignore=["tasks.note"])
    assert proven(report)
    assert "tasks.note" in told(report)


def test_a_limit_in_the_code_closes_the_search_too() -> None:
    """The other remedy: an attempt counter that decides something ends."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            if state(db) is None:
                put(db, "planned", note=0)
            if state(db) == "planned":
                if db.execute("SELECT note FROM tasks").fetchone()[0] >= 3:
                    raise NoAnswer
                db.execute("UPDATE tasks SET note = note + 1")
                careful(once).call("refund", ORDER, key="order_1")
                db.execute("UPDATE tasks SET state = 'done'")

    report = crashed(body, blocked=(NoAnswer,))
    assert (report.verdict, report.coverage) == (Verdict.ESCALATED, "exhausted")
    assert report.passed


def test_the_deadline_bounds_an_exploration() -> None:
    """A limit that bit is never a pass."""
    report = explore(counting, soft_faults=0, limits={"deadline_s": 3.0})
    assert (report.verdict, report.coverage, report.passed) == (Verdict.INCONCLUSIVE, "bounded", False)
    assert report.bound.startswith("deadline=3s")


def test_a_body_that_hangs_is_killed_and_its_place_told() -> None:
    """A wait without a time-out must not hang the whole test run."""

    def body(once: Once) -> None:
        careful(once).call("refund", ORDER, key="order_1")
        threading.Event().wait()

    report = explore(body, limits={"life_timeout_s": 0.6})
    assert (report.verdict, report.passed) == (Verdict.INCONCLUSIVE, False)
    assert "silent for 0.6s after pay refund" in report.problem
    assert "test_verdicts.py" in report.problem


def test_a_recovery_that_hangs_is_inconclusive_with_its_schedule() -> None:
    """Found only after a crash, and still reported with what leads there."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            if state(db) == "done":
                threading.Event().wait()
            careful(once).call("refund", ORDER, key="order_1")
            put(db, "done")

    report = explore(body, soft_faults=0, redeliver=0, limits={"life_timeout_s": 0.6})
    assert (report.verdict, report.passed) == (Verdict.INCONCLUSIVE, False)
    assert report.violations[0].schedule.crashes == 1
    assert report.violations[0].confirmed


@pytest.mark.parametrize(
    ("death", "how"),
    [
        (lambda: os._exit(0), "exit status 0"),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), "signal SIGTERM"),
    ],
)
def test_a_process_that_ends_by_itself_is_inconclusive(death: Callable[[], None], how: str) -> None:
    """Whether the call went well is unknown then, even for an exit status of 0."""

    def at_once(once: Once) -> None:
        careful(once).call("refund", ORDER, key="order_1")
        death()

    def in_recovery(once: Once) -> None:
        with tasks(once) as db:
            if state(db) == "sending":
                death()
            put(db, "sending")
            careful(once).call("refund", ORDER, key="order_1")
            put(db, "done")

    for body in (at_once, in_recovery):
        report = crashed(body)
        assert (report.verdict, report.passed) == (Verdict.INCONCLUSIVE, False)
        assert how in told(report)


def test_a_body_without_effect_is_an_error() -> None:
    """A test that counts nothing would always pass."""
    report = crashed(lambda once: once.boundary("nothing"))
    assert (report.verdict, report.passed) == (Verdict.INCONCLUSIVE, False)
    assert "had no effect" in report.problem


def test_a_body_that_fails_without_faults_is_not_explored() -> None:
    """What does not work at all says nothing about crashes."""

    def body(once: Once) -> None:
        careful(once).call("refund", ORDER, key="order_1")
        raise RuntimeError("broken")

    report = crashed(body)
    assert (report.verdict, report.passed) == (Verdict.INCONCLUSIVE, False)
    assert "RuntimeError: broken" in report.problem
    assert "test_verdicts.py" in report.problem


# Escaped effect


def test_a_request_to_a_real_server_never_leaves() -> None:
    """Exploring sends a request hundreds of times; an address that no fake stands for may be production."""
    arrived: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            arrived.append(self.path)
            self.send_response(204)
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/refunds"

        def body(once: Once) -> None:
            careful(once).call("refund", ORDER, key="order_1")
            httpx.post(url, json=ORDER)

        report = crashed(body)
        server.shutdown()
    assert (report.verdict, report.passed) == (Verdict.ESCAPED_EFFECT, False)
    assert url in report.problem
    assert "once.provider" in report.problem
    assert arrived == []


def test_an_effect_through_a_client_that_no_seam_knows_is_noticed() -> None:
    """No crash was tried around it, so a pass would be worth nothing: marking first would look exactly once."""

    def body(once: Once) -> None:
        url = careful(once).url
        with tasks(once) as db:
            if state(db) is None:
                put(db, "done")
                send(url)

    report = crashed(body)
    assert (report.verdict, report.passed) == (Verdict.ESCAPED_EFFECT, False)
    assert "'pay'" in report.problem
    assert "once.tool" in report.problem


def send(url: str) -> None:
    host, _, path = url.removeprefix("http://").partition("/")
    body = b'{"order": "1"}'
    head = f"POST /{path}/refunds HTTP/1.1\r\nHost: {host}\r\nIdempotency-Key: order_1\r\nConnection: close\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((host.split(":")[0], int(host.split(":")[1]))) as connection:
        connection.sendall(head.encode() + body)
        while connection.recv(4096):
            continue


def test_such_a_client_wrapped_as_a_tool_is_explored() -> None:
    """The remedy that the message names, in both verdicts."""

    def mark_first(once: Once) -> None:
        url = careful(once).url
        with tasks(once) as db:
            if state(db) is None:
                put(db, "done")
                once.tool(send, counted=False)(url)

    def mark_last(once: Once) -> None:
        url = careful(once).url
        with tasks(once) as db:
            if state(db) is None:
                once.tool(send, counted=False)(url)
                put(db, "done")

    convicted(crashed(mark_first), Verdict.OMISSION)
    assert proven(crashed(mark_last))


def test_a_question_to_a_real_server_is_asked_and_named_in_the_report() -> None:
    """Its answer is taken to be the same each time, which nobody checks: the reader must know."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/rates"

        def body(once: Once) -> None:
            assert httpx.get(url).status_code == 204
            careful(once).call("refund", ORDER, key="order_1")

        report = crashed(body)
        server.shutdown()
    assert proven(report)
    assert "asked for real, and taken to answer the same each time: GET 127.0.0.1/rates" in told(report)
