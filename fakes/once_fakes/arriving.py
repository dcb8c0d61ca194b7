"""One request reaches the provider: what the contract decides is written down and answered.

Where the contract is atomic it is one transaction over the ledger: the arrival, the receipt it finds, the effect and
its receipt commit together or not at all.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from once_fakes.contract import UNSPECIFIED, Contract
from once_fakes.deciding import Case, Decision
from once_fakes.dialect import Act, Dialect, Shown, dialect_of
from once_fakes.instructions import NOTHING, Instructions
from once_fakes.promises import UNDOCUMENTED_RETENTION_S
from once_fakes.reading import field_text
from once_fakes.reply import Reply
from once_fakes.settling import complete, settle_due, shown_effect
from pytest_once.boundaries import ARRIVAL_HEADER
from pytest_once.ledger import IN_PROGRESS, Ledger, Receipt, canonical_payload
from pytest_once.ledger.within import (
    effect_by_id,
    effect_count,
    find_provider,
    hold_completion,
    insert_arrival,
    insert_effect,
    move_position,
    now_within,
    store_receipt,
)

Between = Callable[[str, int], None]
"""Called between the two commits of a contract that is not atomic, with what is done and what is not, and the
arrival's id. Raises where the provider dies there."""


def _goes_on(step: str, arrival: int) -> None:
    """The provider does not die."""


@dataclass(frozen=True, slots=True)
class _Halves:
    """The reply, and what has not been committed with it."""

    reply: Reply
    arrival: int
    missing: str = ""
    second: Callable[[sqlite3.Connection], object] | None = None


def arrive(
    ledger: Ledger, provider: str, act: Act, instructions: Instructions = NOTHING, between: Between = _goes_on
) -> Reply:
    """Let one request reach the provider and answer as its contract says.

    Raises LookupError if the ledger has no such provider, Undecided where the contract leaves it open what happens and
    `instructions` ask, and what `between` raises.
    """
    with ledger.transaction() as connection:
        halves = _Arriving(connection, provider, act, instructions, None).halves()
    if halves.second is not None:
        between(halves.missing, halves.arrival)
        with ledger.transaction() as connection:
            halves.second(connection)
    return halves.reply


def arrive_within(
    connection: sqlite3.Connection, provider: str, act: Act, instructions: Instructions, incarnation: int
) -> Reply:
    """`arrive` inside a transaction, for an incarnation; the provider does not die meanwhile."""
    halves = _Arriving(connection, provider, act, instructions, incarnation).halves()
    if halves.second is not None:
        halves.second(connection)
    return halves.reply


def contract_of(connection: sqlite3.Connection, provider: str) -> tuple[Contract, str | None]:
    """The provider's contract and the field of its logical key. Raises LookupError if it is not declared."""
    declared = find_provider(connection, provider)
    if declared is None:
        raise LookupError(f"no provider {provider!r} is declared in this ledger")
    return Contract.from_json(declared.contract), declared.key_field


