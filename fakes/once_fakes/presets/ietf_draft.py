"""A resource that keeps to the IETF's draft of the header `Idempotency-Key`.

Source: https://www.ietf.org/archive/id/draft-ietf-httpapi-idempotency-key-header-07.html: the key is a Structured Field
String, in quotation marks (section 2.1); the resource publishes how long keys are kept (2.3), so nothing is known of it
in general; a repetition gets the result of the completed request, success or error (2.6); a missing key is 400, a key
used with another payload 422, one of a request still outstanding 409 (2.7), in the problem documents of RFC 9457
(https://www.rfc-editor.org/rfc/rfc9457). A field that is no Structured Field String is ignored as a whole, so counts
as missing (RFC 8941, section 4.2, https://www.rfc-editor.org/rfc/rfc8941).

Not modelled: resources that do not require the key, the header `Link`, `Retry-After`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from once_fakes.contract import Contract
from once_fakes.dialect import Act, Ask, Dialect, Request, Tend
from once_fakes.presets.documents import json_request
from once_fakes.reply import Refusal, Reply

TYPE = "https://developer.example.com/idempotency"
"""The resource's page on how to use keys."""

_STRING = re.compile(r'\s*"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"\s*(?:;[\x20-\x7e]*)?')
_TITLES = {
    "key_missing": "Idempotency-Key is missing",
    "key_too_long": "Idempotency-Key is too long",
    "key_unusable": "Idempotency-Key cannot be used",
    "mismatch": "Idempotency-Key is already used",
    "concurrent": "A request is outstanding for this Idempotency-Key",
}


class IetfDraft(Dialect):
    """Any path; what is posted there is done."""

    source = "https://www.ietf.org/archive/id/draft-ietf-httpapi-idempotency-key-header-07.html"
    not_modelled = "resources that do not require the key, the header Link"

    def understand(self, contract: Contract, request: Request) -> Act | Ask | Tend | Refusal:
        understood = super().understand(contract, request)
        return replace(understood, key=_key(understood.key)) if isinstance(understood, Act) else understood

    def refusal(self, contract: Contract, refusal: Refusal) -> tuple[int, dict[str, Any]]:
        title = _TITLES.get(refusal.kind, refusal.kind.replace("_", " ").capitalize())
        kind = TYPE if refusal.kind in _TITLES else "about:blank"
        return refusal.status, {"type": kind, "title": title, "status": refusal.status, "detail": refusal.message}

    def reply(
        self,
        status: int,
        body: dict[str, Any],
        outcome: str,
        *,
        headers: Mapping[str, str] | None = None,
        arrival: int | None = None,
    ) -> Reply:
        sent = dict(headers or {})
        if status >= 400:
            sent |= {"content-type": "application/problem+json", "content-language": "en"}
        return super().reply(status, body, outcome, headers=sent, arrival=arrival)

    def example(self, contract: Contract, key: str | None, variant: int = 0) -> Request:
        headers = {} if key is None else {"idempotency-key": '"' + re.sub(r'(["\\])', r"\\\1", key) + '"'}
        return json_request("POST", "/payments", {"amount": 100 + variant, "order": key}, headers)


IETF = IetfDraft()

IETF_DRAFT = Contract(
    name="ietf_draft",
    dialect="once_fakes.presets.ietf_draft:IETF",
    on_concurrent="reject",
    on_missing_key="error",
    stored_outcomes="all",
    replay_header="",
    retention_s="unspecified",
)
"""The key is required; every result is kept, for a time that each resource publishes for itself."""


def _key(field: str | None) -> str | None:
    found = None if field is None else _STRING.fullmatch(field)
    return None if found is None else re.sub(r"\\(.)", r"\1", found[1])
