"""One key for two intents, seen in what reached the provider: when that is a conflict missed, and when it is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from once_fakes import CLIENT_KEY, Contract, Provider
from once_fakes.arriving import arrive
from once_fakes.dialect import Act
from once_fakes.instructions import Instructions
from pytest_once.canonical import Naming
from pytest_once.checks import LogicalKey, Oracle
from pytest_once.clock import EPOCH_S
from pytest_once.evidence import Evidence
from pytest_once.ledger import Ledger
from pytest_once.life import Sight
from pytest_once.stores.ledger import LedgerStore
from pytest_once.world import World

Send = Callable[..., object]
REPLAYS = replace(CLIENT_KEY, on_mismatch="replay")
EXECUTES = replace(CLIENT_KEY, on_mismatch="execute")
STORES = replace(CLIENT_KEY, on_mismatch="replay", stored_outcomes="all")
SESSION = Contract(name="s", dedup="session_sequence", session_field="s", sequence_field="n")


def two_intents(send: Send) -> None:
    send(1, "k")
    send(2, "k")


def repeated(send: Send) -> None:
    send(1, "k")
    send(1, "k")
    send(2, "l")


def in_two_scopes(send: Send) -> None:
    send(1, "k", account="a")
    send(2, "k", account="b")


def in_one_scope(send: Send) -> None:
    send(1, "k", account="a")
    send(2, "k", account="a")


def after_a_failure(send: Send) -> None:
    send(1, "k", fail=True)
    send(2, "k")


def much_later(send: Send) -> None:
    send(1, "k")
    send(2, "k", at_s=EPOCH_S + 7200)


def twice_the_same_number(send: Send) -> None:
    send({"s": "a", "n": 1, "amount": 1}, None)
    send({"s": "a", "n": 1, "amount": 2}, None)


def another_session(send: Send) -> None:
    send({"s": "a", "n": 1, "amount": 1}, None)
    send({"s": "b", "n": 1, "amount": 2}, None)


def begun_first(send: Send) -> None:
    send(1, "k", begin=True)
    send(2, "k")


@pytest.mark.parametrize(
    ("does", "contract", "missed"),
    [
        (two_intents, CLIENT_KEY, False),
        (two_intents, REPLAYS, True),
        (two_intents, EXECUTES, True),
        (two_intents, replace(CLIENT_KEY, dedup="none"), False),
        (repeated, REPLAYS, False),
        (repeated, replace(REPLAYS, acceptance="async202"), False),
        (two_intents, replace(REPLAYS, acceptance="async202"), True),
        (in_two_scopes, replace(REPLAYS, scope=("account",)), False),
        (in_one_scope, replace(REPLAYS, scope=("account",)), True),
        (in_two_scopes, REPLAYS, True),
        (after_a_failure, REPLAYS, False),
        (after_a_failure, STORES, True),
        (much_later, replace(REPLAYS, retention_s=3600), False),
        (much_later, replace(REPLAYS, retention_s=(3600, None)), False),
        (much_later, replace(REPLAYS, retention_s=10800), True),
        (begun_first, replace(REPLAYS, on_concurrent="coalesce"), True),
        (begun_first, replace(CLIENT_KEY, on_concurrent="coalesce"), False),
        (twice_the_same_number, SESSION, True),
        (another_session, SESSION, False),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_counts_as_a_conflict_missed(
    tmp_path: Path, does: Callable[[Send], None], contract: Contract, missed: bool
) -> None:
    """S3.3: the same identity with a changed amount is refused, or somebody must be told that it was not."""
    ledger = Ledger.create(tmp_path / "ledger.db")
    ledger.set_now(EPOCH_S)
    Provider("pay", contract, ledger, str)

    def send(
        payload: object,
        key: str | None,
        *,
        account: str = "",
        fail: bool = False,
        begin: bool = False,
        at_s: float = EPOCH_S,
    ) -> None:
        ledger.set_now(at_s)
        arrive(ledger, "pay", Act("refund", payload, key, account=account), Instructions(fail=fail, begin=begin))

    does(send)
    world = World([LedgerStore(ledger.path)])
    evidence = Evidence(world, Naming())
    evidence.oracle = Oracle({}, (), None, {})
    swallowed = evidence.swallowed(Sight(world.take(), EPOCH_S, frozenset()))
    assert (swallowed is not None) == missed
    if swallowed is not None:
        assert swallowed == LogicalKey("pay", "refund", "amount=2 n=1 s=a" if contract is SESSION else "2")
