"""What a provider promises about repeated requests and look-ups, as parameters."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from math import isfinite
from typing import Literal, get_args

Dedup = Literal["none", "client_key", "natural_key", "conditional", "content_window", "session_sequence"]
Scope = Literal["account", "endpoint", "region", "session"]
OnMismatch = Literal["error", "replay", "execute", "unspecified"]
OnConcurrent = Literal["reject", "coalesce", "race", "unspecified"]
OnMissingKey = Literal["execute", "error"]
StoredOutcomes = Literal["success", "success_and_4xx", "all"]
RecordPoint = Literal["arrival", "validated", "completed"]
OnRetryAfterFailure = Literal["replay", "re_execute", "unspecified"]
ReplayBody = Literal["original", "current_state", "ack_only", "unspecified"]
Atomicity = Literal["atomic", "effect_first", "record_first"]
Lookup = Literal["none", "by_client_ref", "by_key", "list_only"]
Acceptance = Literal["sync", "async202"]
Fencing = Literal["none", "token"]
Webhooks = Literal["none", "at_least_once"]

UNSPECIFIED = "unspecified"

_CHOICES = (
    ("dedup", Dedup),
    ("on_mismatch", OnMismatch),
    ("on_missing_key", OnMissingKey),
    ("stored_outcomes", StoredOutcomes),
    ("record_point", RecordPoint),
    ("on_retry_after_failure", OnRetryAfterFailure),
    ("replay_body", ReplayBody),
    ("atomicity", Atomicity),
    ("lookup", Lookup),
    ("acceptance", Acceptance),
    ("fencing", Fencing),
    ("webhooks", Webhooks),
)
_ALTERNATIVES: dict[str, tuple[str, ...]] = {
    "on_mismatch": ("error", "replay", "execute"),
    "on_concurrent": ("reject", "coalesce", "race"),
    "on_retry_after_failure": ("replay", "re_execute"),
    "replay_body": ("original", "current_state", "ack_only"),
}
RETENTION_ALTERNATIVES = ("kept", "forgotten")
"""What may have become of a receipt whose promised retention is over, or was never promised."""

_STATUSES = (
    "mismatch_status",
    "missing_key_status",
    "conflict_status",
    "concurrent_status",
    "fence_status",
)
_NAMED_FIELDS = {
    "natural_key_field": ("dedup", "natural_key", "which field is the identity?"),
    "session_field": ("dedup", "session_sequence", "which field names the session?"),
    "sequence_field": ("dedup", "session_sequence", "which field numbers the requests of a session?"),
    "version_field": ("dedup", "conditional", "which field says the version that the request is for?"),
    "fence_field": ("fencing", "token", "which field carries the token?"),
}
_WITH_RECEIPTS = ("client_key", "natural_key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """A provider's idempotency promises. Instants and spans are in seconds of the calling process's time.

    A parameter that takes "unspecified" is then explored with each of its values: what is not documented is not
    assumed. The provider keeps to one of them through all lives of a schedule.

    name: what reports call it. dialect: the wire format, as "module:attribute" of a `once_fakes.dialect.Dialect`;
    "" is plain JSON.

    dedup: what a repetition is recognised by. "none": nothing, every request acts; "client_key": the client's key;
    "natural_key": an identity in the payload (natural_key_field), so a second effect of it is refused; "conditional":
    the version of the object at its path (version_field, or the headers If-Match and If-None-Match), which must be the
    present one; "content_window": the same operation and payload within window_s, which is refused;
    "session_sequence": a producer's session (session_field) and the number of the request in it (sequence_field): a
    number that is not new is acknowledged and dropped, one that leaves a gap is refused, a new session knows nothing.
    key_header: the HTTP header carrying the client's key; key_field: the payload's field (or dotted path) that
    carries it instead. max_key_length: in characters; a key is printable ASCII.
    scope: what else must be equal for two keys to be the same: "account" (who authenticates), "endpoint" (method and
    path), "region" (header Once-Region, or what the dialect says), "session" (header Once-Session, likewise).
    fingerprint_fields: payload fields compared under the same key, besides the operation; () compares all.
    on_mismatch: a client's key is known, with another operation or payload: "error" refuses with the HTTP status
    mismatch_status, "replay" answers with the stored reply, "execute" acts, and the key then belongs to the
    newer request.
    on_concurrent: a request with the key is still being worked on: "reject" refuses with concurrent_status,
    "coalesce" waits and answers with its result, "race" acts as well. None: the provider works on one request after the
    other, and the fault still-working is not explored.
    on_missing_key: a request without client's or natural key: "execute" acts, "error" refuses with the HTTP status
    missing_key_status.
    stored_outcomes: which answers the receipt keeps: "success", also refusals of the business ("success_and_4xx"), or
    "all", server errors included. on_retry_after_failure: what a repetition of a stored failure gets: "replay" the same
    failure, "re_execute" another try.
    record_point: when the key is taken: on "arrival", even of a request that turns out invalid; once it is "validated";
    or when the work is "completed", so that concurrent requests race.
    replay_body: what a repetition is answered: the "original" body, the "current_state" of the effect, or "ack_only",
    which names no effect. replay_header: set to "true" on replayed replies; "" for none.
    retention_s: how long a receipt is kept; a repetition later than that acts anew. None: for ever. (least, most):
    at any time between, or never if most is None. "unspecified": at any time.
    natural_key_field, session_field, sequence_field, version_field, fence_field: payload fields (or dotted paths).
    window_s: how long the same content counts as a repetition.
    conflict_status: the HTTP status that refuses a second natural key, a repeated content, a wrong version or a gap.
    atomicity: "atomic": effect and receipt commit together; "effect_first", "record_first": one commits before the
    other, and the provider may die between.
    lookup: what it answers when asked what it did. "none": nothing; "list_only": a list; "by_client_ref", "by_key":
    also one effect, by its id or by the payload's reference_field or the client's key.
    visibility_lag_s: look-ups do not show an effect before it is this old.
    reference_field: the payload's field (or dotted path) that is the client's reference.
    acceptance: "sync": the answer comes after the effect; "async202": it comes before, with status 202, and the effect
    is done completes_after_s later at the latest, or fails.
    request_lifetime_s: a request held up for longer does not arrive any more; None: it may arrive at any time.
    fencing: "token": a request whose fence_field is lower than one seen before is refused with fence_status.
    webhooks: "at_least_once": each effect that is done or has failed is told to the client until it acknowledges, in
    any order, perhaps before the response.

    Raises ValueError for a value that is not one of these, or that has no meaning beside the others.
    """

    name: str
    dialect: str = ""
    dedup: Dedup = "client_key"
    key_header: str = "Idempotency-Key"
    key_field: str | None = None
    max_key_length: int = 255
    scope: tuple[Scope, ...] = ()
    fingerprint_fields: tuple[str, ...] = ()
    on_mismatch: OnMismatch = "error"
    mismatch_status: int = 422
    on_concurrent: OnConcurrent | None = None
    concurrent_status: int = 409
    on_missing_key: OnMissingKey = "execute"
    missing_key_status: int = 400
    stored_outcomes: StoredOutcomes = "success"
    on_retry_after_failure: OnRetryAfterFailure = "replay"
    record_point: RecordPoint = "validated"
    replay_body: ReplayBody = "original"
    replay_header: str = "Idempotent-Replayed"
    retention_s: float | tuple[float, float | None] | Literal["unspecified"] | None = None
    natural_key_field: str | None = None
    session_field: str | None = None
    sequence_field: str | None = None
    version_field: str | None = None
    window_s: float | None = None
    conflict_status: int = 409
    atomicity: Atomicity = "atomic"
    lookup: Lookup = "none"
    visibility_lag_s: float = 0.0
    reference_field: str = "client_ref"
    acceptance: Acceptance = "sync"
    completes_after_s: float = 1.0
    request_lifetime_s: float | None = None
    fencing: Fencing = "none"
    fence_field: str | None = None
    fence_status: int = 409
    webhooks: Webhooks = "none"

    def __post_init__(self) -> None:
        for field, valid in _CHOICES:
            _check_choice(field, getattr(self, field), get_args(valid))
        if self.on_concurrent is not None:
            _check_choice("on_concurrent", self.on_concurrent, get_args(OnConcurrent))
        for field in ("name", "key_header", "reference_field"):
            value = getattr(self, field)
            if not isinstance(value, str) or not value:
                raise ValueError(f"{field} must be a text that is not empty, not {value!r}")
        for field in _STATUSES:
            status = getattr(self, field)
            if type(status) is not int or not (status == 200 or 400 <= status <= 599):
                raise ValueError(
                    f"{field} must be an error status from 400 to 599, or 200 where the body says it, not {status!r}"
                )
        if type(self.max_key_length) is not int or self.max_key_length < 1:
            raise ValueError(f"max_key_length must be 1 or more characters, not {self.max_key_length!r}")
        for part in self.scope:
            _check_choice("scope", part, get_args(Scope))
        for field in ("scope", "fingerprint_fields"):
            object.__setattr__(self, field, _texts(field, getattr(self, field)))
        for field in ("window_s", "request_lifetime_s"):
            if getattr(self, field) is not None:
                object.__setattr__(self, field, _span(field, getattr(self, field), above_zero=True))
        object.__setattr__(self, "visibility_lag_s", _span("visibility_lag_s", self.visibility_lag_s))
        object.__setattr__(self, "completes_after_s", _span("completes_after_s", self.completes_after_s))
        object.__setattr__(self, "retention_s", _retention(self.retention_s))
        self._check_together()

    def _check_together(self) -> None:
        receipts = self.dedup in _WITH_RECEIPTS
        if not receipts and self.dedup not in ("session_sequence", "conditional") and self.on_missing_key == "error":
            raise ValueError(
                "on_missing_key='error' needs dedup='client_key' or 'natural_key': else no key is looked at"
            )
        if not receipts and self.retention_s is not None:
            raise ValueError(
                "retention_s needs dedup='client_key' or 'natural_key': else there is no receipt to keep"
                " (dedup='content_window' has window_s)"
            )
        if self.dedup not in (*_WITH_RECEIPTS, "content_window") and self.atomicity != "atomic":
            raise ValueError(f"atomicity={self.atomicity!r} needs a dedup: without receipt there is nothing between")
        if (self.dedup == "content_window") != (self.window_s is not None):
            raise ValueError("window_s and dedup='content_window' need each other: how long is content a repetition?")
        for field, (parameter, value, why) in _NAMED_FIELDS.items():
            given = getattr(self, field)
            named = isinstance(given, str) and bool(given)
            if (getattr(self, parameter) == value) != named or (not named and given is not None):
                raise ValueError(f"{field}, a text that is not empty, and {parameter}={value!r} need each other: {why}")
        if self.lookup == "none" and self.visibility_lag_s:
            raise ValueError("visibility_lag_s needs a lookup: else nobody can see what is late")
        for field, plain in (
            ("on_concurrent", None),
            ("stored_outcomes", "success"),
            ("key_field", None),
            ("fingerprint_fields", ()),
            ("scope", ()),
        ):
            if self.dedup != "client_key" and getattr(self, field) != plain:
                raise ValueError(
                    f"{field}={getattr(self, field)!r} needs dedup='client_key': it is about client's keys"
                )
        if self.record_point == "completed" and self.on_concurrent not in (None, "race"):
            raise ValueError(
                f"record_point='completed' and on_concurrent={self.on_concurrent!r} contradict each other: a key that"
                " is taken only with the result cannot be found by a concurrent request, so they race"
            )
        if self.atomicity != "atomic" and (self.acceptance != "sync" or self.on_concurrent is not None):
            raise ValueError(
                f"atomicity={self.atomicity!r} goes with acceptance='sync' and on_concurrent=None only: two commits"
                " while the work is still going on are not modelled"
            )

    @property
    def keeps_time(self) -> bool:
        """Whether answers depend on the time, so that the ledger must be told it before each request."""
        return (
            self.retention_s is not None
            or self.window_s is not None
            or self.visibility_lag_s > 0
            or self.acceptance != "sync"
            or self.on_concurrent is not None
            or self.request_lifetime_s is not None
        )

    @property
    def unspecified(self) -> tuple[str, ...]:
        """The parameters that are explored both ways."""
        named = tuple(field for field in _ALTERNATIVES if getattr(self, field) == UNSPECIFIED)
        return (*named, "retention_s") if self.retention_s == UNSPECIFIED else named

    @property
    def asks(self) -> bool:
        """Whether the answer to a request may have to be decided by whoever explores."""
        return bool(self.unspecified) or isinstance(self.retention_s, tuple)

    def alternatives(self, parameter: str) -> tuple[str, ...]:
        """The values that a parameter stands for; what happens undisturbed comes first.

        Raises KeyError for a parameter that takes no "unspecified".
        """
        return _ALTERNATIVES[parameter]

    def to_json(self) -> str:
        """The contract as JSON text, equal for equal contracts."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Contract:
        """The contract that `to_json` wrote. Raises ValueError if the text is not one."""
        return _from_json(text)

    def assumptions(self) -> tuple[str, ...]:
        """What a verdict takes for granted about the provider, as sentences for a report."""
        from once_fakes.promises import promises

        return tuple(f"{self.name}: {sentence}" for _, sentence in promises(self))


