"""Several relays, batches and failures: every message is sent until its end is known, always as the message it was."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_once.reference import outbox
from pytest_once.reference.answers import Answer, Applied, Failed, Forwarded, Gap, Refused
from pytest_once.reference.claims import Backoff, Delivery, claim, next_due, settle
from pytest_once.reference.messages import Fact, Message
from pytest_once.reference.relay import one_by_one
from pytest_once.reference.steps import Steps
from tests.reference.conftest import Clock, Opener, Store, relay_round
from tests.reference.messages import ACCEPT, answering, put, report, rows, state, terms


def claimed(store: Store, clock: Clock, relay: str = "a", limit: int = 20, in_order: bool = True) -> list[Delivery]:
    return store.transact(claim(Fact, relay=relay, now=clock.now, lease_s=30.0, limit=limit, in_order=in_order))


def noted(store: Store, clock: Clock, delivery: Delivery, answer: Answer = ACCEPT) -> bool:
    return store.transact(settle(delivery, answer, now=clock.now, backoff=Backoff()))


# What is sent


def test_only_committed_messages_are_sent(open_store: Opener, clock: Clock) -> None:
    """S2.1: what a transaction has written and not committed does not exist for a relay."""
    relaying = open_store("own")

    def looks_before_the_commit() -> Steps[None]:
        yield from outbox.put(report(), now=clock.now)
        raise RuntimeError("the business transaction fails after all")

    with pytest.raises(RuntimeError):
        open_store("own").transact(looks_before_the_commit())
    assert relay_round(relaying, answering(ACCEPT), terms(clock)).claimed == 0


def test_the_original_message_is_resumed_after_a_crash(open_store: Opener, clock: Clock) -> None:
    """S2.2, S2.3: another process sends the stored message, under the same id, when the claim of the dead one ends."""
    put(open_store("own"), report(title="Q3"))
    (first,) = claimed(open_store("own"), clock)
    seen: list[Delivery] = []
    survivor = open_store("own")
    assert relay_round(survivor, answering(ACCEPT, seen), terms(clock)).claimed == 0
    clock.now += 31
    relay_round(survivor, answering(ACCEPT, seen), terms(clock))
    assert [delivery.message for delivery in seen] == [first.message] == [report(title="Q3")]
    assert seen[0].token > first.token


def test_the_time_until_the_next_claim_is_known(store: Store, clock: Clock) -> None:
    """A relay waits for a condition instead of asking all the time."""
    assert store.transact(next_due(Fact)) is None
    put(store, report(), now=clock.now)
    assert store.transact(next_due(Fact)) == clock.now
    claimed(store, clock)
    assert store.transact(next_due(Fact)) == clock.now + 30


# Claims


def test_two_relays_do_not_claim_one_message(open_store: Opener, clock: Clock) -> None:
    """S2.9: a claim is exclusive while its lease lasts."""
    put(open_store("own"), *(report(1, about=f"report-{number}") for number in range(5)))
    first = claimed(open_store("own"), clock, "a", limit=3)
    second = claimed(open_store("own"), clock, "b", limit=3)
    assert sorted(delivery.event_id for delivery in first + second) == [f"acme:report-{n}:v1" for n in range(5)]


def test_a_late_acknowledgement_is_refused(store: Store, clock: Clock) -> None:
    """S2.9: after its lease a relay's report counts no more, claimed by another or not; the new holder's does."""
    put(store, report())
    (slow,) = claimed(store, clock, "slow")
    clock.now += 30
    assert not noted(store, clock, slow)
    (new,) = claimed(store, clock, "new")
    for answer in (ACCEPT, Failed("time-out"), Refused("400"), Gap(1, 2)):
        assert not noted(store, clock, slow, answer)
    assert state(store, "acme:report-17:v3") == "claimed"
    assert noted(store, clock, new)
    assert not noted(store, clock, new, Failed("the end is not overwritten"))
    assert state(store, "acme:report-17:v3") == "forwarded"


def test_the_fencing_token_tells_claims_of_one_relay_apart(store: Store, clock: Clock) -> None:
    """S2.9: a restarted relay has its predecessor's name, and must not be answered for by it."""
    put(store, report())
    (before,) = claimed(store, clock, "relay")
    clock.now += 31
    (after,) = claimed(store, clock, "relay")
    assert (before.token, after.token) == (1, 2)
    assert not noted(store, clock, before)
    assert noted(store, clock, after)


