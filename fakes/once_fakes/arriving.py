"""One request reaches the provider: what the contract makes of it.

Where the contract is atomic it is one transaction over the ledger: the arrival, the receipt it finds, the effect and
its receipt commit together or not at all.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from once_fakes.contract import Contract
from once_fakes.reply import Reply, effect_document, error_document
from pytest_once.boundaries import ARRIVAL_HEADER
from pytest_once.ledger import (
    Ledger,
    Receipt,
    canonical_payload,
    effect_count,
    find_provider,
    find_receipt,
    forget_receipts,
    insert_arrival,
    insert_effect,
    now_within,
    store_receipt,
)

MAX_KEY_LENGTH = 255
"""Longest idempotency key, in characters."""

Between = Callable[[str, int], None]
"""Called between the two commits of a contract that is not atomic, with what is done and what is not, and the
arrival's id. Raises where the provider dies there."""


def _goes_on(step: str, arrival: int) -> None:
    """The provider does not die."""


@dataclass(slots=True)
class _Answer:
    """What the contract decides, before it is written down."""

    outcome: str
    status: int
    body: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Halves:
    """The reply, and what has not been committed with it."""

    reply: Reply
    arrival: int
    missing: str = ""
    second: Callable[[sqlite3.Connection], object] | None = None


def arrive(
    ledger: Ledger, provider: str, operation: str, payload: str, key: str | None, between: Between = _goes_on
) -> Reply:
    """Let one request reach the provider and answer as its contract says.

    payload: canonical JSON; key: the client's idempotency key, None or empty if it sent none. Raises
    LookupError if the ledger has no such provider, and what `between` raises.
    """
    with ledger.transaction() as connection:
        halves = _arrive(connection, provider, operation, payload, key, None)
    if halves.second is not None:
        between(halves.missing, halves.arrival)
        with ledger.transaction() as connection:
            halves.second(connection)
    return halves.reply


def arrive_within(
    connection: sqlite3.Connection, provider: str, operation: str, payload: str, key: str | None, incarnation: int
) -> Reply:
    """`arrive` inside a transaction, for an incarnation; the provider does not die meanwhile."""
    halves = _arrive(connection, provider, operation, payload, key, incarnation)
    if halves.second is not None:
        halves.second(connection)
    return halves.reply


def contract_of(connection: sqlite3.Connection, provider: str) -> tuple[Contract, str | None]:
    """The provider's contract and the field of its logical key. Raises LookupError if it is not declared."""
    declared = find_provider(connection, provider)
    if declared is None:
        raise LookupError(f"no provider {provider!r} is declared in this ledger")
    return Contract.from_json(declared.contract), declared.key_field


def _arrive(
    connection: sqlite3.Connection,
    provider: str,
    operation: str,
    payload: str,
    key: str | None,
    incarnation: int | None,
) -> _Halves:
    key = key or None
    contract, key_field = contract_of(connection, provider)
    now_s = now_within(connection) if contract.keeps_time else 0.0
    if contract.keeps_time:
        forget_receipts(connection, provider, now_s)
    value = json.loads(payload)
    identity = _identity(contract, operation, payload, value, key)
    fingerprint = hashlib.sha256(f"{operation}\n{payload}".encode()).hexdigest()
    receipt = find_receipt(connection, provider, identity) if identity else None
    answer = _decide(contract, identity, receipt, fingerprint)
    headers = {"content-type": "application/json"}
    if answer.outcome == "executed":
        answer.body = effect_document(provider, effect_count(connection, provider) + 1, operation, value)
    elif answer.outcome == "replayed":
        headers[contract.replay_header.lower()] = "true"
    arrival = insert_arrival(
        connection,
        provider,
        operation,
        # A key that the contract does not look at is no identity of the request.
        key=key if contract.dedup in ("none", "client_key") else None,
        payload=payload,
        outcome=answer.outcome,
        status=answer.status,
        incarnation=incarnation,
    )
    headers[ARRIVAL_HEADER] = str(arrival)
    reply = Reply(answer.status, headers, answer.body, answer.outcome, arrival)
    if answer.outcome != "executed":
        return _Halves(reply, arrival)

    lag_s = contract.visibility_lag_s
    logical_key = field_text(value, key_field)
    reference = {"by_key": key, "by_client_ref": field_text(value, contract.reference_field)}.get(contract.lookup)

    def act(connection: sqlite3.Connection) -> int:
        visible_s = now_s + lag_s if lag_s else None
        return insert_effect(connection, provider, operation, logical_key, payload, arrival, reference, visible_s).id

    if identity is None:
        act(connection)
        return _Halves(reply, arrival)
    kept_s = contract.retention_s if contract.window_s is None else contract.window_s
    written = Receipt(
        provider,
        identity,
        fingerprint,
        answer.status,
        canonical_payload(answer.body),
        None,
        None if kept_s is None else now_s + kept_s,
    )

    def act_and_name(connection: sqlite3.Connection) -> None:
        store_receipt(connection, replace(written, effect=act(connection)))

    if contract.atomicity == "record_first":
        store_receipt(connection, written)
        return _Halves(reply, arrival, "receipt written, effect not yet done", act_and_name)
    if contract.atomicity == "effect_first":
        done = replace(written, effect=act(connection))
        return _Halves(reply, arrival, "effect done, receipt not yet written", lambda later: store_receipt(later, done))
    act_and_name(connection)
    return _Halves(reply, arrival)


