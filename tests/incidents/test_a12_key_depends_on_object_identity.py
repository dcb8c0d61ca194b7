"""A12: the cache key is a hash of pickled inputs; equal inputs that were read back from storage pickle differently.

The first attempt holds one text object in two places, the retry two equal ones. A key that is too narrow instead makes
two runs collide. Reports: pydantic/pydantic-ai#6907, pydantic/pydantic-ai#6903.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Callable
from typing import Any

from pytest_once import Once, Verdict, explore
from tests.incidents.models import convicted, convicted_undisturbed, database, exactly_once

TABLES = "inputs(run TEXT PRIMARY KEY, json); results(key TEXT PRIMARY KEY); done(run, tool)"


def pickled(inputs: dict[str, Any]) -> str:
    return hashlib.sha256(pickle.dumps(inputs)).hexdigest()


def canonical(inputs: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def without_metadata(inputs: dict[str, Any]) -> str:
    return canonical({name: value for name, value in inputs.items() if name != "tenant"})


def task(once: Once, key_of: Callable[[dict[str, Any]], str], runs: tuple[str, ...]) -> None:
    """The effect and its cached result commit together: only a key that differs can repeat it."""
    once.count("task.db", "SELECT run, count(*) FROM done GROUP BY run")
    with database(once, "task", TABLES) as db:
        for run in runs:
            prompt = " ".join(["ship", "order_1"])
            inputs = {"prompt": prompt, "history": [prompt], "tenant": run}
            stored = db.execute("SELECT json FROM inputs WHERE run = ?", (run,)).fetchone()
            if stored is None:
                db.execute("INSERT INTO inputs VALUES (?, ?)", (run, json.dumps(inputs)))
            else:
                inputs = json.loads(stored[0])
            key = key_of(inputs)
            if not db.execute("SELECT 1 FROM results WHERE key = ?", (key,)).fetchone():
                db.execute("BEGIN")
                db.execute("INSERT INTO done VALUES (?, 'ship')", (run,))
                db.execute("INSERT INTO results VALUES (?)", (key,))
                db.execute("COMMIT")


def test_inputs_that_were_stored_miss_the_cached_result() -> None:
    report = explore(lambda once: task(once, pickled, ("run_1",)), soft_faults=0)
    violation = convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="run_1")
    assert str(violation.schedule) == "./."  # delivered again after it had completed


def test_a_key_of_equal_values_is_equal() -> None:
    exactly_once(explore(lambda once: task(once, canonical, ("run_1", "run_2")), soft_faults=0))


def test_a_key_that_is_too_narrow_gives_one_run_the_result_of_another() -> None:
    runs = ("run_1", "run_2")
    report = explore(lambda once: task(once, without_metadata, runs), soft_faults=0, keys=runs)
    convicted_undisturbed(report, Verdict.OMISSION, expected=1, actual=0, key="run_2")
