"""What the agent means to do, identified in business terms."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass


class ConflictingArguments(Exception):
    """A known key arrived with other arguments: another action under the same name, so it is refused."""


@dataclass(frozen=True, slots=True)
class Intent:
    """Reserve `quantity` of `part` for `tenant`; `action` names the decision, not the attempt."""

    tenant: str
    action: str
    part: str
    quantity: int

    def __post_init__(self) -> None:
        # Otherwise ("a:b", "c") and ("a", "b:c") would share a key.
        if ":" in self.tenant:
            raise ValueError(f"a tenant cannot contain ':', got {self.tenant!r}")

    @property
    def key(self) -> str:
        return f"{self.tenant}:{self.action}"

    @property
    def fingerprint(self) -> str:
        """Digest of the arguments the key stands for."""
        arguments = json.dumps({"part": self.part, "quantity": self.quantity}, sort_keys=True)
        return hashlib.sha256(arguments.encode()).hexdigest()