def _identity(contract: Contract, operation: str, payload: str, value: object, key: str | None) -> str | None:
    """What the provider recognises a repetition of this request by; None if by nothing."""
    match contract.dedup:
        case "client_key":
            return key
        case "natural_key":
            named = field_text(value, contract.natural_key_field)
            return None if named is None else f"{operation} {contract.natural_key_field}={named}"
        case "content_window":
            return f"{operation} {payload}"
    return None


def _decide(contract: Contract, identity: str | None, receipt: Receipt | None, fingerprint: str) -> _Answer:
    if contract.dedup == "none":
        return _Answer("executed", 200)
    by_client = contract.dedup == "client_key"
    if identity is None:
        if contract.on_missing_key == "execute":
            return _Answer("executed", 200)
        if by_client:
            message = f"this request needs the header {contract.key_header}"
            return _refusal(contract.missing_key_status, "idempotency_key_missing", message, contract.key_header)
        message = f"this request needs the field {contract.natural_key_field}"
        return _refusal(contract.missing_key_status, "field_missing", message, contract.natural_key_field)
    if by_client and len(identity) > MAX_KEY_LENGTH:
        message = f"{contract.key_header} is longer than {MAX_KEY_LENGTH} characters"
        return _refusal(400, "idempotency_key_too_long", message, contract.key_header)
    if receipt is None:
        return _Answer("executed", 200)
    if contract.dedup == "natural_key":
        message = f"there is one with this {contract.natural_key_field} already"
        return _refusal(contract.conflict_status, "already_exists", message, contract.natural_key_field)
    if contract.dedup == "content_window":
        message = "the same request was made a short time ago; it was not done again"
        return _refusal(contract.conflict_status, "duplicate_request", message)
    if receipt.fingerprint != fingerprint and contract.on_mismatch != "replay":
        if contract.on_mismatch == "execute":
            return _Answer("executed", 200)
        message = f"{contract.key_header} {identity!r} was used before with another request"
        return _refusal(contract.mismatch_status, "idempotency_mismatch", message, contract.key_header)
    return _Answer("replayed", receipt.status, json.loads(receipt.body))


def _refusal(status: int, kind: str, message: str, param: str | None = None) -> _Answer:
    return _Answer("refused", status, error_document(kind, message, param))


def field_text(value: object, path: str | None) -> str | None:
    """What a payload holds in the field of that name, or along a dotted path: text, or canonical JSON of a value."""
    if path is None:
        return None
    found: object = value
    if isinstance(value, dict) and path in value:
        found = value[path]
    else:
        for part in path.split("."):
            found = found.get(part) if isinstance(found, dict) else None
    return found if found is None or isinstance(found, str) else canonical_payload(found)
