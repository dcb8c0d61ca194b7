"""Fake providers that keep their published idempotency contracts, over one ledger."""

from once_fakes.contract import CLIENT_KEY, NONE, Contract, contract_named, contracts
from once_fakes.provider import Provider, ProviderError, Reply

__all__ = ["CLIENT_KEY", "NONE", "Contract", "Provider", "ProviderError", "Reply", "contract_named", "contracts"]
