"""Mistakes at the sender's side: outbox and relay."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from once_fakes import Contract
from pytest_once import Once, Verdict
from pytest_once.reference import backlog, claims, outbox
from pytest_once.reference.answers import Answer, Applied, Failed, Forwarded
from pytest_once.reference.backlog import dead_letters
from pytest_once.reference.claims import Delivery
from pytest_once.reference.databases import Database, SQLite
from pytest_once.reference.identity import uuid7
from pytest_once.reference.relay import Relay, Round, Send, one_by_one
from pytest_once.reference.steps import Statement, Steps
from tests.reference.mutants.scenes import (
    FACTS,
    OUTBOX,
    Later,
    Mutant,
    count_shown,
    delivering,
    into_dashboard,
    replaced,
    report,
    save,
)

ESCALATED, DUPLICATE, OMISSION = Verdict.ESCALATED, Verdict.DUPLICATE, Verdict.OMISSION
shown_once = delivering()
"""Saved with its news, relayed, shown: the reference as it is."""


# -- the sender's transactions -------------------------------------------------------------------------------


def _saved() -> Steps[bool]:
    return bool((yield Statement("SELECT 1 FROM work")))


def _commit_then_enqueue(once: Once, files: Path) -> None:
    directory = count_shown(once, files)
    with closing(SQLite(directory / "agent.db")) as ours, closing(SQLite(directory / "dashboard.db")) as theirs:
        if not ours.transact(_saved()):
            ours.transact(save())
            ours.transact(outbox.put(report(), now=time.time(), allowed=None))
        Relay(ours, into_dashboard(theirs), FACTS).drain()


def _relayed(once: Once, files: Path, committed: bool) -> None:
    """The event's id is made and stored with the change. The relay reads it before the commit, or after."""
    directory = count_shown(once, files)
    with closing(SQLite(directory / "agent.db")) as ours, closing(SQLite(directory / "dashboard.db")) as theirs:
        send = into_dashboard(theirs)

        def write() -> Steps[None]:
            if (yield from _saved()):
                return
            yield from save(report(event_id=uuid7()))
            if not committed:
                claimed = yield from FACTS.claim()
                yield from FACTS.note(claimed, send(claimed))

        ours.transact(write())
        Relay(ours, send, FACTS).drain()


# -- the relay -----------------------------------------------------------------------------------------------


class _MarksFirst(Relay):
    def round(self) -> Round:
        claimed = self._database.transact(self._terms.claim())
        forwarded = {delivery.event_id: Forwarded("about to be sent") for delivery in claimed}
        noted = self._database.transact(self._terms.note(claimed, forwarded))
        self._send(claimed)
        return noted


def _new_ids(theirs: Database) -> Send:
    send = into_dashboard(theirs)

    def renamed(claimed: Sequence[Delivery]) -> Mapping[str, Answer]:
        fresh = [replace(one, message=replace(one.message, event_id=uuid7())) for one in claimed]
        answers = send(fresh)
        return {one.event_id: answers[new.event_id] for one, new in zip(claimed, fresh, strict=True)}

    return renamed


def _batches(once: Once, files: Path, whole: bool) -> None:
    """The receiver may take the first of two and turn the second away. The batch as such "succeeded"."""
    directory = count_shown(once, files)
    with closing(SQLite(directory / "agent.db")) as ours, closing(SQLite(directory / "dashboard.db")) as theirs:
        send = into_dashboard(theirs)

        def partly(claimed: Sequence[Delivery]) -> Mapping[str, Answer]:
            taken = list(claimed)
            if once.choose("the receiver", ("takes all", "turns the last one away")) != "takes all":
                taken = taken[:-1]
            answers = send(taken)
            return dict.fromkeys([one.event_id for one in claimed], Applied("status 200")) if whole else answers

        ours.transact(save(report(1), report(1, object_id="report-18", event_id="acme:report-18:v1")))
        if not Relay(ours, partly, FACTS).drain(rounds=1):
            raise Later


def _drops(delivery: Delivery, reason: str, now: float, due_at: float) -> Steps[bool]:
    yield Statement("DROP TRIGGER IF EXISTS outbox_keeps")
    yield Statement("DELETE FROM outbox WHERE event_id = ?", (delivery.event_id,))
    return True


def _limited(*mistakes: tuple[object, str, object]) -> Callable[[Once, Path], None]:
    """The receiver may be away; after one attempt the message is a dead letter, and somebody must look."""

    def body(once: Once, files: Path) -> None:
        directory = count_shown(once, files)
        with closing(SQLite(directory / "agent.db")) as ours, closing(SQLite(directory / "dashboard.db")) as theirs:
            send = into_dashboard(theirs)

            def perhaps(claimed: Sequence[Delivery]) -> Mapping[str, Answer]:
                if once.choose("the receiver", ("is there", "is away")) == "is there":
                    return send(claimed)
                return {one.event_id: Failed("nobody there") for one in claimed}

            with replaced(*mistakes):
                if not ours.transact(_saved()):
                    ours.transact(save(report(), allowed=1))
                Relay(ours, perhaps, FACTS).drain()
                if ours.transact(dead_letters()):
                    once.claim("unknown")

    return body


# -- cleaning up ---------------------------------------------------------------------------------------------


