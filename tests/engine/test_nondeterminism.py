"""The same schedule, run twice: where it differs, the first difference is told, and where it is."""

from __future__ import annotations

import ctypes
import random
import sqlite3
import ssl
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pytest_once import Once, Report, Verdict, explore
from tests.engine.bodies import careful, proven, told

HERE = f"tests/engine/{Path(__file__).name}"


def unforeseen() -> int:
    """A random number that the engine does not make: other in each life, as a hash salt is in each process."""
    return int.from_bytes(ssl.RAND_bytes(4), "big")


def shuffled(words: str) -> list[str]:
    """In the order in which a set has them, were its salt another one in each life."""
    return sorted(words, key=lambda word: unforeseen())


def pay(once: Once, order: str = "o1") -> None:
    careful(once).call("refund", {"order": order}, key=order)


def store(once: Once, rows: list[tuple[object, ...]]) -> None:
    """Fill t(id, v) in one commit, unless it was done before."""
    with closing(sqlite3.connect(once.path / "t.db")) as db, db:
        db.execute("CREATE TABLE IF NOT EXISTS t(id, v)")
        if db.execute("SELECT count(*) FROM t").fetchone()[0] == 0:
            db.executemany("INSERT INTO t VALUES (?, ?)", rows)


def nondeterministic(report: Report) -> str:
    """The verdict, and what is told of it."""
    assert (report.verdict, report.passed) == (Verdict.NONDETERMINISTIC, False), told(report)
    assert HERE in report.problem
    return report.problem


def crashed(body: Callable[[Once], object]) -> Report:
    return explore(body, soft_faults=0)


def test_rows_in_the_order_of_a_set_are_told_with_their_column() -> None:
    """What was stored first is stored for good: another process, another order."""

    def body(once: Once) -> None:
        store(once, [(word, 1) for word in shuffled("abcdefgh")])
        pay(once)

    problem = nondeterministic(crashed(body))
    assert "the fault-free run was repeated and left another world before pay refund at" in problem
    assert "once.path/t.db/t.id: '" in problem and "' -> '" in problem


def test_calls_in_the_order_of_a_set_are_told_with_their_payload() -> None:
    """The boundaries look the same; what is sent in each does not."""

    def body(once: Once) -> None:
        for word in shuffled("abcdefgh"):
            pay(once, word)

    assert "ledger/effects.payload: '" in nondeterministic(crashed(body))


def test_a_random_choice_between_known_values_is_told() -> None:
    """It cannot be renamed: which rows are equal is random too."""

    def body(once: Once) -> None:
        store(once, [(number, "xy"[unforeseen() % 2]) for number in range(20)])
        pay(once)

    assert "once.path/t.db/t.v: '" in nondeterministic(crashed(body))


def test_a_random_number_of_rows_is_told_with_both_numbers() -> None:
    """The way is the same, and the amount is not."""

    def body(once: Once) -> None:
        store(once, [(1, 1)] * (1 + unforeseen() % 1000))
        pay(once)

    problem = nondeterministic(crashed(body))
    assert "once.path/t.db/t: " in problem
    assert " rows" in problem


def test_threads_that_race_are_told_with_both_ways() -> None:
    """Which of them comes first is a matter of luck."""

    def body(once: Once) -> None:
        threads = [threading.Thread(target=once.boundary, args=(f"thread {word}",)) for word in shuffled("abcdefgh")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pay(once)

    problem = nondeterministic(crashed(body))
    assert "the fault-free run was repeated and took another way: number " in problem
    assert problem.count(HERE) == 2
    assert "Thread timing" in problem


def test_a_branch_on_the_real_time_of_day_is_told() -> None:
    """A clock below Python's is not virtual."""

    def body(once: Once) -> None:
        now = (ctypes.c_long * 2)()
        ctypes.CDLL(None).clock_gettime(0, now)
        for _ in range(now[1] // 1000 % 100):
            once.boundary("tick")
        pay(once)

    assert "tick" in nondeterministic(crashed(body))


def test_a_choice_that_only_recovery_makes_is_told_where_it_is_seen() -> None:
    """The fault-free run cannot show it; the lives from a later state are compared with one another."""

    def body(once: Once) -> None:
        begun = once.path / "begun"
        if begun.exists():
            store(once, [(word, 1) for word in shuffled("abcdefgh")])
        begun.touch()
        pay(once)

    problem = nondeterministic(explore(body, faults="refused"))
    assert "the same schedule was run twice from the same state and left different worlds before pay refund" in problem
    assert "once.path/t.db/t.id: '" in problem


def test_a_way_that_only_recovery_varies_is_told_with_both_ways() -> None:
    """The same, where the boundaries differ."""

    def body(once: Once) -> None:
        begun = once.path / "begun"
        if begun.exists():
            for word in shuffled("abcdefgh"):
                once.boundary(f"recover {word}")
        begun.touch()
        pay(once)

    problem = nondeterministic(explore(body, faults="refused"))
    assert "the same schedule was run twice from the same state and took different ways: boundary " in problem
    assert problem.count(f"at {HERE}") == 2


@pytest.mark.parametrize("draw", [random.random, lambda: f"r{unforeseen()}"], ids=["the engine's", "unforeseen"])
def test_random_values_that_are_only_stored_are_no_difference(draw: Callable[[], object]) -> None:
    """The near miss: they are compared by equality, and the report names the column."""

    def body(once: Once) -> None:
        store(once, [(number, draw()) for number in range(3)])
        pay(once)

    report = crashed(body)
    assert proven(report), told(report)
    assert "random or dated, compared by equality only: once.path/t.db/t.v" in told(report)
