"""Square's Payments and Refunds APIs.

The key is a field of the body, `idempotency_key`, which must be there and has at most 45 characters. The same request
under it gets the response of the first success; another one is refused with IDEMPOTENCY_KEY_REUSED. How long keys are
kept, what a repetition of a failure gets, and one at the same time, is not published. Lists are eventually consistent:
a new refund may take several seconds to show.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from once_fakes.contract import Contract
from once_fakes.dialect import Act, Ask, Dialect, Request, Shown
from once_fakes.presets.fields import at, flaw, read_object, text, whole
from once_fakes.reply import Refusal

_KEY = "idempotency_key"
_MONEY = (whole("amount_money.amount"), text("amount_money.currency", longest=3))
_REFUNDS, _PAYMENTS = "/v2/refunds", "/v2/payments"
_FIELDS = {
    _REFUNDS: (*_MONEY, text("payment_id"), text("reason", needed=False, longest=192)),
    _PAYMENTS: (
        *_MONEY,
        text("source_id"),
        text("reference_id", needed=False, longest=40),
        text("customer_id", needed=False),
        text("note", needed=False, longest=500),
    ),
}
_SHOWN = ("amount_money", "customer_id", "location_id", "note", "order_id", "payment_id", "reason", "reference_id")


class Square(Dialect):
    """Square's API on the wire."""

    source = (
        "https://developer.squareup.com/docs/build-basics/common-api-patterns/idempotency"
        " https://developer.squareup.com/reference/square/refunds-api/refund-payment"
        " https://developer.squareup.com/reference/square/enums/ErrorCode"
    )
    not_modelled = (
        "Pages and filters of lists, payments that are completed later or cancelled, refunds beyond PENDING, what is"
        " left of a payment that was not made here, keys with other than ASCII characters (refused here), webhooks."
    )

    def understand(self, contract: Contract, request: Request) -> Act | Ask | Refusal:
        if not request.account:
            return Refusal("unauthorized", 401, "This request could not be authorized.")
        path = request.path.rstrip("/")
        if request.method in ("GET", "HEAD"):
            return _asked(path)
        if path not in _FIELDS:
            return Refusal("unknown_path", 404, f"{request.path} is no resource of this API")
        if request.method != "POST":
            return Refusal("method_not_allowed", 405, f"{request.method} is not allowed here")
        payload = read_object(request)
        if isinstance(payload, Refusal):
            return payload
        key = payload.pop(_KEY, None)
        if key is not None and not isinstance(key, str):
            return Refusal("invalid", 400, f"{_KEY} must be a text", _KEY)
        return Act(f"POST {path}", payload, key, invalid=_invalid(path, payload), account=request.account)

    def forbids(self, contract: Contract, act: Act, done: Callable[[], Sequence[Shown]]) -> Refusal | None:
        """A payment that was made here cannot be refunded by more than is left of it."""
        if act.operation != f"POST {_REFUNDS}":
            return None
        paid = at(act.payload, "payment_id")
        left: int | None = None
        for shown in done():
            if paid == self.identifier(contract, shown):
                left = _amount(shown.payload)
            elif left is not None and shown.operation == act.operation and at(shown.payload, "payment_id") == paid:
                left -= _amount(shown.payload)
        if left is None or _amount(act.payload) <= left:
            return None
        return Refusal("refund_amount_invalid", 400, f"only {left} is left of {paid}", "amount_money.amount")

    def identifier(self, contract: Contract, shown: Shown) -> str:
        kind = "Payment" if shown.operation.endswith(_PAYMENTS) else "Refund"
        return f"once{kind}{shown.number:012d}"

    def document(self, contract: Contract, shown: Shown) -> dict[str, Any]:
        payment = shown.operation.endswith(_PAYMENTS)
        given = {name: at(shown.payload, name) for name in _SHOWN}
        done = "COMPLETED" if payment else "PENDING"
        made = {
            "id": self.identifier(contract, shown),
            "status": "FAILED" if shown.state == "failed" else done,
            "created_at": "2024-01-01T00:00:00.000Z",
            **{name: value for name, value in given.items() if value is not None},
        }
        return {"payment" if payment else "refund": made}

    def listing(self, contract: Contract, documents: list[dict[str, Any]], ask: Ask) -> dict[str, Any]:
        kind = "payment" if ask.place == f"POST {_PAYMENTS}" else "refund"
        return {f"{kind}s": [document[kind] for document in reversed(documents) if kind in document]}

    def refusal(self, contract: Contract, refusal: Refusal) -> tuple[int, dict[str, Any]]:
        category, code = _ERRORS.get(refusal.kind, ("INVALID_REQUEST_ERROR", "BAD_REQUEST"))
        error = {"category": category, "code": code, "detail": refusal.message}
        return refusal.status, {"errors": [error if refusal.param is None else {**error, "field": refusal.param}]}

    def example(self, contract: Contract, key: str | None, variant: int = 0) -> Request:
        headers = {"authorization": "Bearer EAAA_once", "content-type": "application/json"}
        body: dict[str, Any] = {"payment_id": "paid", "amount_money": {"amount": 100 + variant, "currency": "USD"}}
        if key is not None:
            body |= {_KEY: key, "reason": key}
        return Request("POST", _REFUNDS, "", headers, json.dumps(body).encode())

    def example_lookup(self, contract: Contract, reference: str | None) -> Request:
        path = _REFUNDS if reference is None else f"{_REFUNDS}/{reference}"
        return Request("GET", path, "", {"authorization": "Bearer EAAA_once"}, b"")


