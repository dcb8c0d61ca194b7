"""Stripe's API v2, by its outbound payments: JSON, and another idempotency than v1.

A key is known for 30 days. A repetition does not repeat what succeeded, and its answer may be newer than the first one;
what failed is tried anew. What another request under the same key gets, and a request while the first is still worked
on, is not documented.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote

from once_fakes.contract import Contract
from once_fakes.dialect import Act, Ask, Dialect, Request, Shown
from once_fakes.presets.fields import at, flaw, read_object, text, whole
from once_fakes.presets.stripe import account_of
from once_fakes.reply import Refusal

_PATH = "/v2/money_management/outbound_payments"
_PAY = f"POST {_PATH}"
_FIELDS = (
    whole("amount.value"),
    text("amount.currency", longest=3),
    text("from.financial_account"),
    text("from.currency", longest=3),
    text("to.recipient"),
)
_STATES = {"done": "posted", "pending": "processing", "failed": "failed"}
_CODES = {
    "mismatch": "idempotency_error",
    "concurrent": "idempotency_key_in_use",
    "declined": "outbound_payment_declined",
    "failed": "api_error",
    "unavailable": "api_error",
    "field_missing": "invalid_fields",
    "invalid": "invalid_fields",
    "not_found": "not_found",
    "unauthorized": "authentication_required",
}


class StripeV2(Dialect):
    """Stripe API v2 on the wire."""

    source = "https://docs.stripe.com/api-v2-overview https://docs.stripe.com/api/idempotent_requests"
    not_modelled = (
        "All of v2 but outbound payments, pages of lists, thin events, Stripe-Version and include. Error codes other"
        " than those of idempotency are made up in the style of the documented ones."
    )

    def understand(self, contract: Contract, request: Request) -> Act | Ask | Refusal:
        if not request.account:
            return Refusal("unauthorized", 401, "no API key was given: send it as `Authorization: Bearer KEY`")
        path = request.path.rstrip("/")
        if request.method in ("GET", "HEAD") and path == _PATH:
            return Ask(_PAY)
        if request.method in ("GET", "HEAD") and path.rpartition("/")[0] == _PATH:
            return Ask(_PAY, unquote(path.rpartition("/")[2]))
        if request.method != "POST" or path != _PATH:
            return Refusal("unknown_path", 404, f"nothing answers {request.method} {request.path}")
        payload = read_object(request)
        if isinstance(payload, Refusal):
            return payload
        key = request.headers.get(contract.key_header.lower())
        return Act(_PAY, payload, key, invalid=flaw(payload, _FIELDS), account=account_of(request))

    def document(self, contract: Contract, shown: Shown) -> dict[str, Any]:
        return {
            "id": f"obp_once{shown.number:020d}",
            "object": "v2.money_management.outbound_payment",
            "amount": at(shown.payload, "amount"),
            "created": f"2024-01-01T00:{shown.number // 60 % 60:02d}:{shown.number % 60:02d}.000Z",
            "description": at(shown.payload, "description"),
            "from": at(shown.payload, "from"),
            "metadata": at(shown.payload, "metadata") or {},
            "status": _STATES[shown.state],
            "to": at(shown.payload, "to"),
            "livemode": False,
        }

    def listing(self, contract: Contract, documents: list[dict[str, Any]], ask: Ask) -> dict[str, Any]:
        return {"data": documents[::-1], "next_page_url": None, "previous_page_url": None}

    def acknowledgement(self, contract: Contract, shown: Shown) -> dict[str, Any]:
        return {"object": "v2.money_management.outbound_payment"}

    def refusal(self, contract: Contract, refusal: Refusal) -> tuple[int, dict[str, Any]]:
        code = _CODES.get(refusal.kind, "invalid_request")
        kind = code if code in ("idempotency_error", "invalid_fields", "api_error") else "invalid_request_error"
        if refusal.kind == "concurrent":
            kind = "idempotency_error"
        error: dict[str, Any] = {"type": kind, "code": code, "message": refusal.message}
        if code == "invalid_fields" and refusal.param is not None:
            error["invalid_fields"] = [{"field": refusal.param, "error": refusal.message}]
        return refusal.status, {"error": error}

    def example(self, contract: Contract, key: str | None, variant: int = 0) -> Request:
        headers = {"authorization": "Bearer sk_test_once", "content-type": "application/json"}
        if key is not None:
            headers["idempotency-key"] = key
        body = {
            "amount": {"value": 100 + variant, "currency": "usd"},
            "from": {"financial_account": "fa_1", "currency": "usd"},
            "to": {"recipient": "acct_1"},
            "description": key,
        }
        return Request("POST", _PATH, "", headers, json.dumps(body).encode())

    def example_lookup(self, contract: Contract, reference: str | None) -> Request:
        path = _PATH if reference is None else f"{_PATH}/{reference}"
        return Request("GET", path, "", {"authorization": "Bearer sk_test_once"}, b"")


STRIPE = StripeV2()

STRIPE_V2 = Contract(
    name="stripe_v2",
    dialect="once_fakes.presets.stripe_v2:STRIPE",
    scope=("account",),
    on_mismatch="unspecified",
    mismatch_status=400,
    on_concurrent="unspecified",
    stored_outcomes="all",
    on_retry_after_failure="re_execute",
    replay_body="current_state",
    replay_header="",
    retention_s=30 * 86400.0,
    lookup="list_only",
)
"""Stripe's API v2."""