def _by_age_alone(*, before: float, limit: int = 1000, unconfirmed: bool = False) -> Steps[int]:
    yield Statement("DROP TRIGGER IF EXISTS outbox_keeps")
    rows = yield Statement("DELETE FROM outbox WHERE committed_at < ? RETURNING event_id", (before,))
    return len(rows)


def _cleaned(*mistakes: tuple[object, str, object]) -> Callable[[Once, Path], None]:
    """Each start begins with cleaning up what is older than a week."""

    def body(once: Once, files: Path) -> None:
        directory = count_shown(once, files)
        with closing(SQLite(directory / "agent.db")) as ours, closing(SQLite(directory / "dashboard.db")) as theirs:
            with replaced(*mistakes):
                ours.transact(backlog.purge(before=time.time() - 7 * 86400))
            if not ours.transact(_saved()):
                ours.transact(save(report()))
            Relay(ours, into_dashboard(theirs), FACTS).drain()

    return body


# -- claims --------------------------------------------------------------------------------------------------


def _held_by_nobody(delivery: Delivery, now: float) -> tuple[object, ...]:
    return (delivery.event_id,)


def _slow_relay(*mistakes: tuple[object, str, object]) -> Callable[[Once, Path], None]:
    """A relay may stall before it sends, beyond its claim; another one sends. Then the first reports its failure."""

    def body(once: Once, files: Path) -> None:
        site = once.provider("site", contract="client_key")
        with closing(SQLite(once.track(files) / "agent.db")) as ours, replaced(*mistakes):

            def publish(delivery: Delivery) -> Answer:
                site.call("publish", {"event": "report-17"}, key=delivery.event_id).raise_for_status()
                return Applied("status 200")

            def send(claimed: Sequence[Delivery]) -> Mapping[str, Answer]:
                if once.choose("the relay", ("sends at once", "stalls")) == "sends at once":
                    return one_by_one(publish)(claimed)
                time.sleep(FACTS.lease_s + 1)
                Relay(ours, one_by_one(publish), replace(FACTS, name="another")).round()
                return {one.event_id: Failed("nothing was sent") for one in claimed}

            ours.transact(save(report()))
            Relay(ours, send, FACTS).drain(rounds=2)

    return body


_UNFENCED = ((claims, "_HELD", " WHERE event_id = ? RETURNING event_id"), (claims, "_held_by", _held_by_nobody))


# -- somebody else's service ---------------------------------------------------------------------------------


def _receiving(atomicity: str) -> Callable[[Once, Path], None]:
    """An outbox in front of a receiver that knows keys; how it stores its receipts is its own affair."""

    def body(once: Once, files: Path) -> None:
        contract = Contract(name=atomicity, atomicity=atomicity)  # type: ignore[arg-type]
        site = once.provider("site", contract=contract)
        with closing(SQLite(once.track(files) / "agent.db")) as ours:

            def publish(delivery: Delivery) -> Answer:
                site.call("publish", {"event": "report-17"}, key=delivery.event_id).raise_for_status()
                return Applied("status 200")

            ours.transact(save(report()))
            Relay(ours, one_by_one(publish), FACTS).drain()

    return body


MUTANTS = (
    Mutant("commit-then-enqueue", "The change commits, and its message in a transaction after it.", OMISSION,
           _commit_then_enqueue, shown_once, OUTBOX),
    Mutant("relay-reads-uncommitted", "The message is sent while its transaction is still open.", DUPLICATE,
           lambda once, files: _relayed(once, files, False), lambda once, files: _relayed(once, files, True), OUTBOX),
    Mutant("relay-marks-first", "The relay marks a message forwarded, and then sends it.", OMISSION,
           delivering(relay=_MarksFirst), shown_once, OUTBOX),
    Mutant("event-id-per-send", "Each send makes a new event id.", DUPLICATE,
           delivering(consumer=_new_ids), shown_once, OUTBOX),
    Mutant("batch-acknowledged-as-a-whole", "A batch that succeeded is taken for each of its items.", OMISSION,
           lambda once, files: _batches(once, files, True), lambda once, files: _batches(once, files, False),
           {**OUTBOX, "redeliver": 0}),
    Mutant("dead-letter-dropped", "What cannot be delivered is deleted.", OMISSION,
           _limited((claims, "_again", _drops)), _limited(), {**OUTBOX, "blocked": ("unknown",), "ignore": ()},
           ESCALATED),
    Mutant("ttl-deletes-undelivered", "Rows are deleted by their age, delivered or not.", OMISSION,
           _cleaned((backlog, "purge", _by_age_alone)), _cleaned(), {**OUTBOX, "restart_after": ("0s", "8d")}),
    Mutant("late-acknowledgement-accepted", "The report of a relay whose claim has ended counts.",
           Verdict.TOO_MANY_ATTEMPTS, _slow_relay(*_UNFENCED), _slow_relay(), {**OUTBOX, "attempts": 1}),
    Mutant("receipt-after-the-effect", "The receiver commits its effect, and its receipt after it.", DUPLICATE,
           _receiving("effect_first"), _receiving("atomic"), OUTBOX),
    Mutant("receipt-before-the-effect", "The receiver commits its receipt, and its effect after it.", OMISSION,
           _receiving("record_first"), _receiving("atomic"), OUTBOX),
)  # fmt: skip
