"""HTTP as a provider reads it: every transport ends here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from email import policy
from email.parser import BytesParser
from urllib.parse import parse_qsl

from once_fakes.arriving import Between, arrive
from once_fakes.contract import Contract
from once_fakes.looking import answer_get
from once_fakes.reply import Reply, turn_away
from pytest_once.boundaries import STALE_HEADER
from pytest_once.ledger import Ledger, canonical_payload

MAX_BODY_BYTES = 1024 * 1024
"""Largest request body that is read."""

ACTING_METHODS = ("POST", "PUT", "PATCH", "DELETE")
_ASKING_METHODS = ("GET", "HEAD")


def handle_http(
    ledger: Ledger,
    provider: str,
    contract: Contract,
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: bytes,
    between: Between | None = None,
) -> Reply:
    """Answer an HTTP request to the provider.

    path: below the provider's address, still percent-encoded. A query becomes the payload's field "?". Of the
    headers only the content type, the contract's key header and STALE_HEADER are read; none is stored but the key.
    between: see `arrive`.
    """
    if method.upper() in _ASKING_METHODS and contract.lookup != "none":
        stale = any(name.lower() == STALE_HEADER and value == "1" for name, value in headers.items())
        return answer_get(ledger, provider, path.partition("?")[0], stale)
    understood = understand(contract, method, path, headers, body)
    if isinstance(understood, Reply):
        return understood
    if between is None:
        return arrive(ledger, provider, *understood)
    return arrive(ledger, provider, *understood, between)


def understand(
    contract: Contract, method: str, path: str, headers: Mapping[str, str], body: bytes
) -> tuple[str, str, str | None] | Reply:
    """An acting request's operation, payload (canonical JSON) and key; or the reply that turns it away."""
    method = method.upper()
    if method not in ACTING_METHODS:
        allowed = ACTING_METHODS if contract.lookup == "none" else (*_ASKING_METHODS, *ACTING_METHODS)
        why = ": this contract has no look-up" if method in _ASKING_METHODS else ""
        return turn_away(
            405, "method_not_allowed", f"{method} is not answered here{why}", {"allow": ", ".join(allowed)}
        )
    if len(body) > MAX_BODY_BYTES:
        return body_too_large()
    by_name = {name.lower(): value for name, value in headers.items()}
    path, _, query = path.partition("?")
    try:
        payload = _payload_of(by_name.get("content-type", ""), body)
        if query:
            named = payload if isinstance(payload, dict) else {} if payload is None else {"body": payload}
            payload = {**named, "?": _form(query)}
        canonical = canonical_payload(payload)
    except (ValueError, RecursionError) as error:
        return turn_away(400, "malformed_body", f"the body cannot be read as its content type says: {error}")
    return f"{method} {path or '/'}", canonical, by_name.get(contract.key_header.lower())


def body_too_large() -> Reply:
    """The refusal of a body above MAX_BODY_BYTES."""
    return turn_away(413, "request_too_large", f"the body is larger than {MAX_BODY_BYTES} bytes")


def _payload_of(content_type: str, body: bytes) -> object:
    media_type = content_type.partition(";")[0].strip().lower()
    if not body:
        return None
    if media_type == "application/json" or media_type.endswith("+json"):
        return json.loads(body, parse_constant=_no_such_constant)
    if media_type == "application/x-www-form-urlencoded":
        return _form(body.decode())
    if media_type == "multipart/form-data":
        return _parts(content_type, body)
    if media_type.startswith("text/"):
        return {"text": body.decode()}
    return body


def _parts(content_type: str, body: bytes) -> object:
    """The fields of a multipart form: what stands between them is made anew for each request and means nothing."""
    message = BytesParser(policy=policy.HTTP).parsebytes(b"content-type: " + content_type.encode() + b"\r\n\r\n" + body)
    if not message.is_multipart():
        raise ValueError("its parts cannot be told apart")
    parts = []
    for part in message.iter_parts():
        content = part.get_payload(decode=True)
        parts.append(
            {
                "name": part.get_param("name", header="content-disposition"),
                "filename": part.get_filename(),
                "type": part.get_content_type(),
                "content": content,
            }
        )
    return parts


def _no_such_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _form(text: str) -> dict[str, str | list[str]]:
    values: dict[str, list[str]] = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        values.setdefault(name, []).append(value)
    return {name: found[0] if len(found) == 1 else found for name, found in values.items()}