class _Arriving:
    """One request inside a transaction. incarnation: None is the current one."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        provider: str,
        act: Act,
        instructions: Instructions,
        incarnation: int | None,
    ) -> None:
        self._connection = connection
        self._provider = provider
        self._act = act
        self._instructions = instructions
        self._incarnation = incarnation
        self._contract, self._key_field = contract_of(connection, provider)
        self._dialect: Dialect = dialect_of(self._contract)
        self._now_s = now_within(connection) if self._contract.keeps_time else 0.0
        self._case = Case(connection, provider, self._contract, act, instructions, self._now_s)

    def halves(self) -> _Halves:
        if self._contract.keeps_time:
            settle_due(self._connection, self._provider, self._contract, self._now_s)
        decision = self._case.decide()
        match decision.what:
            case "act":
                return self._acted(decision)
            case "refuse":
                return self._refused(decision)
            case "acknowledge":
                shown = Shown(self._provider, 0, self._act.operation, self._act.payload)
                return self._answered("replayed", 200, self._dialect.acknowledgement(self._contract, shown), True)
            case "finish":
                assert decision.receipt is not None and decision.receipt.effect is not None
                complete(self._connection, self._contract, decision.receipt.effect, "done")
        assert decision.receipt is not None
        return self._replayed(decision.receipt)

    # -- answers without a new effect ----------------------------------------------------------------

    def _refused(self, decision: Decision) -> _Halves:
        assert decision.refusal is not None
        status, body = self._dialect.refusal(self._contract, decision.refusal)
        if decision.stored:
            self._store(self._receipt(status, body, None))
        outcome = "failed" if decision.refusal.kind in ("failed", "declined") else "refused"
        return self._answered(outcome, status, body, False, dict(decision.refusal.headers))

    def _replayed(self, receipt: Receipt) -> _Halves:
        status, body = receipt.status, json.loads(receipt.body)
        if receipt.effect is not None:
            current = self._case.value("replay_body") == "current_state"
            if current or status == IN_PROGRESS:
                shown = shown_effect(effect_by_id(self._connection, receipt.effect))
                status, body = (
                    self._dialect.status(self._contract, shown),
                    self._dialect.answer(self._contract, shown),
                )
        return self._answered("replayed", status, body, True)

    def _answered(
        self,
        outcome: str,
        status: int,
        body: dict[str, Any],
        replayed: bool,
        headers: Mapping[str, str] | None = None,
    ) -> _Halves:
        marks = {self._contract.replay_header.lower(): "true"} if replayed and self._contract.replay_header else {}
        arrival = self._arrival(outcome, status)
        sent = {**(headers or {}), **marks, ARRIVAL_HEADER: str(arrival)}
        return _Halves(self._dialect.reply(status, body, outcome, headers=sent, arrival=arrival), arrival)

    def _arrival(self, outcome: str, status: int) -> int:
        case = self._case
        shown = {"none": case.key, "client_key": case.key, "session_sequence": case.identity}
        return insert_arrival(
            self._connection,
            self._provider,
            self._act.operation,
            # A key that the contract does not look at is no identity of the request.
            key=shown.get(self._contract.dedup),
            payload=self._act.canonical,
            outcome=outcome,
            status=status,
            incarnation=self._incarnation,
            scope=case.scope,
            relied=",".join(case.relied),
        )

    # -- effects -------------------------------------------------------------------------------------

    def _acted(self, decision: Decision) -> _Halves:
        contract, connection = self._contract, self._connection
        number = effect_count(connection, self._provider) + 1
        begun = self._instructions.begin
        waits = begun or contract.acceptance == "async202"
        state = "pending" if waits else "done"
        shown = Shown(
            self._provider, number, self._act.operation, json.loads(self._act.canonical), state, self._reference()
        )
        status, body = self._dialect.status(contract, shown), self._dialect.answer(contract, shown)
        outcome = "begun" if begun else "accepted" if waits else "executed"
        if waits:
            self._case.relied.append("on_concurrent" if begun else "acceptance")
        halves = self._answered(outcome, status, body, False)
        for name, value in decision.moves:
            move_position(connection, self._provider, name, value)
        receipt = self._receipt(IN_PROGRESS if begun else status, body, None)
        if begun and contract.record_point == "completed":
            receipt = None

        def act(connection: sqlite3.Connection) -> int:
            return self._insert(connection, state, halves.arrival)

        if contract.atomicity == "record_first" and receipt is not None:
            self._store(receipt)
            return replace(
                halves,
                missing="receipt written, effect not yet done",
                second=lambda later: store_receipt(later, replace(receipt, effect=act(later))),
            )
        effect = act(connection)
        if receipt is None:
            return halves
        named = replace(receipt, effect=effect)
        if contract.atomicity == "effect_first":
            return replace(
                halves,
                missing="effect done, receipt not yet written",
                second=lambda later: store_receipt(later, named),
            )
        self._store(named)
        return halves

    def _insert(self, connection: sqlite3.Connection, state: str, arrival: int) -> int:
        contract = self._contract
        effect = insert_effect(
            connection,
            self._provider,
            self._act.operation,
            field_text(json.loads(self._act.canonical), self._key_field),
            self._act.canonical,
            arrival,
            self._reference(),
            self._now_s + contract.visibility_lag_s if contract.visibility_lag_s else None,
            state,
            self._now_s + contract.completes_after_s if state == "pending" else None,
        )
        if state == "pending":
            hold_completion(connection, effect, self._case.key)
        elif contract.webhooks != "none":
            complete(connection, contract, effect.id, "done")
        return effect.id

    def _reference(self) -> str | None:
        contract = self._contract
        if contract.lookup == "by_key":
            return self._case.key
        if contract.lookup == "by_client_ref":
            return field_text(json.loads(self._act.canonical), contract.reference_field)
        return None

    def _receipt(self, status: int, body: dict[str, Any], effect: int | None) -> Receipt | None:
        key = self._case.stored_under()
        if key is None or self._contract.dedup == "none":
            return None
        promised_s, expires_s = self._kept_until()
        return Receipt(
            self._provider,
            key,
            self._case.fingerprint,
            status,
            canonical_payload(body),
            effect,
            expires_s,
            promised_s,
        )

    def _kept_until(self) -> tuple[float | None, float | None]:
        """Until when the receipt is certainly kept (None: as long as it is), and when it is certainly gone."""
        contract, now_s = self._contract, self._now_s
        kept = contract.retention_s if contract.window_s is None else contract.window_s
        if kept is None:
            return None, None
        if kept == UNSPECIFIED:
            return now_s + UNDOCUMENTED_RETENTION_S, None
        if isinstance(kept, tuple):
            least, most = kept
            return now_s + least, None if most is None else now_s + most
        assert not isinstance(kept, str)
        return None, now_s + kept

    def _store(self, receipt: Receipt | None) -> None:
        if receipt is not None:
            store_receipt(self._connection, receipt)
