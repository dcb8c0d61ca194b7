"""Adyen's Checkout API: payments and their modifications (captures, refunds, cancels), which end later.

A POST under an `idempotency-key` of at most 64 characters gets the first response again. Keys belong to the company
account and to the region of the endpoint; the documents name 7 days and 31 days as the least time they are kept, so 7
days are the promise and nothing more. A repetition before the first request has completed is refused with 422 or 409
and errorCode 704. Where a response has the header `transient-error: true` the same key may be tried again. What came of
a payment or a modification is told by a webhook: at least once, in any order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from once_fakes.contract import Contract
from once_fakes.dialect import Act, Ask, Dialect, Request, Shown
from once_fakes.presets.fields import at, flaw, read_object, text, whole
from once_fakes.reply import Refusal, Reply

_PATH = re.compile(
    r"(?:/checkout)?/v[0-9]{2,3}(?P<place>/payments(?:/(?P<psp>[A-Za-z0-9]{1,32})/(?P<what>refunds|captures|cancels))?)"
)
_MERCHANT = text("merchantAccount")
_AMOUNT = (whole("amount.value"), text("amount.currency", longest=3))
_FIELDS = {
    "": (_MERCHANT, *_AMOUNT, text("reference"), text("returnUrl", needed=False)),
    "refunds": (_MERCHANT, *_AMOUNT),
    "captures": (_MERCHANT, *_AMOUNT),
    "cancels": (_MERCHANT,),
}
_EVENTS = {"": "AUTHORISATION", "refunds": "REFUND", "captures": "CAPTURE", "cancels": "CANCELLATION"}
_IN_PROGRESS = "request already processed or in progress"


class Adyen(Dialect):
    """Adyen's Checkout API on the wire. The region is said by the header Once-Region, where there are several."""

    source = (
        "https://docs.adyen.com/development-resources/api-idempotency"
        " https://docs.adyen.com/development-resources/response-handling"
        " https://docs.adyen.com/development-resources/error-codes https://docs.adyen.com/online-payments/refund"
    )
    not_modelled = (
        "Payments that are authorised at once (the answer is Received, a webhook tells the outcome), amounts left to"
        " capture or refund, the key echoed in the response, HMAC signatures. An API key stands for a company account."
    )

    def understand(self, contract: Contract, request: Request) -> Act | Ask | Refusal:
        if not request.account:
            return Refusal("unauthorized", 401, "HTTP Status Response - Unauthorized")
        matched = _PATH.fullmatch(request.path.rstrip("/"))
        if matched is None:
            return Refusal("unknown_path", 404, f"nothing answers {request.path}")
        if request.method != "POST":
            return Refusal(
                "method_not_allowed", 405, f"{request.method} is not answered here", headers=(("allow", "POST"),)
            )
        payload = read_object(request)
        if isinstance(payload, Refusal):
            return payload
        what, psp = matched["what"] or "", matched["psp"]
        operation = f"POST /payments/{{paymentPspReference}}/{what}" if what else "POST /payments"
        return Act(
            operation,
            payload | {"paymentPspReference": psp} if what else payload,
            request.headers.get(contract.key_header.lower()),
            invalid=flaw(payload, _FIELDS[what], 422),
            account=request.account,
            region=request.headers.get("once-region", ""),
        )

    def identifier(self, contract: Contract, shown: Shown) -> str:
        return f"ONCE{shown.number:012d}"

    def document(self, contract: Contract, shown: Shown) -> dict[str, Any]:
        document = {"pspReference": self.identifier(contract, shown)}
        if not _what(shown):
            return document | {"resultCode": "Received", "merchantReference": at(shown.payload, "reference")}
        given = {
            name: at(shown.payload, name) for name in ("merchantAccount", "paymentPspReference", "reference", "amount")
        }
        return document | {name: value for name, value in given.items() if value is not None} | {"status": "received"}

    def status(self, contract: Contract, shown: Shown) -> int:
        return 201 if _what(shown) else 200

    def event(self, contract: Contract, shown: Shown) -> tuple[str, dict[str, Any]]:
        kind = _EVENTS[_what(shown)]
        item = {
            "eventCode": kind,
            "success": "false" if shown.state == "failed" else "true",
            "pspReference": self.identifier(contract, shown),
            "originalReference": at(shown.payload, "paymentPspReference"),
            "merchantAccountCode": at(shown.payload, "merchantAccount"),
            "merchantReference": at(shown.payload, "reference"),
            "amount": at(shown.payload, "amount"),
            "eventDate": "2024-01-01T00:00:00+00:00",
        }
        return kind, {"live": "false", "notificationItems": [{"NotificationRequestItem": item}]}

    def refusal(self, contract: Contract, refusal: Refusal) -> tuple[int, dict[str, Any]]:
        code, kind = _ERRORS.get(refusal.kind, ("702", "validation"))
        message = _IN_PROGRESS if refusal.kind == "concurrent" else refusal.message
        status = 422 if refusal.kind == "declined" else refusal.status
        return status, {"status": status, "errorCode": code, "message": message, "errorType": kind}

    def reply(
        self,
        status: int,
        body: dict[str, Any],
        outcome: str,
        *,
        headers: Mapping[str, str] | None = None,
        arrival: int | None = None,
    ) -> Reply:
        if status >= 500 or body.get("message") == _IN_PROGRESS:
            headers = {**(headers or {}), "transient-error": "true"}
        return super().reply(status, body, outcome, headers=headers, arrival=arrival)

    def example(self, contract: Contract, key: str | None, variant: int = 0) -> Request:
        headers = {"x-api-key": "AQE_once", "content-type": "application/json"}
        if key is not None:
            headers["idempotency-key"] = key
        body = {
            "merchantAccount": "OnceCOM",
            "amount": {"value": 100 + variant, "currency": "EUR"},
            "reference": key or "order",
        }
        return Request("POST", "/v71/payments/PSP883400000001/refunds", "", headers, json.dumps(body).encode())


def _what(shown: Shown) -> str:
    last = shown.operation.rpartition("/")[2]
    return last if last in _EVENTS else ""


_ERRORS: Mapping[str, tuple[str, str]] = {
    "unauthorized": ("000", "security"),
    "unknown_path": ("000", "internal"),
    "method_not_allowed": ("000", "internal"),
    "too_large": ("000", "internal"),
    "concurrent": ("704", "validation"),
    "mismatch": ("704", "validation"),
    "declined": ("905", "configuration"),
    "failed": ("905", "internal"),
    "unavailable": ("905", "internal"),
}

ADYEN_CHECKOUT = Adyen()

ADYEN = Contract(
    name="adyen",
    dialect="once_fakes.presets.adyen:ADYEN_CHECKOUT",
    key_header="idempotency-key",
    max_key_length=64,
    scope=("account", "region"),
    on_mismatch="unspecified",
    on_concurrent="reject",
    concurrent_status=422,
    stored_outcomes="success_and_4xx",
    on_retry_after_failure="replay",
    replay_body="original",
    replay_header="",
    retention_s=(7 * 86400.0, None),
    acceptance="async202",
    completes_after_s=3600.0,
    webhooks="at_least_once",
)
"""Adyen's Checkout API. How long a modification takes is not documented: an hour stands for it."""
