"""Request bodies as JSON values."""

from __future__ import annotations

import json
from email import policy
from email.parser import BytesParser
from typing import Any
from urllib.parse import parse_qsl

from pytest_once.ledger import canonical_payload


def payload_of(content_type: str, body: bytes) -> Any:
    """The body as its content type says: JSON, form fields, parts, text, else bytes; None if it is empty.

    Raises ValueError or RecursionError if it is not what its content type says.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    if not body:
        return None
    if media_type == "application/json" or media_type.endswith("+json"):
        return json.loads(body, parse_constant=_no_such_constant)
    if media_type == "application/x-www-form-urlencoded":
        return form_of(body.decode())
    if media_type == "multipart/form-data":
        return _parts(content_type, body)
    if media_type.startswith("text/"):
        return {"text": body.decode()}
    return body


def form_of(text: str) -> dict[str, str | list[str]]:
    """Form fields by name; a list for one that occurs more than once."""
    values: dict[str, list[str]] = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        values.setdefault(name, []).append(value)
    return {name: found[0] if len(found) == 1 else found for name, found in values.items()}


def field_text(value: object, path: str | None) -> str | None:
    """What a payload holds in the field of that name, or along a dotted path: text, or canonical JSON of a value."""
    if path is None:
        return None
    found: object = value
    if isinstance(value, dict) and path in value:
        found = value[path]
    else:
        for part in path.split("."):
            found = found.get(part) if isinstance(found, dict) else None
    return found if found is None or isinstance(found, str) else canonical_payload(found)


def _parts(content_type: str, body: bytes) -> object:
    """The fields of a multipart form: what stands between them is made anew for each request and means nothing."""
    message = BytesParser(policy=policy.HTTP).parsebytes(b"content-type: " + content_type.encode() + b"\r\n\r\n" + body)
    if not message.is_multipart():
        raise ValueError("its parts cannot be told apart")
    return [
        {
            "name": part.get_param("name", header="content-disposition"),
            "filename": part.get_filename(),
            "type": part.get_content_type(),
            "content": part.get_payload(decode=True),
        }
        for part in message.iter_parts()
    ]


def _no_such_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
