"""A dialect whose requests must have an amount: for tests of what a provider keeps of an invalid request."""

from __future__ import annotations

from dataclasses import replace

from once_fakes.contract import Contract
from once_fakes.dialect import Act, Ask, Dialect, Request, Tend
from once_fakes.reply import Refusal


class Insisting(Dialect):
    """The plain dialect, and an amount that must be there."""

    def understand(self, contract: Contract, request: Request) -> Act | Ask | Tend | Refusal:
        understood = super().understand(contract, request)
        if isinstance(understood, Act) and "amount" not in (understood.payload or {}):
            return replace(understood, invalid=Refusal("invalid", 400, "amount is missing", "amount"))
        return understood


INSISTS = Insisting()
