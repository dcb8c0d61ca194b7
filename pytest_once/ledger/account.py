"""Who sends a request, without keeping what it authenticates with."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

ACCOUNT_HEADER = "once-account"
"""Header of a held request: who sent it, in place of the credentials, which are not kept."""


_NONE = ("", "basic", "bearer")


def account_of(headers: Mapping[str, str]) -> str:
    """Who sends a request: a digest of what it authenticates with, "" if with nothing. headers: names in small."""
    kept = headers.get(ACCOUNT_HEADER)
    credentials = (headers.get("authorization") or headers.get("x-api-key") or "").strip()
    if kept is not None or credentials.lower() in _NONE:
        return kept or ""
    return hashlib.sha256(credentials.encode()).hexdigest()[:12]
