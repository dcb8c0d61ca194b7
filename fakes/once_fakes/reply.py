"""What a provider answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Reply:
    """A provider's answer.

    status: HTTP status; body: JSON value; outcome: executed, accepted, begun, failed, replayed or refused, of a
    look-up found or not_found, of what is no effect tended; arrival_id: the arrival in the ledger, None when the
    request asks or tends only, or was turned away before the contract looked at it. encoded: the body as the
    dialect writes it, None for JSON.
    """

    status: int
    headers: Mapping[str, str]
    body: dict[str, Any]
    outcome: str
    arrival_id: int | None = None
    encoded: bytes | None = None

    def raise_for_status(self) -> Reply:
        """This reply, unless its status is an error. Raises ProviderError then: the effect may have happened or not."""
        if self.status >= 400:
            raise ProviderError(self)
        return self

    @property
    def content(self) -> bytes:
        """The body as a transport sends it; the same bytes for a reply and its replay."""
        return json.dumps(self.body, sort_keys=True).encode("ascii") if self.encoded is None else self.encoded


class ProviderError(Exception):
    """A reply with an error status; `reply` holds it."""

    def __init__(self, reply: Reply) -> None:
        error = reply.body.get("error")
        message = error.get("message", "") if isinstance(error, dict) else json.dumps(reply.body, sort_keys=True)
        super().__init__(f"status {reply.status}: {message}")
        self.reply = reply


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a provider does not do what was asked; its dialect words it.

    kind: "key_missing", "key_unusable", "mismatch", "concurrent", "natural_conflict", "content_repeated",
    "precondition_failed", "out_of_order", "fenced", "field_missing", "declined", "failed", "unavailable", "malformed",
    "invalid", "too_large", "method_not_allowed", "not_found", "unknown_path" or "unauthorized". status: HTTP status
    that the contract names. param: the header or field that is wrong. value: what was found there.
    """

    kind: str
    status: int
    message: str
    param: str | None = None
    value: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


def error_document(kind: str, message: str, param: str | None = None) -> dict[str, Any]:
    """The plain dialect's body of every error reply."""
    error = {"type": kind, "message": message}
    if param is not None:
        error["param"] = param
    return {"error": error}


def turn_away(status: int, kind: str, message: str, headers: Mapping[str, str] | None = None) -> Reply:
    """A refusal in the plain dialect that never reaches the contract, so leaves no arrival."""
    sent = {"content-type": "application/json", **(headers or {})}
    return Reply(status, sent, error_document(kind, message), "refused")
