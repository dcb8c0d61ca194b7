"""Work that a provider has accepted or begun comes to its end."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace

from once_fakes.contract import Contract
from once_fakes.dialect import Shown, dialect_of
from pytest_once.ledger import IN_PROGRESS, Effect, canonical_payload
from pytest_once.ledger.within import (
    effect_by_id,
    effects_of,
    emit_event,
    forget_receipt,
    receipt_of,
    settle_effect,
    store_receipt,
)


def settle_due(connection: sqlite3.Connection, provider: str, contract: Contract, now_s: float) -> None:
    """What was to be done by now is done, inside a transaction."""
    if contract.acceptance == "sync" and contract.on_concurrent is None:
        return
    for effect in effects_of(connection, provider):
        if effect.state == "pending" and effect.due_s is not None and effect.due_s <= now_s:
            complete(connection, contract, effect.id, "done")


def complete(connection: sqlite3.Connection, contract: Contract, number: int, state: str) -> None:
    """The effect of that id is "done" or "failed" now, inside a transaction; its receipt and webhook say so."""
    settle_effect(connection, number, state)
    effect = effect_by_id(connection, number)
    shown = shown_effect(effect)
    dialect = dialect_of(contract)
    receipt = receipt_of(connection, number)
    if receipt is not None and receipt.status == IN_PROGRESS:
        if state == "failed":
            # The worker died with the request: nothing came of it, and nobody knows of it.
            forget_receipt(connection, effect.provider, receipt.key)
        else:
            status, body = dialect.status(contract, shown), canonical_payload(dialect.answer(contract, shown))
            store_receipt(connection, replace(receipt, status=status, body=body))
    if contract.webhooks != "none":
        kind, body_of_event = dialect.event(contract, shown)
        emit_event(connection, effect.provider, kind, json.dumps(body_of_event, sort_keys=True), number)


def shown_effect(effect: Effect) -> Shown:
    """An effect as its dialect shows it."""
    return Shown(
        effect.provider,
        effect.number,
        effect.operation,
        json.loads(effect.payload),
        effect.state,
        effect.reference,
    )
