"""Who sends a request, and in which region, without keeping what it authenticates with."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

ACCOUNT_HEADER = "once-account"
"""Header of a held request: who sent it, in place of the credentials, which are not kept."""
REGION_HEADER = "once-region"
"""Header of a held request: the region that it was signed for."""

_NONE = ("", "basic", "bearer")
_CREDENTIALS = ("authorization", "x-api-key", "x-postmark-server-token")
# A signature differs with every attempt; the key's id and the region in front of it do not.
_SIGNED = re.compile(r"AWS4-HMAC-SHA256 .*?Credential=([^/,\s]+)/\d+/([^/,\s]+)/")


def account_of(headers: Mapping[str, str]) -> str:
    """Who sends a request: a digest of what it authenticates with, "" if with nothing. headers: names in small."""
    kept = headers.get(ACCOUNT_HEADER)
    credentials = next((headers[name] for name in _CREDENTIALS if headers.get(name)), "").strip()
    if kept is not None or credentials.lower() in _NONE:
        return kept or ""
    signed = _SIGNED.match(credentials)
    shown = signed[1] if signed else credentials
    return hashlib.sha256(shown.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def region_of(headers: Mapping[str, str]) -> str:
    """The region that a request is signed for, or that REGION_HEADER says; "" for none."""
    kept = headers.get(REGION_HEADER)
    signed = _SIGNED.match(headers.get("authorization", ""))
    return kept if kept is not None else signed[2] if signed else ""
