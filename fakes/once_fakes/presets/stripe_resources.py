"""What there is in Stripe's API v1 as it is played here: paths, the fields that are read, and others that are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from once_fakes.presets.fields import Field, flaw, text, whole
from once_fakes.reply import Refusal

_REASONS = ("duplicate", "fraudulent", "requested_by_customer")
_METADATA = Field("metadata", lambda value: isinstance(value, dict) or value == "", "a hash", needed=False)
_PRICE = (whole("amount"), text("currency", longest=3))
_DECLINED = ("tok_chargeDeclined", "pm_card_chargeDeclined")
"""What Stripe offers for testing a card that is declined."""


@dataclass(frozen=True, slots=True)
class Resource:
    """What lives at a path: its name, how its ids begin, its fields, and parameters that are taken unread.

    filters: by what its list can be narrowed. searched: whether there is a search.
    """

    path: str
    name: str
    prefix: str
    fields: tuple[Field, ...]
    others: str
    filters: tuple[str, ...]
    searched: bool

    @property
    def operation(self) -> str:
        return f"POST {self.path}"

    def wrong(self, payload: dict[str, Any]) -> Refusal | None:
        """Why a request to make one of these is invalid, or declined."""
        known = {*(one.path for one in self.fields), *self.others.split()}
        for name in payload:
            if name not in known:
                return Refusal("parameter_unknown", 400, f"there is no parameter {name}", name)
        if self.name == "refund" and not ("charge" in payload or "payment_intent" in payload):
            return Refusal("field_missing", 400, "a refund needs one of charge and payment_intent")
        invalid = flaw(payload, self.fields)
        if invalid is not None:
            return invalid
        method = payload.get("source") or payload.get("payment_method")
        confirmed = self.name == "charge" or payload.get("confirm") == "true"
        if confirmed and method in _DECLINED:
            return Refusal("declined", 402, "Your card was declined.")
        return None


REFUNDS = Resource(
    "/v1/refunds",
    "refund",
    "re",
    (
        text("charge", needed=False),
        text("payment_intent", needed=False),
        whole("amount", needed=False),
        Field("reason", lambda value: value in _REASONS, f"one of {', '.join(_REASONS)}", needed=False),
        _METADATA,
    ),
    "customer currency expand instructions_email origin refund_application_fee reverse_transfer",
    ("charge", "payment_intent"),
    False,
)
CHARGES = Resource(
    "/v1/charges",
    "charge",
    "ch",
    (*_PRICE, text("source", needed=False), text("customer", needed=False), _METADATA),
    "capture description expand receipt_email shipping statement_descriptor transfer_group",
    ("customer", "payment_intent"),
    True,
)
INTENTS = Resource(
    "/v1/payment_intents",
    "payment_intent",
    "pi",
    (*_PRICE, text("payment_method", needed=False), text("customer", needed=False), _METADATA),
    "automatic_payment_methods capture_method confirm confirmation_method description expand off_session"
    " payment_method_types receipt_email return_url setup_future_usage shipping statement_descriptor transfer_group",
    ("customer",),
    True,
)
RESOURCES = {resource.path: resource for resource in (REFUNDS, CHARGES, INTENTS)}
