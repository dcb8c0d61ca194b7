"""What the documents of several providers have in common: JSON objects, and instants that do not depend on a clock."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from once_fakes.dialect import Request, read_payload
from once_fakes.reply import Refusal

_FIRST = datetime(2026, 1, 1, tzinfo=UTC)


def json_object(request: Request) -> dict[str, Any] | Refusal:
    """The body as a JSON object, whatever its content type says it is; a Refusal ("malformed") if it is none."""
    payload = read_payload(replace(request, headers={**request.headers, "content-type": "application/json"}))
    if isinstance(payload, (dict, Refusal)):
        return payload
    return Refusal("malformed", 400, "the body must be a JSON object")


def json_request(
    method: str, path: str, body: object, headers: Mapping[str, str] | None = None, query: str = ""
) -> Request:
    """A request with a JSON body."""
    sent = {"content-type": "application/json", **(headers or {})}
    return Request(method, path, query, sent, json.dumps(body).encode("ascii"))


def instant(number: int) -> str:
    """When a provider's number-th effect is said to have happened: documents are state, so no clock may be in them."""
    return (_FIRST + timedelta(minutes=number)).strftime("%Y-%m-%dT%H:%M:%SZ")
