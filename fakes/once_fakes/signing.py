"""How a fake provider signs its webhooks, so that handlers verify them with the code that they have."""

from __future__ import annotations

import base64
import hashlib
import hmac

WEBHOOK_SECRET = "whsec_b25jZS1jaGFvcyB0ZXN0IHNlY3JldCAwMDAx"
"""The secret of all fakes, in the form of Standard Webhooks: the part behind "whsec_" is base64 of the key."""


def secret_key(secret: str = WEBHOOK_SECRET) -> bytes:
    """The bytes that a secret stands for."""
    return base64.b64decode(secret.removeprefix("whsec_"))


def standard_headers(identifier: str, timestamp_s: int, content: bytes) -> dict[str, str]:
    """webhook-id, webhook-timestamp and webhook-signature, an HMAC-SHA256 over the three.

    As https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md says.
    """
    signed = f"{identifier}.{timestamp_s}.".encode() + content
    signature = base64.b64encode(hmac.new(secret_key(), signed, hashlib.sha256).digest()).decode("ascii")
    return {
        "webhook-id": identifier,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": f"v1,{signature}",
    }
