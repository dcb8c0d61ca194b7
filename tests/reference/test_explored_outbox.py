"""Outbox, relay and inbox judged by the engine: stopped everywhere, while bookkeeping fails and calls get lost.

`attempts` and `reason` of the outbox change with every failure and decide nothing where attempts are not limited; that
they decide nothing is checked by the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pytest_once import Once, Report, Verdict, explore
from pytest_once.reference.answers import Answer, Applied
from pytest_once.reference.backlog import dead_letters
from pytest_once.reference.claims import Delivery
from pytest_once.reference.databases import AsyncSQLite, Database, PostgreSQL, SQLite
from pytest_once.reference.messages import Fact
from pytest_once.reference.relay import AsyncRelay, Relay, Send, into_inbox, into_inbox_async, one_by_one
from tests.reference.conftest import OnALoop, Store
from tests.reference.workers import (
    DASHBOARD,
    FACTS,
    by_attempt,
    own_id,
    plan_and_pay,
    relay_to,
    save,
    show,
    what_is_shown,
)

pytestmark = pytest.mark.slow

NOT_COMMITTED_OR_UNKNOWN = ("store-busy", "commit-unknown")
"""A full and a read-only store leave just what a busy one leaves: nothing."""

LOST = ("lost-response", "late-copy")


def explored(body: Callable[[Once], Any], **how: Any) -> Report:
    given = {"profile": "deep", "ignore": ("outbox.attempts", "outbox.reason"), **how}
    found = explore(body, **given)
    assert not found.problem, found.problem
    return found


def exhausted(found: Report, verdict: Verdict = Verdict.EXACTLY_ONCE) -> None:
    assert (found.verdict, found.coverage) == (verdict, "exhausted"), (found.bound, found.violations)


# Two databases


def test_a_fact_is_shown_once_on_sqlite3(files: Path) -> None:
    """S2.1, S2.3, S2.4: any number of crashes, any two failures of bookkeeping on either side in one life."""

    def body(once: Once) -> None:
        world = once.track(files)
        once.count(world / "dashboard.db", "SELECT event, COUNT(*) FROM shown GROUP BY event")
        with closing(SQLite(world / "agent.db")) as ours, closing(SQLite(world / "dashboard.db")) as theirs:
            ours.transact(save())
            Relay(ours, into_inbox(theirs, DASHBOARD, show), FACTS).drain()

    exhausted(explored(body, faults=NOT_COMMITTED_OR_UNKNOWN))


def test_a_fact_is_shown_once_on_aiosqlite(files: Path) -> None:
    """S2.1, S2.3, S2.4: the same through an event loop, with one failure in a life."""

    async def body(once: Once) -> None:
        world = once.track(files)
        once.count(world / "dashboard.db", "SELECT event, COUNT(*) FROM shown GROUP BY event")
        ours, theirs = AsyncSQLite(world / "agent.db"), AsyncSQLite(world / "dashboard.db")
        try:
            await ours.transact(save())
            await AsyncRelay(ours, into_inbox_async(theirs, DASHBOARD, show), FACTS).drain()
        finally:
            await ours.close()
            await theirs.close()

    exhausted(explored(body, faults=NOT_COMMITTED_OR_UNKNOWN, soft_faults=1))


def test_a_fact_is_shown_once_on_postgresql(templates: list[str]) -> None:
    """S2.1, S2.3, S2.4: two databases of a server; what the dashboard shows at the end is published under its content,
    so that showing nothing, or the same twice, would be another effect."""

    def body(once: Once) -> None:
        site = once.provider("site", contract="client_key")
        with (
            closing(PostgreSQL(once.track(templates[0]))) as ours,
            closing(PostgreSQL(once.track(templates[1]))) as theirs,
        ):
            ours.transact(save())
            Relay(ours, into_inbox(theirs, DASHBOARD, show), FACTS).drain()
            shown = theirs.transact(what_is_shown())
        site.call("publish", {"shown": shown}, key=",".join(shown)).raise_for_status()

    exhausted(explored(body, faults=("commit-unknown",), soft_faults=1))


def test_without_an_inbox_a_fact_is_shown_twice(files: Path) -> None:
    """S2.4: the known-bad twin; its relay does nothing wrong."""

    def forgetful(theirs: Database) -> Send:
        def call(delivery: Delivery) -> Answer:
            assert isinstance(delivery.message, Fact)
            theirs.transact(show(delivery.message))
            return Applied("shown")

        return one_by_one(call)

    def body(once: Once) -> None:
        world = once.track(files)
        once.count(world / "dashboard.db", "SELECT event, COUNT(*) FROM shown GROUP BY event")
        with closing(SQLite(world / "agent.db")) as ours, closing(SQLite(world / "dashboard.db")) as theirs:
            ours.transact(save())
            Relay(ours, forgetful(theirs), FACTS).drain()

    assert explored(body, profile="crash").verdict is Verdict.DUPLICATE


def test_a_limit_of_attempts_escalates_and_never_repeats(files: Path) -> None:
    """S2.7: crashes may use up the attempts, whether the fact was shown or not; a dead letter asks for a person."""

    def body(once: Once) -> None:
        world = once.track(files)
        once.count(world / "dashboard.db", "SELECT event, COUNT(*) FROM shown GROUP BY event")
        with closing(SQLite(world / "agent.db")) as ours, closing(SQLite(world / "dashboard.db")) as theirs:
            ours.transact(save(allowed=2))
            Relay(ours, into_inbox(theirs, DASHBOARD, show), FACTS).drain()
            if ours.transact(dead_letters()):
                once.claim("unknown")

    exhausted(explored(body, profile="crash", ignore=(), blocked=("unknown",)), Verdict.ESCALATED)


# Somebody else's service


@pytest.mark.parametrize("store", ["sqlite3", "aiosqlite", "psycopg"])
def test_a_provider_that_keeps_keys_acts_once(store: str, files: Path, request: pytest.FixtureRequest) -> None:
    """S2.11: the event id is the idempotency key; lost and late answers then cost a repetition, not an effect."""
    url = request.getfixturevalue("templates")[0] if store == "psycopg" else ""

    def body(once: Once) -> None:
        database: Store
        if store == "psycopg":
            database = PostgreSQL(once.track(url))
        elif store == "aiosqlite":
            database = OnALoop(AsyncSQLite(once.track(files) / "agent.db"))
        else:
            database = SQLite(once.track(files) / "agent.db")
        with closing(database):
            relay_to(database, once, "client_key")

    exhausted(explored(body, faults=LOST, soft_faults=1))


@pytest.mark.parametrize(("key", "contract"), [(by_attempt, "client_key"), (own_id, "none")])
def test_without_a_stable_key_or_a_provider_that_keeps_it_the_window_stays_open(
    files: Path, key: Callable[[Delivery], str], contract: str
) -> None:
    """S2.11, S3.2: the known-bad twins; an outbox does not join somebody else's transaction."""

    def body(once: Once) -> None:
        with closing(SQLite(once.track(files) / "agent.db")) as database:
            relay_to(database, once, contract, key=key)

    # Here the number of the attempt does decide something, so it must not be left out of the state.
    assert explored(body, profile="crash", ignore=(), max_states=60).verdict is Verdict.DUPLICATE


# Planning


def test_a_name_made_at_planning_time_survives_and_one_made_at_sending_time_does_not(files: Path) -> None:
    """S4.1, S4.10: the random id is stored with the task; made anew in each life, it is another key each time."""

    def body(once: Once, *, stored: bool) -> None:
        pay = once.provider("pay", contract="client_key")
        with closing(SQLite(once.track(files) / "agent.db")) as database:
            plan_and_pay(database, pay, stored=stored)

    exhausted(explored(lambda once: body(once, stored=True), ignore=(), faults=LOST))
    assert explored(lambda once: body(once, stored=False), ignore=(), profile="crash").verdict is Verdict.DUPLICATE
