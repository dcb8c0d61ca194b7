"""What is explored: the body, what it should do, and how far to look."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_once.allowance import Allowance, AllowanceError
from pytest_once.faults import KINDS, STANDARD_FAULTS

if TYPE_CHECKING:
    from pytest_once.ledger import Effect

PROFILES = {"crash": 0, "standard": 1, "deep": 2}
"""Profile name -> soft faults per incarnation, besides unlimited crashes."""

_IN_FLIGHT = {"crash": 0, "standard": 1, "deep": 2}

KeyOf = Callable[["Effect"], "str | None"]


class ScenarioError(ValueError):
    """A scenario that cannot be explored as stated; the message names the remedy."""


@dataclass(frozen=True, kw_only=True)
class Expectations:
    """What should be true of the effects, and what an incarnation's end claims.

    key: the logical key this test is about (text), or a function from effect to logical key.
    keys: logical key -> intended number of effects.
    blocked: exception classes which say "I do not know"; "unknown" admits once.claim("unknown").
    definite_failure: exception classes which say "certainly no effect".
    redeliver: how often the call is delivered again after completion.
    restart_after_s: seconds that may pass before a restart; each is explored.
    attempts: how many requests of one kind and payload may reach a provider in one incarnation; None for any number.
    ignore: columns and files that are no part of the state ("tasks.attempts", "*.log").
    allow: targets outside the world that may be touched unexplored ("file:/var/log/app*.log", "socket:127.0.0.1:9200",
    "process:git", "http:api.example.com/*").
    """

    key: str | KeyOf | None = None
    keys: Mapping[Any, Any] = field(default_factory=dict)
    blocked: tuple[type[BaseException] | str, ...] = ()
    definite_failure: tuple[type[BaseException], ...] = ()
    redeliver: int = 1
    restart_after_s: tuple[float, ...] = (0.0,)
    ignore: tuple[str, ...] = ()
    attempts: int | None = None
    allow: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.redeliver < 0:
            raise ScenarioError(f"redeliver={self.redeliver}: a call is redelivered 0 times or more")
        if self.attempts is not None and self.attempts < 0:
            raise ScenarioError(f"attempts={self.attempts}: 0 or more attempts are allowed")
        if not self.restart_after_s:
            raise ScenarioError('restart_after is empty: give at least one delay, such as ("0s",)')
        for target in self.allow:
            try:
                Allowance.parse(target)
            except AllowanceError as error:
                raise ScenarioError(f"allow: {error}") from None
        for name, count in self.keys.items():
            if not isinstance(name, str) or not _is_count(count):
                raise ScenarioError(
                    f"keys={{{name!r}: {count!r}}}: a logical key is text, and its intended count is 0 or more"
                )


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How far to look. Every limit that bites is named in the report, and makes the answer unknown.

    soft_faults: per incarnation. fault_kinds: names from pytest_once.faults.KINDS. in_flight: requests that may be
    on their way at the same time, to arrive late or never. choices: options other than the first that may be chosen in
    one incarnation.
    deadline_s: seconds for the whole exploration. life_timeout_s: seconds that an incarnation may be silent.
    max_boundaries: per incarnation; past it, the incarnation is taken to loop.
    """

    profile: str = "standard"
    soft_faults: int = 1
    fault_kinds: tuple[str, ...] = STANDARD_FAULTS
    in_flight: int = 1
    choices: int = 8
    max_states: int = 5000
    deadline_s: float = 300.0
    life_timeout_s: float = 10.0
    max_boundaries: int = 400

    def __post_init__(self) -> None:
        if self.profile not in PROFILES:
            raise ScenarioError(f"profile {self.profile!r} is unknown; valid: {', '.join(PROFILES)}")
        for kind in self.fault_kinds:
            if kind not in KINDS:
                raise ScenarioError(f"fault kind {kind!r} is unknown; valid: {', '.join(KINDS)}")
        if self.soft_faults < 0:
            raise ScenarioError(f"soft_faults={self.soft_faults}: give 0 or more per incarnation")
        if self.in_flight < 0:
            raise ScenarioError(f"in_flight={self.in_flight}: 0 or more requests may be on their way")
        for name in ("max_states", "deadline_s", "life_timeout_s", "max_boundaries", "choices"):
            if not getattr(self, name) > 0:
                raise ScenarioError(f"{name}={getattr(self, name)!r}: a limit is greater than 0")


