"""What the providers did: a SQLite file of arrivals, effects, receipts, requests on their way, what was told."""

from pytest_once.ledger.account import account_of, region_of
from pytest_once.ledger.file import Ledger
from pytest_once.ledger.payload import canonical_payload
from pytest_once.ledger.reading import LedgerReader, LedgerSnapshot
from pytest_once.ledger.records import (
    BETWEEN_LIVES,
    IN_PROGRESS,
    Arrival,
    Counter,
    Declared,
    Effect,
    Event,
    Held,
    Intent,
    Receipt,
    Told,
)

__all__ = [
    "BETWEEN_LIVES",
    "IN_PROGRESS",
    "Arrival",
    "Counter",
    "Declared",
    "Effect",
    "Event",
    "Held",
    "Intent",
    "Ledger",
    "LedgerReader",
    "LedgerSnapshot",
    "Receipt",
    "Told",
    "account_of",
    "canonical_payload",
    "region_of",
]
