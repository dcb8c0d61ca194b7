"""What a provider promises about repeated requests and look-ups, as parameters."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from math import isfinite
from typing import Literal, get_args

Dedup = Literal["none", "client_key", "natural_key", "content_window"]
OnMismatch = Literal["error", "replay", "execute"]
OnMissingKey = Literal["execute", "error"]
Atomicity = Literal["atomic", "effect_first", "record_first"]
Lookup = Literal["none", "by_client_ref", "by_key", "list_only"]

_CHOICES = (
    ("dedup", Dedup),
    ("on_mismatch", OnMismatch),
    ("on_missing_key", OnMissingKey),
    ("atomicity", Atomicity),
    ("lookup", Lookup),
)
_KEYED = ("client_key", "natural_key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """A provider's idempotency promises. Instants and spans are in seconds of the calling process's time.

    dedup: what a repetition is recognised by. "none": nothing, every request acts; "client_key": the client's key;
    "natural_key": an identity in the payload, so a second effect of it is refused; "content_window": the same
    operation and payload within window_s, which is refused.
    key_header: the HTTP header carrying the client's key.
    on_mismatch: a client's key is known, with another operation or payload: "error" refuses with the HTTP status
    mismatch_status, "replay" answers with the stored reply, "execute" acts, and the key then belongs to the
    newer request.
    on_missing_key: a request without client's or natural key: "execute" acts, "error" refuses with the HTTP status
    missing_key_status.
    replay_header: set to "true" on replayed replies.
    retention_s: how long a receipt is kept; a repetition later than that acts anew. None: for ever.
    natural_key_field: the payload's field (or dotted path) that is the identity within one operation.
    window_s: how long the same content counts as a repetition.
    conflict_status: the HTTP status that refuses a second natural key or a repeated content.
    atomicity: "atomic": effect and receipt commit together; "effect_first", "record_first": one commits before the
    other, and the provider may die between.
    lookup: what it answers when asked what it did. "none": nothing; "list_only": a list; "by_client_ref", "by_key":
    also one effect, by its id or by the payload's reference_field or the client's key.
    visibility_lag_s: look-ups do not show an effect before it is this old.
    reference_field: the payload's field (or dotted path) that is the client's reference.

    Raises ValueError for a value that is not one of these, or that has no meaning beside the others.
    """

    name: str
    dedup: Dedup = "client_key"
    key_header: str = "Idempotency-Key"
    on_mismatch: OnMismatch = "error"
    mismatch_status: int = 422
    on_missing_key: OnMissingKey = "execute"
    missing_key_status: int = 400
    replay_header: str = "Idempotent-Replayed"
    retention_s: float | None = None
    natural_key_field: str | None = None
    window_s: float | None = None
    conflict_status: int = 409
    atomicity: Atomicity = "atomic"
    lookup: Lookup = "none"
    visibility_lag_s: float = 0.0
    reference_field: str = "client_ref"

    def __post_init__(self) -> None:
        for field, valid in _CHOICES:
            if getattr(self, field) not in get_args(valid):
                names = ", ".join(repr(name) for name in get_args(valid))
                raise ValueError(f"{field} must be one of {names}, not {getattr(self, field)!r}")
        for field in ("name", "key_header", "replay_header", "reference_field"):
            value = getattr(self, field)
            if not isinstance(value, str) or not value:
                raise ValueError(f"{field} must be a text that is not empty, not {value!r}")
        for field in ("mismatch_status", "missing_key_status", "conflict_status"):
            status = getattr(self, field)
            if type(status) is not int or not 400 <= status <= 599:
                raise ValueError(f"{field} must be an error status from 400 to 599, not {status!r}")
        for field, lowest in (("retention_s", "above 0"), ("window_s", "above 0"), ("visibility_lag_s", "0 or more")):
            self._check_span(field, lowest)
        self._check_together()

    def _check_span(self, field: str, lowest: str) -> None:
        span = getattr(self, field)
        if span is None and field != "visibility_lag_s":
            return
        number = type(span) in (int, float) and isfinite(span)
        if not number or span < 0 or (span == 0 and lowest == "above 0"):
            raise ValueError(f"{field} must be a number of seconds, {lowest}, not {span!r}")
        # 60 and 60.0 are equal, so they must have the same JSON.
        object.__setattr__(self, field, float(span))

    def _check_together(self) -> None:
        if self.dedup not in _KEYED and self.on_missing_key == "error":
            raise ValueError(
                "on_missing_key='error' needs dedup='client_key' or 'natural_key': else no key is looked at"
            )
        if self.dedup not in _KEYED and self.retention_s is not None:
            raise ValueError(
                "retention_s needs dedup='client_key' or 'natural_key': else there is no receipt to keep"
                " (dedup='content_window' has window_s)"
            )
        if self.dedup == "none" and self.atomicity != "atomic":
            raise ValueError(f"atomicity={self.atomicity!r} needs a dedup: without receipt there is nothing between")
        if (self.dedup == "content_window") != (self.window_s is not None):
            raise ValueError("window_s and dedup='content_window' need each other: how long is content a repetition?")
        named = isinstance(self.natural_key_field, str) and bool(self.natural_key_field)
        if (self.dedup == "natural_key") != named or (not named and self.natural_key_field is not None):
            raise ValueError(
                "natural_key_field, a text that is not empty, and dedup='natural_key' need each other:"
                " which field is the identity?"
            )
        if self.lookup == "none" and self.visibility_lag_s:
            raise ValueError("visibility_lag_s needs a lookup: else nobody can see what is late")

    @property
    def keeps_time(self) -> bool:
        """Whether answers depend on the time, so that the ledger must be told it before each request."""
        return self.retention_s is not None or self.window_s is not None or self.visibility_lag_s > 0

    def to_json(self) -> str:
        """The contract as JSON text, equal for equal contracts."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Contract:
        """The contract that `to_json` wrote. Raises ValueError if the text is not one."""
        return _from_json(text)

    def assumptions(self) -> tuple[str, ...]:
        """What a verdict takes for granted about the provider, as sentences for a report."""
        return tuple(f"{self.name}: {sentence}" for sentence in (*self._on_repetition(), *self._on_lookup()))

    def _on_repetition(self) -> tuple[str, ...]:
        if self.dedup == "none":
            return ("every request acts; the provider does not recognise repeated ones",)
        commit = {
            "atomic": "effect and receipt commit in one transaction",
            "effect_first": "the effect commits before its receipt, and the provider may die between",
            "record_first": "the receipt commits before its effect, and the provider may die between",
        }[self.atomicity]
        missing = "acts" if self.on_missing_key == "execute" else f"is refused with {self.missing_key_status}"
        if self.window_s is not None:
            return (
                f"{commit}; the same operation and payload within {_span(self.window_s)} is refused with"
                f" {self.conflict_status}, and acts anew after that",
            )
        if self.dedup == "natural_key":
            freed = "" if self.retention_s is None else f" for {_span(self.retention_s)}, and acts anew after that"
            return (
                f"{commit}; a second request to one operation with the same {self.natural_key_field} is refused with"
                f" {self.conflict_status}{freed}",
                f"a request without {self.natural_key_field} {missing}",
            )
        lifetime = (
            "receipts never expire"
            if self.retention_s is None
            else f"receipts live {_span(self.retention_s)}, and a repetition after that acts anew"
        )
        mismatch = {
            "error": f"is refused with {self.mismatch_status}",
            "replay": "gets the first reply again",
            "execute": "acts, and the key then belongs to it",
        }[self.on_mismatch]
        return (
            f"{commit}; {lifetime}; the same key with another payload {mismatch}",
            f"a request without {self.key_header} {missing}",
        )

    def _on_lookup(self) -> tuple[str, ...]:
        if self.lookup == "none":
            return ()
        found = {
            "by_client_ref": f"effects can be listed, and found by id or by {self.reference_field}",
            "by_key": f"effects can be listed, and found by id or by {self.key_header}",
            "list_only": "effects can be listed, not found one by one",
        }[self.lookup]
        lag = f"once they are {_span(self.visibility_lag_s)} old" if self.visibility_lag_s else "at once"
        return (f"{found}; look-ups show them {lag}",)


def _span(seconds: float) -> str:
    """A span as a person says it: "30 s", "5 min", "24 h", "30 d"."""
    for length_s, unit, least in ((86400, "d", 2), (3600, "h", 1), (60, "min", 2)):
        if seconds % length_s == 0 and seconds >= least * length_s:
            return f"{seconds / length_s:g} {unit}"
    return f"{seconds:g} s"


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

CLIENT_KEY_24H = Contract(name="client_key_24h", retention_s=86400.0)
"""The client's key is remembered for 24 h; a repetition after that acts anew."""


@dataclass(frozen=True, slots=True)
class Contracts:
    """The contracts that have a name."""

    none: Contract = NONE
    client_key: Contract = CLIENT_KEY
    client_key_24h: Contract = CLIENT_KEY_24H


contracts = Contracts()


def contract_named(name: str) -> Contract:
    """The contract of that name. Raises ValueError, naming the valid ones, if there is none."""
    valid = tuple(field.name for field in fields(Contracts))
    if name not in valid:
        raise ValueError(f"there is no contract {name!r}; valid names are {', '.join(valid)}")
    contract: Contract = getattr(contracts, name)
    return contract