def test_a_round_counts_what_came_too_late(store: Store, clock: Clock) -> None:
    """S2.9: sending took longer than the lease, so nothing is noted and the message will be sent again."""

    def slow(batch: Sequence[Delivery]) -> dict[str, Answer]:
        clock.now += 31
        return {delivery.event_id: ACCEPT for delivery in batch}

    put(store, report())
    done = relay_round(store, slow, terms(clock))
    assert (done.claimed, done.answers, done.late) == (1, {}, 1)
    assert relay_round(store, answering(ACCEPT), terms(clock)).answers == {"applied": 1}


def test_what_waited_longer_than_its_lease_is_not_sent(store: Store, clock: Clock) -> None:
    """S2.9: messages at the end of a slow batch belong to somebody else by then."""
    seen: list[str] = []

    def slow(delivery: Delivery) -> Answer:
        seen.append(delivery.event_id)
        clock.now += 20
        return ACCEPT

    put(store, *(report(1, about=f"report-{number}") for number in range(4)))
    done = relay_round(store, one_by_one(slow, clock), terms(clock))
    assert len(seen) == 2
    assert done.late == 4


# Batches


def test_each_item_of_a_batch_is_confirmed_by_itself(store: Store, clock: Clock) -> None:
    """S2.8: a batch that succeeded may hold items that did not; one that is not named is not confirmed."""
    names = ["accepted", "refused", "failed", "unnamed"]
    put(store, *(report(1, about=name, event_id=name) for name in names))

    def send(batch: Sequence[Delivery]) -> dict[str, Answer]:
        assert len(batch) == 4
        return {"accepted": Applied("yes"), "refused": Refused("no"), "failed": Failed("503")}

    done = relay_round(store, send, terms(clock))
    assert done.answers == {"applied": 1, "refused": 1, "failed": 2}
    assert [state(store, name) for name in names] == ["forwarded", "dead", "recorded", "recorded"]


def test_an_exception_for_one_item_leaves_the_others_alone(store: Store, clock: Clock) -> None:
    """S2.8: one bad record must not return the whole batch."""

    def call(delivery: Delivery) -> Answer:
        if delivery.event_id == "poison":
            raise ValueError("cannot be read")
        return ACCEPT

    put(store, *(report(1, about=name, event_id=name) for name in ("good", "poison", "better")))
    assert relay_round(store, one_by_one(call, clock), terms(clock)).answers == {"applied": 2, "failed": 1}
    known = store.transact(outbox.look_up("poison"))
    assert known is not None
    assert known.reason == "ValueError: cannot be read"


def test_an_exception_for_a_batch_leaves_all_of_it_unknown(store: Store, clock: Clock) -> None:
    """S2.8: what was sent may have arrived; nothing is confirmed, nothing is given up."""

    def send(batch: Sequence[Delivery]) -> dict[str, Answer]:
        raise TimeoutError("no answer")

    put(store, report(1, about="x"), report(1, about="y"))
    assert relay_round(store, send, terms(clock)).answers == {"failed": 2}


def test_failures_back_off_and_their_counter_is_never_reset(store: Store, clock: Clock) -> None:
    """Attempts that restart at one have no end; waiting times grow up to a limit."""
    put(store, report(), allowed=None)
    waits = []
    for attempt in range(1, 6):
        (delivery,) = claimed(store, clock)
        assert delivery.token == attempt
        store.transact(settle(delivery, Failed("503"), now=clock.now, backoff=Backoff(first_s=2, limit_s=10)))
        due = store.transact(next_due(Fact))
        assert due is not None
        waits.append(due - clock.now)
        clock.now = due
    assert waits == [2, 4, 8, 10, 10]
    assert Backoff().after(10_000) == 300


