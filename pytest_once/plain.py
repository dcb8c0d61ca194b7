"""A marked test run once, without faults: its effects are counted all the same."""

from __future__ import annotations

from pathlib import Path

from pytest_once.canonical import Naming
from pytest_once.checks import build_oracle
from pytest_once.clock import EPOCH_S
from pytest_once.evidence import Evidence
from pytest_once.life import Sight
from pytest_once.premises import Premises
from pytest_once.scenario import Expectations, ScenarioError
from pytest_once.stores import Store, StoreError
from pytest_once.stores.directory import DirectoryStore
from pytest_once.stores.ledger import LedgerStore
from pytest_once.world import World


def count(premises: Premises, tmp_path: Path | None, expectations: Expectations) -> str:
    """What is wrong with the effects of a plain run, with the remedy; "" if nothing is."""
    problem = _counted(premises, tmp_path, expectations)
    premises.learn_secrets()
    return premises.secrets.hidden(problem)


def _counted(premises: Premises, tmp_path: Path | None, expectations: Expectations) -> str:
    stores: list[Store] = [LedgerStore(premises.ledger_path), DirectoryStore(premises.world, "once.path")]
    if tmp_path is not None:
        stores.append(DirectoryStore(tmp_path, "tmp_path"))
    world = World(stores)
    evidence = Evidence(world, Naming())
    try:
        sight = Sight(world.take(), EPOCH_S, frozenset())
        effects = evidence.effects(sight)
        oracle = build_oracle(
            expectations, evidence.intents(sight), effects, effects, (evidence.mask(frozenset()),) * 2
        )
    except (ScenarioError, StoreError) as error:
        return f"INCONCLUSIVE  {error}"
    evidence.oracle = oracle
    counts = evidence.counts(sight)
    wrong = [
        f"{verdict}  {key}: {n} effects, {oracle.intended.get(key, 0)} intended"
        for keys, verdict in ((oracle.excess(counts), "DUPLICATE"), (oracle.missing(counts), "OMISSION"))
        for key, n in keys.items()
    ]
    if not wrong:
        return ""
    return "\n".join(
        (
            *wrong,
            "This was one plain run: no crash and no fault was needed. Correct the code, or what the test intends",
            "(key=, keys=, once.intend). The effects that happened:",
            *(f"  {n} x {key}" for key, n in counts.items()),
            *(() if counts else ("  none",)),
        )
    )
