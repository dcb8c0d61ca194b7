"""Work that a provider has accepted or begun comes to its end."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace

from once_fakes.contract import UNSPECIFIED, Contract
from once_fakes.dialect import Shown, dialect_of
from once_fakes.promises import UNDOCUMENTED_RETENTION_S
from pytest_once.ledger import IN_PROGRESS, Effect, Held, Receipt, canonical_payload
from pytest_once.ledger.within import (
    completion_of,
    effect_by_id,
    effects_of,
    emit_event,
    find_receipt,
    forget_receipt,
    now_within,
    receipt_of,
    settle_effect,
    store_receipt,
    undo_effect,
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
    completion = completion_of(connection, number)
    receipt = receipt_of(connection, number)
    effect = effect_by_id(connection, number)
    if state == "failed" and receipt is not None and receipt.status == IN_PROGRESS:
        forget_receipt(connection, effect.provider, receipt.key)
    if state == "failed" and contract.acceptance == "sync":
        undo_effect(connection, effect)  # the worker died with the request, and nobody knows of it
        return
    settle_effect(connection, number, state)
    effect = replace(effect, state=state, due_s=None)
    shown = shown_effect(effect)
    if state == "done":
        _keep(connection, contract, shown, receipt or _promised(connection, contract, effect, completion))
    announce(connection, contract, effect.id, shown)


def announce(connection: sqlite3.Connection, contract: Contract, number: int, shown: Shown) -> None:
    """Tell the client by webhook what became of the effect of that id, inside a transaction, where that is promised."""
    if contract.webhooks != "none":
        kind, body = dialect_of(contract).event(contract, shown)
        emit_event(connection, shown.provider, kind, json.dumps(body, sort_keys=True), number)


def kept_until(contract: Contract, now_s: float) -> tuple[float | None, float | None]:
    """Until when a receipt made now is certainly kept (None: as long as it is), and when it is certainly gone."""
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


def _promised(
    connection: sqlite3.Connection, contract: Contract, effect: Effect, completion: Held | None
) -> Receipt | None:
    """The receipt of work whose key is taken only now that it is done; None if another request has taken it."""
    fingerprint = None if completion is None else completion.request["fingerprint"]
    if completion is None or completion.key is None or fingerprint is None:
        return None
    if find_receipt(connection, effect.provider, completion.key) is not None:
        return None
    promised_s, expires_s = kept_until(contract, now_within(connection) if contract.keeps_time else 0.0)
    return Receipt(effect.provider, completion.key, fingerprint, IN_PROGRESS, "{}", effect.id, expires_s, promised_s)


def _keep(connection: sqlite3.Connection, contract: Contract, shown: Shown, receipt: Receipt | None) -> None:
    """The receipt of work that is done now says so, unless it holds the answer that was given when it was accepted."""
    if receipt is not None and receipt.status == IN_PROGRESS:
        dialect = dialect_of(contract)
        status, body = dialect.status(contract, shown), canonical_payload(dialect.answer(contract, shown))
        store_receipt(connection, replace(receipt, status=status, body=body))


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