def _asked(path: str) -> Ask | Refusal:
    if path in _FIELDS:
        return Ask(f"POST {path}")
    place, _, reference = path.rpartition("/")
    if place in _FIELDS:
        return Ask(f"POST {place}", unquote(reference), at_once=True)
    return Refusal("unknown_path", 404, f"{path} is no resource of this API")


def _invalid(path: str, payload: dict[str, Any]) -> Refusal | None:
    wrong = flaw(payload, _FIELDS[path])
    if wrong is None and payload.get("source_id") == "cnon:card-nonce-declined":
        return Refusal("declined", 402, "Authorization error: 'GENERIC_DECLINE'")
    return wrong


def _amount(payload: object) -> int:
    amount = at(payload, "amount_money.amount")
    return amount if type(amount) is int else 0


_ERRORS: Mapping[str, tuple[str, str]] = {
    "unauthorized": ("AUTHENTICATION_ERROR", "UNAUTHORIZED"),
    "unknown_path": ("INVALID_REQUEST_ERROR", "NOT_FOUND"),
    "not_found": ("INVALID_REQUEST_ERROR", "NOT_FOUND"),
    "method_not_allowed": ("INVALID_REQUEST_ERROR", "METHOD_NOT_ALLOWED"),
    "too_large": ("INVALID_REQUEST_ERROR", "REQUEST_ENTITY_TOO_LARGE"),
    "key_missing": ("INVALID_REQUEST_ERROR", "MISSING_REQUIRED_PARAMETER"),
    "key_too_long": ("INVALID_REQUEST_ERROR", "VALUE_TOO_LONG"),
    "key_unusable": ("INVALID_REQUEST_ERROR", "INVALID_VALUE"),
    "field_missing": ("INVALID_REQUEST_ERROR", "MISSING_REQUIRED_PARAMETER"),
    "invalid": ("INVALID_REQUEST_ERROR", "INVALID_VALUE"),
    "mismatch": ("INVALID_REQUEST_ERROR", "IDEMPOTENCY_KEY_REUSED"),
    "concurrent": ("INVALID_REQUEST_ERROR", "CONFLICT"),
    "refund_amount_invalid": ("REFUND_ERROR", "REFUND_AMOUNT_INVALID"),
    "declined": ("PAYMENT_METHOD_ERROR", "GENERIC_DECLINE"),
    "failed": ("API_ERROR", "INTERNAL_SERVER_ERROR"),
    "unavailable": ("API_ERROR", "SERVICE_UNAVAILABLE"),
}

SQUARE_API = Square()

SQUARE = Contract(
    name="square",
    dialect="once_fakes.presets.square:SQUARE_API",
    key_field=_KEY,
    max_key_length=45,
    scope=("account", "endpoint"),
    on_mismatch="error",
    mismatch_status=400,
    on_concurrent="unspecified",
    on_missing_key="error",
    stored_outcomes="success_and_4xx",
    on_retry_after_failure="unspecified",
    replay_body="original",
    replay_header="",
    retention_s="unspecified",
    lookup="list_only",
    visibility_lag_s=5.0,
)
"""Square's API. "Several seconds" of lag are taken to be five."""