# Order


def test_an_object_is_sent_in_order_and_objects_do_not_wait_for_each_other(store: Store, clock: Clock) -> None:
    """S2.6: with two relays, version 4 does not overtake 3, neither while 3 is claimed nor while it is retried."""
    put(store, report(4), report(3), report(1, about="other"))
    first = claimed(store, clock, "a")
    assert [delivery.event_id for delivery in first] == ["acme:other:v1", "acme:report-17:v3"]
    assert claimed(store, clock, "b") == []
    noted(store, clock, first[1], Failed("503"))
    assert claimed(store, clock, "b") == []
    clock.now += 2
    (again,) = claimed(store, clock, "b")
    noted(store, clock, again)
    assert [delivery.event_id for delivery in claimed(store, clock, "a")] == ["acme:report-17:v4"]


def test_tenants_do_not_hold_up_each_other(store: Store, clock: Clock) -> None:
    """S1.4, S2.6: objects of one name belong to different domains of order."""
    put(store, report(1, tenant="a"), report(2, tenant="b"))
    assert len(claimed(store, clock)) == 2


def test_a_dead_letter_holds_up_its_object_only(store: Store, clock: Clock) -> None:
    """S2.6, S2.7: deltas behind it would be misread; where snapshots are sent, order can be given up."""
    put(store, report(1), report(2), report(1, about="other"))
    (dead, _) = sorted(claimed(store, clock), key=lambda delivery: delivery.message.object_id, reverse=True)
    noted(store, clock, dead, Refused("cannot be read"))
    clock.now += 31
    assert [delivery.event_id for delivery in claimed(store, clock)] == ["acme:other:v1"]
    clock.now += 31
    assert {delivery.event_id for delivery in claimed(store, clock, in_order=False)} == {
        "acme:other:v1",
        "acme:report-17:v2",
    }


def test_a_gap_is_filled_with_the_messages_that_were_sent(store: Store, clock: Clock) -> None:
    """S2.6: the receiver lost versions 1 and 2, which were forwarded; they come again, as they were, before 3."""
    put(store, report(1), report(2), report(3), allowed=1)
    arrived: list[int] = []

    def send(batch: Sequence[Delivery]) -> dict[str, Answer]:
        def answer(message: Message) -> Answer:
            arrived.append(message.version)
            if message.version == 3 and arrived.count(1) == 1:
                return Gap(1, 2)
            return ACCEPT if arrived.count(1) == 2 else Forwarded("broker")

        return {delivery.event_id: answer(delivery.message) for delivery in batch}

    put_more = terms(clock)
    store.transact(_allow_another("acme:report-17:v3"))
    while relay_round(store, send, put_more).claimed:
        pass
    assert arrived == [1, 2, 3, 1, 2, 3]
    assert {state(store, f"acme:report-17:v{version}") for version in (1, 2, 3)} == {"forwarded"}


def _allow_another(event_id: str) -> Steps[None]:
    from pytest_once.reference.steps import Statement

    yield Statement("UPDATE outbox SET allowed = 2 WHERE event_id = ?", (event_id,))


def test_a_gap_that_cannot_be_filled_is_told_and_waited_for(store: Store, clock: Clock) -> None:
    """S2.6, S2.7: version 2 may commit later, or was deleted; nothing is skipped and nothing spins."""
    put(store, report(3))
    assert relay_round(store, answering(Gap(1, 2)), terms(clock)).answers == {"gap": 1}
    known = store.transact(outbox.look_up("acme:report-17:v3"))
    assert known is not None
    assert known.reason is not None and "of which the outbox has 0" in known.reason
    assert store.transact(next_due(Fact)) == clock.now + 1
    assert len(store.transact(rows("outbox"))) == 1
