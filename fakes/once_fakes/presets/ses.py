"""Amazon SES, version 2 of its API: SendEmail, which has no idempotency key.

Not modelled: see `Ses.not_modelled`. Sources: `Ses.source`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from once_fakes.contract import Contract
from once_fakes.dialect import Act, Ask, Dialect, Request, Shown
from once_fakes.presets.bodies import uuid_of
from once_fakes.presets.documents import json_object
from once_fakes.reply import Refusal, Reply

_PATH = "/v2/email/outbound-emails"
_TYPES = {
    "unauthorized": "MissingAuthenticationTokenException",
    "unknown_path": "UnknownOperationException",
    "method_not_allowed": "UnknownOperationException",
    "malformed": "SerializationException",
    "too_large": "RequestEntityTooLargeException",
    "declined": "MessageRejected",
    "failed": "InternalServiceErrorException",
    "unavailable": "ServiceUnavailableException",
}
_SIGNED = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20300101/us-east-1/ses/aws4_request, SignedHeaders=host, Signature=0"


class Ses(Dialect):
    """POST /v2/email/outbound-emails."""

    source = (
        "https://docs.aws.amazon.com/ses/latest/APIReference-V2/API_SendEmail.html"
        " https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/AboutTimestamp.html"
    )
    not_modelled = (
        "the query API of version 1; signatures are not checked; templates, raw messages, suppression and verified"
        " identities are not looked at; event destinations do not exist, so nobody can ask what was sent"
    )

    def understand(self, contract: Contract, request: Request) -> Act | Ask | Refusal:
        if not request.account:
            return Refusal("unauthorized", 403, "Missing Authentication Token")
        if request.path.rstrip("/") != _PATH:
            return Refusal("unknown_path", 404, f"Unable to determine service/operation name for {request.path}")
        if request.method != "POST":
            return Refusal("method_not_allowed", 405, f"{request.method} is not supported for this operation")
        payload = json_object(request)
        if isinstance(payload, Refusal):
            return payload
        return Act(f"POST {_PATH}", payload, invalid=_invalid(payload), account=request.account, region=request.region)

    def document(self, contract: Contract, shown: Shown) -> dict[str, Any]:
        return {"MessageId": f"0100{shown.number:012x}-{uuid_of(shown.number)}-000000"}

    def identifier(self, contract: Contract, shown: Shown) -> str:
        return str(self.document(contract, shown)["MessageId"])

    def refusal(self, contract: Contract, refusal: Refusal) -> tuple[int, dict[str, Any]]:
        kind = _TYPES.get(refusal.kind, "BadRequestException")
        return refusal.status, {"__type": kind, "message": refusal.message}

    def reply(
        self,
        status: int,
        body: dict[str, Any],
        outcome: str,
        *,
        headers: Mapping[str, str] | None = None,
        arrival: int | None = None,
    ) -> Reply:
        marks = {"x-amzn-errortype": body["__type"]} if "__type" in body else {}
        if arrival is not None:
            marks["x-amzn-requestid"] = uuid_of(arrival)
        return super().reply(status, body, outcome, headers={**(headers or {}), **marks}, arrival=arrival)

    def example(self, contract: Contract, key: str | None, variant: int = 0) -> Request:
        content = {"Subject": {"Data": f"Receipt {key}"}, "Body": {"Text": {"Data": f"You paid {100 + variant}."}}}
        mail = {
            "FromEmailAddress": "billing@acme.test",
            "Destination": {"ToAddresses": ["ada@example.test"]},
            "Content": {"Simple": content},
        }
        headers = {"content-type": "application/json", "authorization": _SIGNED}
        return Request("POST", _PATH, "", headers, json.dumps(mail).encode("ascii"))

    def example_lookup(self, contract: Contract, reference: str | None) -> Request:
        return Request("GET", _PATH, "", {"authorization": _SIGNED}, b"")


def _invalid(mail: dict[str, Any]) -> Refusal | None:
    content = mail.get("Content")
    if not isinstance(content, dict) or not any(content.get(name) for name in ("Simple", "Raw", "Template")):
        return Refusal("invalid", 400, "1 validation error detected: Value at 'content' must not be null", "Content")
    if content.get("Raw"):
        return None  # it names sender and recipients itself
    sender = mail.get("FromEmailAddress")
    if not isinstance(sender, str) or "@" not in sender:
        return Refusal("invalid", 400, "Missing or illegal FromEmailAddress", "FromEmailAddress")
    destination = mail.get("Destination")
    lists = destination if isinstance(destination, dict) else {}
    addresses: list[Any] = []
    for name in ("ToAddresses", "CcAddresses", "BccAddresses"):
        found = lists.get(name)
        addresses += found if isinstance(found, list) else [] if found is None else [found]
    if not addresses or not all(isinstance(one, str) and "@" in one for one in addresses):
        return Refusal("invalid", 400, "Missing or illegal recipients in Destination", "Destination")
    simple = content.get("Simple")
    if simple is None:
        return None
    body = simple.get("Body") if isinstance(simple, dict) else None
    parts = [body.get("Text"), body.get("Html")] if isinstance(body, dict) else []
    if not isinstance(simple, dict) or not _has_data(simple.get("Subject")) or not any(map(_has_data, parts)):
        return Refusal("invalid", 400, "Simple content needs a Subject and a Body with Text or Html", "Content")
    return None


def _has_data(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("Data"), str)


DIALECT = Ses()

SES = Contract(
    name="ses",
    dialect="once_fakes.presets.ses:DIALECT",
    dedup="none",
    replay_header="",
    request_lifetime_s=900.0,
)
"""No idempotency key, and nobody can ask what was sent. A signature is good for 15 min."""
