"""A message commits with its change, under one id, and what is known about it is three things, not one."""

from __future__ import annotations

import pytest

from pytest_once.reference import outbox
from pytest_once.reference.answers import Applied, Forwarded, Refused
from pytest_once.reference.identity import EffectConflict
from pytest_once.reference.messages import Command, CommandState, Fact, FactState
from pytest_once.reference.outbox import Contradiction
from pytest_once.reference.steps import Statement, Steps
from tests.reference.conftest import Clock, Store, relay_round
from tests.reference.messages import ACCEPT, answering, mail, put, report, rows, state, terms


def test_change_and_message_commit_together_or_not_at_all(store: Store) -> None:
    """S2.1: neither is there without the other, whichever step fails."""

    def save(fails: bool) -> Steps[None]:
        yield Statement("INSERT INTO tasks VALUES ('acme', 'report-17', 'version 3', 1)")
        yield from outbox.put(report(), now=1.0)
        if fails:
            raise RuntimeError("the process ends here")

    with pytest.raises(RuntimeError):
        store.transact(save(fails=True))
    assert (store.transact(rows("tasks")), store.transact(rows("outbox"))) == ([], [])
    store.transact(save(fails=False))
    assert len(store.transact(rows("tasks"))) == len(store.transact(rows("outbox"))) == 1


def test_a_message_has_a_stable_id_and_says_what_it_is_about(store: Store) -> None:
    """S2.2: id, type, object and version, schema version, payload and delivery state are stored as they were put."""
    fact = Fact(
        event_type="report.saved", tenant="acme", object_id="report-17", version=3, payload={"pages": [1, 2.5, None]}
    )
    put(store, fact)
    known = store.transact(outbox.look_up(fact.event_id))
    assert known is not None
    assert known.message == fact
    assert (known.state, known.attempts, known.epoch) == (FactState.RECORDED, 0, 1)
    assert store.transact(outbox.look_up("another")) is None


def test_putting_a_message_again_adds_none_and_a_changed_one_is_a_conflict(store: Store) -> None:
    """S2.2, S3.3: a repeated business transaction is harmless; an id that is used again for another message is not."""
    put(store, report(title="Q3"))
    assert store.transact(outbox.put(report(title="Q3"), now=9.0)) is False
    for other in (report(title="Q4"), report(4, event_id="acme:report-17:v3", title="Q3")):
        with pytest.raises(EffectConflict, match="another content"):
            store.transact(outbox.put(other, now=9.0))
    with pytest.raises(EffectConflict):
        store.transact(outbox.put(report(event_id="acme:report-17:v3", tenant="other", title="Q3"), now=9.0))
    assert len(store.transact(rows("outbox"))) == 1


def test_a_fact_that_is_made_anew_fails_with_its_transaction(store: Store) -> None:
    """S2.3: the work is not done again to repair a notification; a second fact for the version is refused."""
    put(store, report(event_id="first"))
    with pytest.raises(Exception, match=r"(?i)unique"):
        store.transact(outbox.put(report(event_id="second"), now=2.0))
    put(store, report(event_id="theirs", tenant="other"))


def test_committed_forwarded_and_applied_are_three_evidences(store: Store, clock: Clock) -> None:
    """S2.5: each has its own time and its own source, and none stands for another."""
    put(store, report(), now=clock.now)

    def known() -> tuple[object, ...]:
        found = store.transact(outbox.look_up("acme:report-17:v3"))
        assert found is not None
        return (
            found.committed_at,
            found.forwarded_at,
            found.forwarded_evidence,
            found.applied_at,
            found.applied_evidence,
        )

    began = clock.now
    assert known() == (began, None, None, None, None)
    clock.now += 5
    relay_round(store, answering(Forwarded("broker: offset 7")), terms(clock))
    assert known() == (began, began + 5, "broker: offset 7", None, None)
    assert store.transact(outbox.applied("acme:report-17:v3", evidence="dashboard shows v3", now=began + 60))
    assert known() == (began, began + 5, "broker: offset 7", began + 60, "dashboard shows v3")
    assert not store.transact(outbox.applied("acme:report-17:v3", evidence="later news", now=began + 90))


