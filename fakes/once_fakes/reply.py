"""What a provider answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Reply:
    """A provider's answer.

    status: HTTP status; outcome: executed, replayed or refused, of a look-up found or not_found; arrival_id: the
    arrival in the ledger, None when the request asks only, or was turned away before the contract looked at it.
    """

    status: int
    headers: Mapping[str, str]
    body: dict[str, Any]
    outcome: str
    arrival_id: int | None = None

    def raise_for_status(self) -> Reply:
        """This reply, unless its status is an error. Raises ProviderError then: the effect may have happened or not."""
        if self.status >= 400:
            raise ProviderError(self)
        return self

    @property
    def content(self) -> bytes:
        """The body as a transport sends it; the same bytes for a reply and its replay."""
        return json.dumps(self.body, sort_keys=True).encode("ascii")


class ProviderError(Exception):
    """A reply with an error status; `reply` holds it."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(f"status {reply.status}: {reply.body.get('error', {}).get('message', '')}")
        self.reply = reply


def effect_document(provider: str, number: int, operation: str, payload: object) -> dict[str, Any]:
    """How a provider shows its number-th effect (1 is its first), in a reply and in look-ups."""
    return {
        "id": f"{provider}_{number}",
        "object": "receipt",
        "provider": provider,
        "operation": operation,
        "payload": payload,
    }


def error_document(kind: str, message: str, param: str | None = None) -> dict[str, Any]:
    """The body of every error reply."""
    error = {"type": kind, "message": message}
    if param is not None:
        error["param"] = param
    return {"error": error}


def turn_away(status: int, kind: str, message: str, headers: Mapping[str, str] | None = None) -> Reply:
    """A refusal that never reaches the contract, so leaves no arrival."""
    sent = {"content-type": "application/json", **(headers or {})}
    return Reply(status, sent, error_document(kind, message), "refused")
