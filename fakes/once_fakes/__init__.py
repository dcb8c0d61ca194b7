"""Fake providers that keep their published idempotency contracts, over one ledger."""

from once_fakes.contract import Contract
from once_fakes.contracts import CLIENT_KEY, CLIENT_KEY_24H, NONE, contract_named, contracts
from once_fakes.provider import Provider
from once_fakes.reply import ProviderError, Reply
from once_fakes.signing import WEBHOOK_SECRET
from once_fakes.webhooks import Event

__all__ = [
    "CLIENT_KEY",
    "CLIENT_KEY_24H",
    "NONE",
    "WEBHOOK_SECRET",
    "Contract",
    "Event",
    "Provider",
    "ProviderError",
    "Reply",
    "contract_named",
    "contracts",
]
