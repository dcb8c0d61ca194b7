"""What a provider promises about repeated requests, as parameters."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import Literal, get_args

Dedup = Literal["none", "client_key"]
OnMismatch = Literal["error", "replay", "execute"]
OnMissingKey = Literal["execute", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """A provider's idempotency promises.

    dedup: "none", every request acts; "client_key", a request repeats the one with the same key.
    key_header: the HTTP header carrying the client's key.
    on_mismatch: the key is known, with another operation or payload: "error" refuses with the HTTP status
    mismatch_status, "replay" answers with the stored reply, "execute" acts, and the key then belongs to the
    newer request.
    on_missing_key: a request without key: "execute" acts, "error" refuses with the HTTP status
    missing_key_status.
    replay_header: set to "true" on replayed replies.

    Raises ValueError for a value that is not one of these.
    """

    name: str
    dedup: Dedup = "client_key"
    key_header: str = "Idempotency-Key"
    on_mismatch: OnMismatch = "error"
    mismatch_status: int = 422
    on_missing_key: OnMissingKey = "execute"
    missing_key_status: int = 400
    replay_header: str = "Idempotent-Replayed"

    def __post_init__(self) -> None:
        for field, valid in (("dedup", Dedup), ("on_mismatch", OnMismatch), ("on_missing_key", OnMissingKey)):
            if getattr(self, field) not in get_args(valid):
                names = ", ".join(repr(name) for name in get_args(valid))
                raise ValueError(f"{field} must be one of {names}, not {getattr(self, field)!r}")
        for field in ("name", "key_header", "replay_header"):
            value = getattr(self, field)
            if not isinstance(value, str) or not value:
                raise ValueError(f"{field} must be a text that is not empty, not {value!r}")
        for field in ("mismatch_status", "missing_key_status"):
            status = getattr(self, field)
            if type(status) is not int or not 400 <= status <= 599:
                raise ValueError(f"{field} must be an error status from 400 to 599, not {status!r}")
        if self.dedup == "none" and self.on_missing_key == "error":
            raise ValueError("on_missing_key='error' needs dedup='client_key': else no key is looked at")

    def to_json(self) -> str:
        """The contract as JSON text, equal for equal contracts."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Contract:
        """The contract that `to_json` wrote. Raises ValueError if the text is not one."""
        return _from_json(text)

    def assumptions(self) -> tuple[str, ...]:
        """What a verdict takes for granted about the provider, as sentences for a report."""
        if self.dedup == "none":
            return (f"{self.name}: every request acts; the provider does not recognise repeated ones",)
        mismatch = {
            "error": f"is refused with {self.mismatch_status}",
            "replay": "gets the first reply again",
            "execute": "acts, and the key then belongs to it",
        }[self.on_mismatch]
        missing = {
            "execute": "acts",
            "error": f"is refused with {self.missing_key_status}",
        }[self.on_missing_key]
        return (
            f"{self.name}: effect and receipt commit in one transaction; receipts never expire;"
            f" the same key with another payload {mismatch}",
            f"{self.name}: a request without {self.key_header} {missing}",
        )


@lru_cache(maxsize=64)
def _from_json(text: str) -> Contract:
    values = json.loads(text)
    names = {field.name for field in fields(Contract)}
    if not isinstance(values, dict) or "name" not in values or not values.keys() <= names:
        raise ValueError(f"not a contract: {text}; a contract has the fields {', '.join(sorted(names))}")
    return Contract(**values)


NONE = Contract(name="none", dedup="none")
"""No promise at all: every request acts."""

CLIENT_KEY = Contract(name="client_key")
"""The client's key is remembered for ever; another payload under it is refused."""


@dataclass(frozen=True, slots=True)
class Contracts:
    """The contracts that have a name."""

    none: Contract = NONE
    client_key: Contract = CLIENT_KEY


contracts = Contracts()


def contract_named(name: str) -> Contract:
    """The contract of that name. Raises ValueError, naming the valid ones, if there is none."""
    valid = tuple(field.name for field in fields(Contracts))
    if name not in valid:
        raise ValueError(f"there is no contract {name!r}; valid names are {', '.join(valid)}")
    contract: Contract = getattr(contracts, name)
    return contract