def profile_limits(profile: str, given: Mapping[str, Any] | None = None) -> Limits:
    """The limits of a profile, changed as given. Raises ScenarioError for an unknown one."""
    from_profile = {
        "soft_faults": PROFILES.get(profile, 0),
        "fault_kinds": tuple(KINDS) if profile == "deep" else STANDARD_FAULTS,
        "in_flight": _IN_FLIGHT.get(profile, 0),
    }
    return Limits(**{"profile": profile, **from_profile, **(given or {})})


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(text: str | int | float) -> float:
    """A duration such as "0s", "15m", "1h", "250ms" or a number of seconds. Raises ScenarioError."""
    if isinstance(text, (int, float)) and not isinstance(text, bool) and text >= 0:
        return float(text)
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", text.strip()) if isinstance(text, str) else None
    if match is None:
        raise ScenarioError(f"{text!r} is no duration; write a number and ms, s, m, h or d, such as '1h'")
    return float(match[1]) * _UNITS[match[2]]


_MARKER_ARGUMENTS = (
    "key",
    "keys",
    "faults",
    "soft_faults",
    "redeliver",
    "restart_after",
    "blocked",
    "definite_failure",
    "ignore",
    "allow",
    "workers",
    "max_states",
    "deadline",
    "attempts",
    "in_flight",
)


def from_marker(args: tuple[Any, ...], kwargs: Mapping[str, Any], limits: Limits) -> tuple[Expectations, Limits]:
    """Read the arguments of `@pytest.mark.once_effect`. Raises ScenarioError naming what is wrong."""
    from dataclasses import replace

    if len(args) > 1:
        raise ScenarioError(f"once_effect takes one positional argument, the key; got {len(args)}")
    given = dict(kwargs)
    if args:
        if "key" in given:
            raise ScenarioError("once_effect got the key twice, as positional argument and as key=")
        given["key"] = args[0]
    for name in given:
        if name not in _MARKER_ARGUMENTS:
            raise ScenarioError(f"once_effect has no argument {name!r}; valid: {', '.join(_MARKER_ARGUMENTS)}")
    if (workers := given.pop("workers", 1)) != 1:
        raise ScenarioError(f"workers={workers!r}: exploring several live workers is not supported; use 1")
    if "faults" in given:
        limits = replace(limits, fault_kinds=_texts("faults", given.pop("faults") or ()))
    if "soft_faults" in given:
        limits = replace(limits, soft_faults=_whole("soft_faults", given.pop("soft_faults")))
    if "in_flight" in given:
        limits = replace(limits, in_flight=_whole("in_flight", given.pop("in_flight")))
    if "max_states" in given:
        limits = replace(limits, max_states=_whole("max_states", given.pop("max_states")))
    if "deadline" in given:
        limits = replace(limits, deadline_s=seconds(given.pop("deadline")))
    key = given.get("key")
    if key is not None and not isinstance(key, str) and not callable(key):
        raise ScenarioError(f"key={key!r}: give the logical key as text, or a function from effect to text")
    return (
        Expectations(
            key=key,
            keys=_counts(given.get("keys") or {}),
            blocked=_exceptions("blocked", given.get("blocked", ()), names=("unknown",)),
            definite_failure=_exceptions("definite_failure", given.get("definite_failure", ())),
            redeliver=_whole("redeliver", given.get("redeliver", 1)),
            restart_after_s=tuple(
                seconds(text) for text in _sequence("restart_after", given.get("restart_after", ("0s",)))
            ),
            ignore=_texts("ignore", given.get("ignore", ())),
            attempts=None if given.get("attempts") is None else _whole("attempts", given["attempts"]),
            allow=_texts("allow", given.get("allow", ())),
        ),
        limits,
    )


def _sequence(name: str, value: Any) -> tuple[Any, ...]:
    if isinstance(value, (list, tuple, set, frozenset)):
        return tuple(sorted(value)) if isinstance(value, (set, frozenset)) else tuple(value)
    return (value,)


def _texts(name: str, value: Any) -> tuple[str, ...]:
    texts = _sequence(name, value)
    for text in texts:
        if not isinstance(text, str):
            raise ScenarioError(f"{name}={value!r}: give a sequence of texts")
    return texts


def _whole(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ScenarioError(f"{name}={value!r}: give a whole number")
    return value


def _counts(value: Any) -> dict[str, int]:
    if isinstance(value, Mapping):
        return dict(value)
    return dict.fromkeys(_texts("keys", value), 1)


def _exceptions(name: str, value: Any, names: tuple[str, ...] = ()) -> tuple[Any, ...]:
    classes = _sequence(name, value)
    for cls in classes:
        if cls in names or (isinstance(cls, type) and issubclass(cls, BaseException)):
            continue
        raise ScenarioError(
            f"{name}={value!r}: give exception classes" + (f" or {' or '.join(map(repr, names))}" if names else "")
        )
    return classes