def test_a_fact_is_never_refused_and_a_command_may_be(store: Store, clock: Clock) -> None:
    """S2.10: what has happened stays true and waits for a person; what was only planned has ended."""
    put(store, report(), mail())
    for kind in (Fact, Command):
        relay_round(store, answering(Refused("no such address")), terms(clock, kind))
    assert state(store, "acme:report-17:v3") == FactState.DEAD
    assert state(store, "acme:t1:tell:mail") == CommandState.REFUSED

    def mixed_up() -> Steps[None]:
        yield Statement("UPDATE outbox SET state = 'refused' WHERE kind = 'fact'")

    with pytest.raises(Exception, match=r"(?i)check"):
        store.transact(mixed_up())


def test_facts_and_commands_are_relayed_apart(store: Store, clock: Clock) -> None:
    """S2.10: a relay that tells of facts must not carry out commands."""
    put(store, report(), mail())
    relay_round(store, answering(ACCEPT), terms(clock, Fact))
    assert (state(store, "acme:report-17:v3"), state(store, "acme:t1:tell:mail")) == ("forwarded", "planned")


def test_accepted_is_not_carried_out(store: Store, clock: Clock) -> None:
    """S1.9, S2.5: a 202 forwards a command; that it was carried out needs evidence of its own."""
    put(store, mail())
    relay_round(store, answering(Forwarded("202, job 9")), terms(clock, Command))
    known = store.transact(outbox.look_up("acme:t1:tell:mail"))
    assert known is not None
    assert (known.state, known.applied_at) == ("accepted", None)


def test_only_a_command_that_was_never_sent_is_withdrawn(store: Store, clock: Clock) -> None:
    """S2.10: once it was claimed it may have acted; a fact cannot be taken back at all."""
    put(store, mail("a:1:1:mail"), mail("a:1:2:mail"), report())
    assert store.transact(outbox.withdraw("a:1:1:mail", because="asked to", now=1.0))
    assert not store.transact(outbox.withdraw("acme:report-17:v3", because="asked to", now=1.0))
    seen = relay_round(store, lambda batch: {}, terms(clock, Command))
    assert seen.answers == {"failed": 1}
    assert state(store, "a:1:2:mail") == "planned"
    assert not store.transact(outbox.withdraw("a:1:2:mail", because="asked to", now=1.0))


def test_evidence_against_an_ended_command_is_shouted(store: Store, clock: Clock) -> None:
    """S2.5: a refusal that turns out to have acted is neither overwritten nor ignored."""
    put(store, mail())
    relay_round(store, answering(Refused("400")), terms(clock, Command))
    with pytest.raises(Contradiction, match="had ended as refused"):
        store.transact(outbox.applied("acme:t1:tell:mail", evidence="it is in the mailbox", now=2.0))
    assert state(store, "acme:t1:tell:mail") == "refused"


def test_epochs_tell_which_messages_may_still_come(store: Store, clock: Clock) -> None:
    """S1.8: a receiver may forget an epoch only when none of its messages can arrive any more."""
    put(store, report(1), report(2))
    assert store.transact(outbox.advance_epoch()) == 2
    put(store, report(3))
    assert store.transact(outbox.oldest_open_epoch()) == 1
    relay_round(store, answering(Forwarded("broker")), terms(clock, in_order=False))
    assert store.transact(outbox.oldest_open_epoch()) == 1
    for version in (1, 2):
        store.transact(outbox.applied(f"acme:report-17:v{version}", evidence="dashboard", now=2.0))
    assert store.transact(outbox.oldest_open_epoch()) == 2
    store.transact(outbox.applied("acme:report-17:v3", evidence="dashboard", now=2.0))
    assert store.transact(outbox.oldest_open_epoch()) == 2
    assert isinstance(ACCEPT, Applied)
