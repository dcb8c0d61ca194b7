"""What a provider's contract promises: it decides whether a request may be sent again, and when absence is proven."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """All spans in seconds. The defaults promise nothing.

    key_retention_s: how long the provider remembers an idempotency key, from the first request on. 0: it knows no keys;
    math.inf: for ever. Give what is documented as the least.
    request_lifetime_s: how long a request may be on its way before it acts. math.inf: nobody knows.
    visibility_lag_s: how long an effect may be missing from look-ups. math.inf: nobody knows.

    Raises ValueError for a negative span, and for keys that are forgotten while a request may still arrive.
    """

    key_retention_s: float = 0.0
    request_lifetime_s: float = math.inf
    visibility_lag_s: float = math.inf

    def __post_init__(self) -> None:
        for name in ("key_retention_s", "request_lifetime_s", "visibility_lag_s"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name}={getattr(self, name)!r}: give seconds, 0 or more (math.inf for no end)")
        if 0 < self.key_retention_s < math.inf and self.request_lifetime_s >= self.key_retention_s:
            raise ValueError(
                f"key_retention_s={self.key_retention_s:g} with request_lifetime_s={self.request_lifetime_s:g}: a "
                "request that arrives when its key is forgotten acts anew; say how long a request may be on its way "
                "(request_lifetime_s), less than the keys are kept"
            )

    def resend_is_safe(self, sent_since: float, now: float) -> bool:
        """Whether a request under the same key, sent now, arrives while the provider remembers the first one."""
        if self.key_retention_s == math.inf:
            return True
        return now + self.request_lifetime_s < sent_since + self.key_retention_s

    def absence_proven_at(self, sent_until: float) -> float:
        """From when on "not found" means "not executed", if the last request was sent by `sent_until`."""
        return sent_until + self.request_lifetime_s + self.visibility_lag_s


NOTHING = Promise()
"""A provider of which nothing is known."""