def _check_choice(field: str, value: object, valid: tuple[str, ...]) -> None:
    if value not in valid:
        raise ValueError(f"{field} must be one of {', '.join(repr(name) for name in valid)}, not {value!r}")


def _texts(field: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, (tuple, list)) or not all(isinstance(one, str) and one for one in value):
        raise ValueError(f"{field} must be a tuple of texts, not {value!r}")
    return tuple(value)


def _span(field: str, span: object, *, above_zero: bool = False) -> float:
    number = isinstance(span, (int, float)) and not isinstance(span, bool) and isfinite(span)
    if not isinstance(span, (int, float)) or not number or span < 0 or (span == 0 and above_zero):
        lowest = "above 0" if above_zero else "0 or more"
        raise ValueError(f"{field} must be a number of seconds, {lowest}, not {span!r}")
    # 60 and 60.0 are equal, so they must have the same JSON.
    return float(span)


def _retention(value: object) -> object:
    if value is None or value == UNSPECIFIED:
        return value
    if not isinstance(value, (tuple, list)):
        return _span("retention_s", value, above_zero=True)
    if len(value) != 2:
        raise ValueError(f"retention_s must be seconds, (least, most) seconds or 'unspecified', not {value!r}")
    least = _span("retention_s", value[0])
    most = None if value[1] is None else _span("retention_s", value[1], above_zero=True)
    if most is not None and most <= least:
        raise ValueError(f"retention_s={value!r}: the second is to be the longer one")
    return least, most


@lru_cache(maxsize=64)
def _from_json(text: str) -> Contract:
    values = json.loads(text)
    names = {field.name for field in fields(Contract)}
    if not isinstance(values, dict) or "name" not in values or not values.keys() <= names:
        raise ValueError(f"not a contract: {text}; a contract has the fields {', '.join(sorted(names))}")
    return Contract(**values)
