"""The ten questions, and for each the checks that answer it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_once.review.adapter import Answer, Evidence, Sent
from pytest_once.review.scene import HOUR_S, Check, Scene, answered

BOOKKEEPING = ("store-busy", "commit-unknown")
DAY_S = 24 * HOUR_S


@dataclass(frozen=True, slots=True)
class Question:
    """remedy: what to do if the answer is no."""

    text: str
    checks: tuple[Check, ...]
    remedy: str


# 1


def _same_transaction(scene: Scene) -> None:
    _torn(scene)
    scene.put_in_steps(1)
    _torn(scene)


def _torn(scene: Scene) -> None:
    changed, stored = scene.outbox.changed(1), scene.outbox.stored(1)
    if changed != stored:
        scene.note("a change without its message" if changed else "a message without its change")


# 2


def _facts_and_commands(scene: Scene) -> None:
    outbox = scene.outbox
    scene.put(1)
    outbox.ask(2)
    for number, kind in ((1, "fact"), (2, "command")):
        if outbox.kind(number) != kind:
            scene.note(f"a {kind} is stored as {outbox.kind(number)}")
    scene.rounds(lambda messages: answered(messages, Answer.REFUSED))
    again: list[int] = []

    def collect(messages: Sequence[Sent]) -> Mapping[str, Answer]:
        again.extend(message.number for message in messages)
        return answered(messages, Answer.REFUSED)

    scene.rounds(collect)
    if 2 in again:
        scene.note("a refused command is sent again")
    if 1 not in again and 1 not in outbox.dead_letters():
        scene.note("a refused fact is gone, although it stays true")


# 3


def _identity(scene: Scene) -> None:
    def fail(messages: Sequence[Sent]) -> Mapping[str, Answer]:
        for message in messages:
            if scene.as_first_sent(message) != message:
                scene.note("a message is sent again under another id")
        ids = {message.event_id for message in messages}
        if len(ids) < len(messages):
            scene.note("two messages share an id")
        return answered(messages, Answer.FAILED)

    scene.put(1)
    scene.put(2)
    scene.rounds(fail, times=2)


# 4


def _uncommitted(scene: Scene) -> None:
    sent: list[Sent] = []

    def collect(messages: Sequence[Sent]) -> Mapping[str, Answer]:
        sent.extend(messages)
        return answered(messages, Answer.FAILED)

    def look() -> None:
        with scene.another() as other:
            try:
                other.relay(collect, "another")
            except Exception:
                return  # the database did not let it in, which is an answer too

    scene.put_in_steps(1, look)
    if sent:
        scene.note("a message is sent before its transaction has committed")


def _pipeline(scene: Scene) -> None:
    scene.put(1)
    scene.drain(scene.deliver)
    scene.check_applied(1)


# 5


def _batch(scene: Scene) -> None:
    def only_the_first(messages: Sequence[Sent]) -> Mapping[str, Answer]:
        return scene.deliver(messages[:1])

    scene.put(1)
    scene.put(2)
    scene.drain(only_the_first)
    scene.check_applied(1, 2)


def _claims(scene: Scene) -> None:
    with scene.another() as other:

        def slow(messages: Sequence[Sent]) -> Mapping[str, Answer]:
            def collect(theirs: Sequence[Sent]) -> Mapping[str, Answer]:
                if {message.number for message in theirs} & {message.number for message in messages}:
                    scene.note("two relays send a message at the same time")
                return answered(theirs, Answer.FAILED)

            other.relay(collect, "another")
            return scene.deliver(messages)

        scene.put(1)
        scene.drain(slow)


def _late_report(scene: Scene) -> None:
    with scene.another() as other:
        reported: list[Sent] = []

        def reporting(messages: Sequence[Sent]) -> Mapping[str, Answer]:
            reported.extend(messages)
            return scene.deliver(messages)

        def stalls(messages: Sequence[Sent]) -> Mapping[str, Answer]:
            time.sleep(scene.outbox.lease_s + 1)
            other.relay(reporting, "another")
            if not scene.outbox.applied(1):
                scene.note("the claim of a relay that does not answer is never free")
            return answered(messages, Answer.FAILED)

        scene.put(1)
        scene.rounds(stalls, times=1)
        if reported and scene.outbox.pending():
            scene.note("a late report takes back what another relay has done")


# 6


def _repeated(scene: Scene) -> None:
    def deliver_unheard(messages: Sequence[Sent]) -> Mapping[str, Answer]:
        scene.deliver([scene.as_first_sent(message) for message in messages])
        scene.check_applied(*(message.number for message in messages))
        return answered(messages, Answer.FAILED)

    scene.put(1)
    scene.rounds(deliver_unheard, times=2)


# 7


def _collected(scene: Scene, numbers: Sequence[int]) -> dict[int, Sent]:
    found: dict[int, Sent] = {}

    def take(messages: Sequence[Sent]) -> Mapping[str, Answer]:
        found.update({message.number: message for message in messages})
        return answered(messages, Answer.FORWARDED)

    for number in numbers:
        scene.put(number)
    scene.rounds(take)
    return found


def _order(scene: Scene) -> None:
    outbox = scene.outbox
    found = _collected(scene, (1, 2))
    if len(found) < 2:
        return  # an earlier life has taken them, and died with them
    outbox.consume(found[2])
    if outbox.order == "delta" and outbox.applied(2):
        scene.note("a change is applied before the one it builds on")
    outbox.consume(found[1])
    if outbox.order == "snapshot":
        if outbox.shown() != 2:
            scene.note("an older version replaces a newer one")
        return
    outbox.consume(found[2])
    scene.check_applied(1, 2)


def _dead_letters(scene: Scene) -> None:
    outbox = scene.outbox
    scene.put(1)
    if not outbox.applied(1):
        scene.rounds(lambda messages: answered(messages, Answer.REFUSED))
        if not outbox.pending() and 1 not in outbox.dead_letters():
            scene.note("what was refused is gone")
        for number in outbox.dead_letters():
            outbox.put_back(number)
    scene.drain(scene.deliver)
    if not outbox.dead_letters():
        scene.check_applied(1)


# 8


def _retention(scene: Scene) -> None:
    outbox = scene.outbox
    scene.put(1)
    waits = outbox.pending()
    time.sleep(30 * DAY_S)
    if waits and (outbox.oldest_waiting_s() or 0.0) < 29 * DAY_S:
        scene.note("the age of what waits is not told")
    outbox.purge(DAY_S)
    if waits and not outbox.stored(1):
        scene.note("a message is deleted before it was sent")
    scene.drain(scene.deliver)
    scene.check_applied(1)


# 9


def _evidence(scene: Scene) -> None:
    outbox = scene.outbox
    scene.put(1)
    _expect(scene, "stored", Evidence(True, False, False), if_waiting=True)
    found = _collected(scene, (1,))
    if not found:
        return
    _expect(scene, "forwarded", Evidence(True, True, False))
    outbox.consume(found[1])
    _expect(scene, "applied", Evidence(True, True, True))


def _expect(scene: Scene, when: str, wanted: Evidence, if_waiting: bool = False) -> None:
    if if_waiting and not scene.outbox.pending():
        return
    told = Evidence(*scene.outbox.evidence(1))
    for name, is_told, is_so in zip(Evidence._fields, told, wanted, strict=True):
        if is_told != is_so:
            scene.note(f"a message that is {when} is told as {'' if is_told else 'not '}{name}")


# 10

COMMITTED_NOT_SENT, SENT_NOT_RECORDED = "committed, not sent", "sent, not recorded"


def _drill(scene: Scene) -> None:
    def deliver(messages: Sequence[Sent]) -> Mapping[str, Answer]:
        answers = scene.deliver(messages)
        scene.once.boundary(SENT_NOT_RECORDED)
        return answers

    scene.put_in_steps(1)
    scene.once.boundary(COMMITTED_NOT_SENT)
    scene.drain(deliver)
    scene.check_applied(1)


QUESTIONS = (
    Question(
        "Do a change and its message commit in one transaction?",
        (Check("put, stopped everywhere", _same_transaction, faults=BOOKKEEPING),),
        "Write the message into a table of the same database, on the connection and in the transaction of the change.",
    ),
    Question(
        "Is a fact told apart from a command?",
        (Check("both refused", _facts_and_commands, puts=(1,), needs=("ask", "kind", "dead_letters")),),
        "Give them types and states of their own: a refused command has ended, a refused fact is still true and waits.",
    ),
    Question(
        "Does a message keep its identity on every resend?",
        (Check("sent again and again", _identity, puts=(1, 2)),),
        "Make the id when the message is stored, store it with it, and send that.",
    ),
    Question(
        "Does the relay read committed messages only, and survive failing bookkeeping?",
        (
            Check("relayed while its transaction is open", _uncommitted),
            Check("put, relayed, applied, while commits fail", _pipeline, puts=(1,), faults=BOOKKEEPING),
        ),
        "Let the relay read through a transaction of its own; note what was sent after the answer, and send again what"
        " is not noted.",
    ),
    Question(
        "Are batches confirmed per item, claims exclusive, leases ended and late reports refused?",
        (
            Check("half of each batch answered", _batch, puts=(1, 2)),
            Check("two relays at once", _claims, puts=(1,)),
            Check("a relay that stalls beyond its lease", _late_report, puts=(1,), needs=("lease_s",)),
        ),
        "Confirm each item by its own answer. Claim by compare-and-set with a lease and a token, and take reports under"
        " the newest token only.",
    ),
    Question(
        "Does the consumer remember a message in the transaction of its own change?",
        (Check("delivered twice, stopped everywhere", _repeated, puts=(1,), faults=("commit-unknown",)),),
        "Insert the event id under a unique constraint, in the transaction that changes the consumer's own tables.",
    ),
    Question(
        "Are stale and missing versions noticed, and dead letters kept?",
        (
            Check("the newer version first", _order, puts=(1, 2), needs=("order",)),
            Check("refused, then put back", _dead_letters, puts=(1,), needs=("dead_letters", "put_back")),
        ),
        "Store each object's version at the consumer: refuse older snapshots, hold back changes after a gap. Keep what"
        " cannot be delivered until somebody has reconciled it.",
    ),
    Question(
        "Is what is undelivered kept by every clean-up, and its age told?",
        (Check("thirty days without a relay", _retention, puts=(1,), needs=("purge", "oldest_waiting_s")),),
        "Delete by state and age, never by age alone; watch the age of the oldest message that waits.",
    ),
    Question(
        "Are committed, forwarded and applied three facts with three evidences?",
        (Check("stored, forwarded, applied, one after the other", _evidence, puts=(1,), needs=("evidence",)),),
        "Replace the one 'done' by three columns, each written on evidence of its own.",
    ),
    Question(
        "Do both drills end with one effect: committed, not sent; sent, not recorded?",
        (Check("put, relayed, applied", _drill, drills=(COMMITTED_NOT_SENT, SENT_NOT_RECORDED)),),
        "Resume from what is stored: the relay sends what is not noted as sent, under its id, and the consumer knows"
        " it.",
    ),
)
"""In the order of the review."""
