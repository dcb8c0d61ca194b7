"""Who asks a provider, told from a request's headers without the secret that proves it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

# A signature differs with every attempt; the key's id and the region in front of it do not.
_AWS_CREDENTIAL = re.compile(r"AWS4-HMAC-SHA256 .*?Credential=([^/,\s]+)/\d+/([^/,\s]+)/")
_API_KEY = re.compile(r"api-?key|(?:auth|access|server|account)[a-z-]*token")


def account_of(headers: Mapping[str, str]) -> str:
    """A digest of what a request authenticates with, "" if with nothing. headers: names in small letters.

    The header once-account says it instead.
    """
    told = headers.get("once-account")
    if told is not None:
        return told
    shown = headers.get("authorization")
    if shown is None:
        shown = "\n".join(value for name, value in sorted(headers.items()) if _API_KEY.search(name))
    credential = _AWS_CREDENTIAL.match(shown)
    shown = credential[1] if credential else shown
    return hashlib.sha256(shown.encode("utf-8", "surrogateescape")).hexdigest()[:12] if shown else ""


def region_of(headers: Mapping[str, str]) -> str:
    """The region that a request is signed for, or that the header once-region says; "" for none."""
    told = headers.get("once-region")
    if told is not None:
        return told
    credential = _AWS_CREDENTIAL.match(headers.get("authorization", ""))
    return credential[2] if credential else ""
