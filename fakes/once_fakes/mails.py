"""What a mail asks for, without what is one attempt's own: the payload of its effect."""

from __future__ import annotations

from email.message import Message
from email.parser import BytesParser
from typing import Any

_OF_ONE_ATTEMPT = frozenset({"message-id", "date", "received", "dkim-signature"})
_OF_THE_ENCODING = frozenset({"content-type", "content-transfer-encoding", "mime-version"})
"""What they say is in the content; a boundary between parts is made anew for each mail."""


def mail_payload(sender: str, recipients: list[str], content: bytes, key_field: str | None = None) -> dict[str, Any]:
    """The payload of a mail: its envelope, its headers with names in small letters, its content or its parts.

    key_field: a header (any case) that stands by itself in the payload, under this very name; so a header that is
    left out otherwise, such as Message-ID, can be the logical key.
    """
    message = BytesParser().parsebytes(content)
    headers: dict[str, Any] = {}
    named: dict[str, Any] = {}
    for name, value in message.items():
        text = " ".join(str(value).split())
        if key_field is not None and name.lower() == key_field.lower():
            named[key_field] = text
        elif name.lower() not in _OF_ONE_ATTEMPT | _OF_THE_ENCODING:
            known = headers.get(name.lower())
            headers[name.lower()] = text if known is None else [*(known if isinstance(known, list) else [known]), text]
    return {
        **named,
        "envelope": {"from": sender, "to": recipients},
        "headers": headers,
        "content": _content(message),
    }


def _content(message: Message) -> Any:
    """Text, bytes, or the list of parts with type and file name."""
    if message.is_multipart():
        parts = [part for part in message.get_payload() if isinstance(part, Message)]
        return [
            {"type": part.get_content_type(), "filename": part.get_filename(), "content": _content(part)}
            for part in parts
        ]
    found = message.get_payload(decode=True)
    data = found if isinstance(found, bytes) else b""
    if message.get_content_maintype() != "text":
        return data
    try:
        return data.decode(message.get_content_charset("utf-8")).replace("\r\n", "\n")
    except (LookupError, UnicodeDecodeError):
        return data
