"""A consumer takes each message once, in its own transaction, in the order its kind needs."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_once.reference.answers import Applied, Gap, Refused
from pytest_once.reference.identity import EffectConflict
from pytest_once.reference.inbox import Inbox
from pytest_once.reference.messages import Fact
from pytest_once.reference.ordering import Order, position, start_from
from pytest_once.reference.steps import Statement, Steps
from tests.reference.conftest import Opener, Store
from tests.reference.messages import report, rows

DASHBOARD = Inbox("dashboard")
SNAPSHOTS = Inbox("dashboard", Order.SNAPSHOT)
DELTAS = Inbox("dashboard", Order.DELTA)


def show(fact: Fact) -> Steps[dict[str, int]]:
    """The consumer's change: another line of what was shown (in a table that is there anyway)."""
    ((count,),) = yield Statement("SELECT count(*) FROM tasks")
    yield Statement(
        "INSERT INTO tasks VALUES (?, ?, ?, 1)", (fact.tenant, f"{count}: {fact.object_id} v{fact.version}", "")
    )
    return {"line": count}


def shown(store: Store) -> list[str]:
    return [row[0] for row in store.transact(rows("tasks", "task"))]


def take(store: Store, fact: Fact, inbox: Inbox = DASHBOARD, epoch: int = 1) -> Any:
    return store.transact(inbox.receive(fact, epoch, show, now=1.0))


def test_a_message_that_comes_twice_is_applied_once(open_store: Opener) -> None:
    """S2.4: also to another process; the second time the first result and evidence are there."""
    assert take(open_store("own"), report()) == Applied("inbox of dashboard: applied")
    assert take(open_store("own"), report()) == Applied("inbox of dashboard: applied")
    assert shown(open_store("own")) == ["0: report-17 v3"]
    assert open_store("own").transact(DASHBOARD.result(report().event_id)) == '{"line":0}'


def test_memory_and_change_commit_together_or_not_at_all(store: Store) -> None:
    """S2.4: marked and not done would lose it, done and not marked would repeat it."""

    def fails(fact: Fact) -> Steps[None]:
        yield from show(fact)
        raise RuntimeError("the process ends here")

    with pytest.raises(RuntimeError):
        store.transact(DASHBOARD.receive(report(), 1, fails, now=1.0))
    assert shown(store) == []
    assert store.transact(DASHBOARD.look_up(report().event_id)) is None
    take(store, report())
    assert shown(store) == ["0: report-17 v3"]


@pytest.mark.parametrize(
    "other",
    [
        report(title="Q4"),
        report(event_id="acme:report-17:v3", tenant="other"),
        report(4, event_id="acme:report-17:v3"),
    ],
    ids=["payload", "tenant", "version"],
)
def test_a_known_id_with_another_content_is_refused(store: Store, other: Fact) -> None:
    """S2.4, S3.3, S1.4: replaying the old answer would swallow a different message."""
    take(store, report())
    with pytest.raises(EffectConflict, match="another content"):
        take(store, other)
    assert shown(store) == ["0: report-17 v3"]


def test_two_consumers_of_one_database_each_take_it(store: Store) -> None:
    """S2.4: what one has done says nothing about the other."""
    take(store, report(), Inbox("dashboard"))
    take(store, report(), Inbox("mailing"))
    assert len(shown(store)) == 2


def test_a_snapshot_consumer_refuses_what_is_older(store: Store) -> None:
    """S2.6: version 3 after 4 changes nothing and needs no resend; skipping a version is no harm."""
    assert take(store, report(2), SNAPSHOTS) == Applied("inbox of dashboard: applied")
    assert take(store, report(4), SNAPSHOTS) == Applied("inbox of dashboard: applied")
    assert take(store, report(3), SNAPSHOTS) == Applied("inbox of dashboard: stale")
    assert take(store, report(3), SNAPSHOTS) == Applied("inbox of dashboard: stale")
    assert shown(store) == ["0: report-17 v2", "1: report-17 v4"]


def test_a_delta_consumer_asks_for_what_is_missing(store: Store) -> None:
    """S2.6: nothing of version 4 is applied or remembered before 2 and 3 have come."""
    take(store, report(1), DELTAS)
    assert take(store, report(4), DELTAS) == Gap(2, 3)
    assert store.transact(DELTAS.look_up(report(4).event_id)) is None
    for version in (2, 3, 4):
        assert take(store, report(version), DELTAS) == Applied("inbox of dashboard: applied")
    assert take(store, report(2), DELTAS) == Applied("inbox of dashboard: applied")
    assert shown(store) == [f"{n - 1}: report-17 v{n}" for n in (1, 2, 3, 4)]


def test_a_delta_consumer_that_knows_nothing_needs_the_beginning(store: Store) -> None:
    """S2.6: the first message to arrive is not the first there was."""
    assert take(store, report(3), DELTAS) == Gap(1, 2)
    assert store.transact(position("dashboard", "acme", "report-17")) == 0


def test_a_second_message_for_a_version_is_refused(store: Store) -> None:
    """S2.6: two writers have numbered two changes alike; applying both or dropping one silently would be wrong."""
    take(store, report(1), DELTAS)
    answer = take(store, report(1, event_id="another"), DELTAS)
    assert isinstance(answer, Refused)
    assert "from another message" in answer.reason
    assert store.transact(DELTAS.look_up("another")) is None


def test_a_snapshot_ends_a_gap_that_cannot_be_filled(store: Store) -> None:
    """S2.6, S2.7: the missing messages are deleted at the sender; the whole object replaces them."""
    assert take(store, report(8), DELTAS) == Gap(1, 7)
    assert store.transact(start_from("dashboard", "acme", "report-17", 7))
    assert not store.transact(start_from("dashboard", "acme", "report-17", 5))
    assert take(store, report(8), DELTAS) == Applied("inbox of dashboard: applied")


def test_order_is_per_object_and_tenant(store: Store) -> None:
    """S2.6, S1.4: the domain of order is the business object of a tenant."""
    for fact in (report(1), report(1, about="report-18"), report(1, tenant="other")):
        assert take(store, fact, DELTAS) == Applied("inbox of dashboard: applied")


def test_what_is_forgotten_is_refused(store: Store) -> None:
    """S1.8: a late copy from a closed epoch is not taken for a new message; open epochs are not touched."""
    take(store, report(1), epoch=1)
    take(store, report(2), epoch=2)
    assert store.transact(DASHBOARD.close_epochs_before(2)) == 1
    answer = take(store, report(1), epoch=1)
    assert isinstance(answer, Refused)
    assert "closed epoch 1" in answer.reason
    assert take(store, report(2), epoch=2) == Applied("inbox of dashboard: applied")
    assert len(shown(store)) == 2
    assert store.transact(DASHBOARD.close_epochs_before(1)) == 0
    assert isinstance(take(store, report(9), epoch=1), Refused)
