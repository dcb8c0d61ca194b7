"""What waits is counted and aged, dead letters can still be settled, and nothing undelivered is deleted."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_once.reference import outbox
from pytest_once.reference.answers import Answer, Failed, Forwarded, Refused
from pytest_once.reference.backlog import backlog, dead_letters, purge, put_back
from pytest_once.reference.claims import Backoff, Delivery, claim, settle
from pytest_once.reference.inbox import Inbox
from pytest_once.reference.messages import Command, Fact
from pytest_once.reference.steps import Statement, Steps
from tests.reference.conftest import Clock, Opener, Store, relay_round
from tests.reference.messages import ACCEPT, answering, mail, put, report, rows, state, terms


def test_ages_and_counts_say_what_is_stuck(store: Store, clock: Clock) -> None:
    """S2.7: the oldest message that waits, failures, dead letters, and what nobody has confirmed."""
    assert dict(store.transact(backlog(now=clock.now)).as_numbers()) == {
        "waiting": 0,
        "failing": 0,
        "dead": 0,
        "unconfirmed": 0,
    }
    names = ["waits", "fails", "dies", "is forwarded", "is applied"]
    put(store, *(report(1, about=name, event_id=name) for name in names), now=clock.now)
    answers: dict[str, Answer] = {
        "fails": Failed("503"),
        "dies": Refused("no"),
        "is forwarded": Forwarded("broker"),
        "is applied": ACCEPT,
    }
    relay_round(store, lambda batch: answers, terms(clock))
    clock.now += 1
    relay_round(store, lambda batch: {}, terms(clock))
    clock.now += 99
    assert dict(store.transact(backlog(now=clock.now)).as_numbers()) == {
        "waiting": 2,
        "oldest_waiting_s": 100,
        "failing": 2,
        "dead": 1,
        "oldest_dead_s": 100,
        "unconfirmed": 1,
        "oldest_unconfirmed_s": 100,
    }


def test_attempts_that_are_used_up_make_a_dead_letter(store: Store, clock: Clock) -> None:
    """S2.7: after failures, and after crashes that reported nothing."""
    put(store, report(event_id="fails"), allowed=2)
    for _ in range(2):
        relay_round(store, answering(Failed("503")), terms(clock))
        clock.now += 10
    put(store, report(4, event_id="kills its relay"), allowed=2)
    for _ in range(2):
        assert store.transact(claim(Fact, relay="a", now=clock.now, lease_s=30, limit=9, in_order=False))
        clock.now += 31
    assert relay_round(store, answering(ACCEPT), terms(clock, in_order=False)).claimed == 0
    letters = {letter.message.event_id: letter for letter in store.transact(dead_letters())}
    assert letters.keys() == {"fails", "kills its relay"}
    assert letters["fails"].reason == "503"
    assert "no report" in letters["kills its relay"].reason
    assert {letter.attempts for letter in letters.values()} == {2}


def test_a_dead_letter_that_was_applied_is_settled_by_the_consumers_evidence(open_store: Opener, clock: Clock) -> None:
    """S2.7, S2.5: only its answer was lost; the inbox knows, and the message is not sent again."""
    store, consumer, inbox = open_store("own"), open_store("theirs"), Inbox("dashboard")
    put(store, report(), allowed=1)
    (delivery,) = store.transact(claim(Fact, relay="a", now=clock.now, lease_s=30, limit=1))
    consumer.transact(inbox.receive(delivery.message, delivery.epoch, nothing, now=clock.now))
    store.transact(settle(delivery, Failed("time-out"), now=clock.now, backoff=Backoff()))
    (letter,) = store.transact(dead_letters())
    evidence = consumer.transact(inbox.look_up(letter.message.event_id))
    assert evidence is not None
    assert store.transact(outbox.applied(letter.message.event_id, evidence=evidence.evidence, now=clock.now))
    assert store.transact(dead_letters()) == []
    assert relay_round(store, answering(ACCEPT), terms(clock)).claimed == 0


def test_a_dead_letter_is_put_back_under_its_own_id(store: Store, clock: Clock) -> None:
    """S2.7: with attempts of its own, counted on, so that old claims stay refused."""
    put(store, report(), mail(), allowed=1)
    for kind in (Fact, Command):
        relay_round(store, answering(Failed("503")), terms(clock, kind))
    for event_id in ("acme:report-17:v3", "acme:t1:tell:mail"):
        assert store.transact(put_back(event_id, because="the receiver is mended", now=clock.now, attempts=1))
        assert not store.transact(put_back(event_id, because="again", now=clock.now))
    seen: list[Delivery] = []
    relay_round(store, answering(ACCEPT, seen), terms(clock))
    assert [(delivery.message, delivery.token) for delivery in seen] == [(report(), 2)]


def test_what_a_closed_epoch_refused_can_be_sent_in_a_new_one(open_store: Opener, clock: Clock) -> None:
    """S1.8, S2.7: a person has seen that it never arrived; only then it may look like a new message."""
    store, consumer, inbox = open_store("own"), open_store("theirs"), Inbox("dashboard")
    put(store, report())
    store.transact(outbox.advance_epoch())
    consumer.transact(inbox.close_epochs_before(2))

    def send(batch: Sequence[Delivery]) -> dict[str, Answer]:
        return {
            delivery.event_id: consumer.transact(
                inbox.receive(delivery.message, delivery.epoch, nothing, now=clock.now)
            )
            for delivery in batch
        }

    assert relay_round(store, send, terms(clock)).answers == {"refused": 1}
    (letter,) = store.transact(dead_letters())
    assert "closed epoch 1" in letter.reason
    store.transact(put_back(letter.message.event_id, because="absent there", now=clock.now, new_epoch=True))
    assert relay_round(store, send, terms(clock)).answers == {"applied": 1}


def test_retention_deletes_what_was_applied_and_nothing_that_was_not(store: Store, clock: Clock) -> None:
    """S2.7: an age limit must not delete what is waiting, claimed, dead, or without evidence."""
    names = ["applied", "refused", "forwarded", "dead", "waiting"]
    put(store, *(mail(name) for name in names), allowed=1)
    answers: dict[str, Answer] = {
        "applied": ACCEPT,
        "refused": Refused("400"),
        "forwarded": Forwarded("202"),
        "dead": Failed("503"),
    }
    relay_round(store, lambda batch: answers, terms(clock, Command, batch=2))
    relay_round(store, lambda batch: answers, terms(clock, Command, batch=2))
    clock.now += 3600
    assert store.transact(purge(before=clock.now - 7200)) == 0
    assert store.transact(purge(before=clock.now, limit=1)) == 1
    assert store.transact(purge(before=clock.now)) == 1
    assert store.transact(purge(before=clock.now)) == 0
    left = {row[0] for row in store.transact(rows("outbox", "event_id"))}
    assert left == {"forwarded", "dead", "waiting"}
    assert store.transact(purge(before=clock.now, unconfirmed=True)) == 1
    assert {row[0] for row in store.transact(rows("outbox", "event_id"))} == {"dead", "waiting"}


@pytest.mark.parametrize("ends_as", ["recorded", "claimed", "dead"])
def test_the_table_itself_keeps_what_is_undelivered(store: Store, clock: Clock, ends_as: str) -> None:
    """S2.7: also against a clean-up that somebody wrote by hand."""
    put(store, report())
    if ends_as == "claimed":
        store.transact(claim(Fact, relay="a", now=clock.now, lease_s=30, limit=1))
    if ends_as == "dead":
        relay_round(store, answering(Refused("no")), terms(clock))
    assert state(store, "acme:report-17:v3") == ends_as

    def expire() -> Steps[None]:
        yield Statement("DELETE FROM outbox WHERE committed_at < 2000000")

    with pytest.raises(Exception, match="undelivered"):
        store.transact(expire())
    assert len(store.transact(rows("outbox"))) == 1


def nothing(message: object) -> Steps[None]:
    """A consumer's change that the test does not look at."""
    yield Statement("SELECT 1")
