"""The numbers on three stores, and the text that Prometheus reads."""

from __future__ import annotations

import math
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from pytest_once.reference import metrics, people, reconciler, transitions
from pytest_once.reference.databases import SQLite
from pytest_once.reference.metrics import BUCKETS_S, Metrics, measure
from pytest_once.reference.promise import Promise
from pytest_once.reference.reconciler import Found, Lookup
from pytest_once.reference.steps import Steps
from pytest_once.reference.transitions import Request
from tests.reference.conftest import Clock, Store
from tests.reference.gates import LEASE_S, Door, Provider


def requests(number: int) -> list[Request]:
    return [Request(f"i{index}", "refund", {"order": index}) for index in range(number)]


def test_an_empty_gate_has_nothing_to_tell(store: Store, clock: Clock) -> None:
    """S4.7: no share and no mean of nothing; 0 would look like an answer."""
    found = store.transact(measure(clock()))
    assert (found.unknown, found.oldest_s, found.in_flight, found.resolved) == (0, 0.0, 0, {})
    assert found.mean_s is None and found.person_share is None


def test_the_numbers_tell_what_is_undecided_and_who_decides(store: Store, clock: Clock) -> None:
    """S4.7: UNKNOWN now, the oldest of them, mean time to resolve, share that needs a person."""
    door, provider = Door(store, clock), Provider()
    one, two, three, four, five = requests(5)
    for request in (one, two, three, four):
        door.refused(provider.then(TimeoutError()), request)
    clock.now += 50
    door.reconcile({"refund": Lookup(exact=lambda sought: [Found(1)] if sought.intent_id == one.id else [])})
    clock.now += 350
    store.transact(people.resolve(two.id, "executed", "ada", "seen", clock()))
    store.transact(transitions.admit(five, Promise(), LEASE_S, 20, clock()))

    found = store.transact(measure(clock()))
    assert (found.unknown, found.oldest_s, found.in_flight) == (2, 400.0, 1)
    assert found.resolved == {"look-up": 1, "person": 1}
    assert found.mean_s == (50 + 400) / 2
    assert found.waiting_for_person == 2
    assert found.person_share == 3 / 4
    assert found.within == (1, 1, 2, 2, 2, 2)

    clock.now += LEASE_S
    assert store.transact(measure(clock())).unknown == 3
    assert store.transact(measure(clock(), since=clock() - LEASE_S - 1)).resolved == {"person": 1}


def test_what_failed_or_succeeded_at_once_is_not_counted(store: Store, clock: Clock) -> None:
    """S4.7: the share is of the undecided ones; the many ordinary calls would hide it."""
    door, provider = Door(store, clock), Provider()
    one, two = requests(2)
    door.call(provider.act, one)
    door.refused(provider.then(ConnectionRefusedError(), acts=False), two)
    found = store.transact(measure(clock()))
    assert (found.unknown, found.resolutions) == (0, 0)


def _plans(path: Path, steps: Steps[Any]) -> list[str]:
    """How SQLite would carry out each statement, the rows being those of the real run."""
    plans: list[str] = []
    with closing(sqlite3.connect(path)) as connection:
        try:
            statement = next(steps)
            while True:
                plans += [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement.sql}", statement.values)]
                statement = steps.send(connection.execute(statement.sql, statement.values).fetchall())
        except StopIteration:
            connection.rollback()
    return plans


def test_no_question_reads_all_intents(tmp_path: Path, clock: Clock) -> None:
    """What is asked each minute, or by each call, must not become slower with the number of settled intents."""
    store = SQLite(tmp_path / "gate.db")
    store.migrate()
    door = Door(store, clock)
    (one,) = requests(1)
    door.refused(Provider().then(TimeoutError()), one)
    door.reconcile({})
    for steps in (
        measure(clock()),
        transitions.expire(clock(), 10),
        transitions.admit(one, Promise(), 1.0, 20, clock()),
        people.queue(),
        people.resolve(one.id, "executed", "ada", "seen", clock()),
        reconciler.undecided((-math.inf, ""), 10),
    ):
        plans = _plans(tmp_path / "gate.db", steps)
        assert plans and not [plan for plan in plans if plan.startswith("SCAN") and "USING" not in plan], plans
    store.close()


SAMPLE = re.compile(r'[a-z_]+(\{[a-z]+="[^"]*"\})? -?[0-9.e+]+')


def test_prometheus_can_read_it() -> None:
    """S4.7: every sample under a HELP and TYPE of its name, buckets that only grow and end with +Inf."""
    found = Metrics(2, 400.5, 1, {"look-up": 1, "person": 2}, 450.0, (1, 1, 2, 2, 3, 3), 2, 1)
    lines = metrics.prometheus(found).splitlines()
    kinds: dict[str, str] = {}
    for line in lines:
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            assert SAMPLE.fullmatch(line), line
            name = re.split(r"[{ ]", line)[0]
            assert name in kinds or re.sub("_(bucket|sum|count)$", "", name) in kinds, line
    assert kinds["once_gate_resolution_seconds"] == "histogram"
    assert 'once_gate_resolved_total{by="person"} 2' in lines
    assert "once_gate_unknown_oldest_seconds 400.5" in lines
    assert "once_gate_contradictions 1" in lines
    assert "once_gate_person_share_ratio 0.8" in lines
    buckets = [int(line.split()[-1]) for line in lines if "_bucket" in line]
    assert len(buckets) == len(BUCKETS_S) + 1 and buckets == sorted(buckets)
    assert 'once_gate_resolution_seconds_bucket{le="+Inf"} 3' in lines
    assert "once_gate_resolution_seconds_count 3" in lines
