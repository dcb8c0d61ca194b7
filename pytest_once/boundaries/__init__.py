"""Boundaries: the points where the process changes, or asks about, the world outside itself.

`announce()` is the only way from a seam to the controller. In a process nobody explores it answers at once
and costs one comparison.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from pytest_once.site import Site, call_site

ARRIVAL_HEADER = "once-arrival"
"""Response header in which a fake provider names the arrival it answers, by its id in the ledger."""
ORDER_HEADER = "once-order"
"""Request header that tells a fake provider what to do with this request, in words separated by commas: those below,
and parameter=value for what has been decided where its contract leaves it open."""
ASKS, STALE, BEGIN, FAIL, DECLINE = "asks", "stale", "begin", "fail", "decline"
"""ask what the contract leaves open; answer from before the latest change; begin the work and answer nobody; fail
inside the idempotency layer; refuse for a reason of the business."""
UNDECIDED_HEADER = "once-undecided"
"""Response header: nothing was done, because the contract leaves it open what happens: "parameter=this|that"."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """A point the process is about to pass.

    kind: the seam ("sqlite", "http", "file", "tool", "point", "choice"), "contract" or "webhook" of a fake provider.
    target: what it touches, without machine-dependent parts ("agent.db COMMIT", "POST /v1/refunds").
    site: the user's line. occurrence: 1 for the first passing of this (kind, target, site) in an incarnation.
    provider: the fake that would receive the call, if one would. faults: soft faults the seam can perform here.
    options: at a choice, what may be chosen; the first is what happens undisturbed.
    """

    kind: str
    target: str
    site: Site
    occurrence: int
    provider: str | None = None
    faults: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    @property
    def anchor(self) -> str:
        """Stable across unrelated edits; what a schedule refers to."""
        return f"{self.kind}|{self.target}|{self.site.anchor}|{self.occurrence}"


@dataclass(frozen=True, slots=True)
class Order:
    """What the controller wants done at a boundary: nothing special, or one soft fault by name.

    option: at a choice, the number of the option to take.
    """

    fault: str | None = None
    option: int = 0


GO = Order()


class Announcer:
    """The child's end: turns a seam's announcement into a Boundary and waits for the order."""

    def __init__(self, ask: Callable[[Boundary], Order]) -> None:
        self._ask = ask
        self._passed: dict[tuple[str, str, str], int] = {}
        self._one_at_a_time = threading.Lock()
        self._inside: list[Boundary] | None = None

    def announce(
        self,
        kind: str,
        target: str,
        provider: str | None,
        faults: tuple[str, ...],
        site: Site | None,
        options: tuple[str, ...] = (),
    ) -> Order:
        site = site or call_site()
        with self._one_at_a_time:
            identity = (kind, target, site.anchor)
            occurrence = self._passed[identity] = self._passed.get(identity, 0) + 1
            boundary = Boundary(kind, target, site, occurrence, provider, faults, options)
            if self._inside is not None:
                self._inside.append(boundary)
                return GO
            return self._ask(boundary)

    def enter_atomic(self) -> list[Boundary]:
        """From now on, boundaries of this process (a tool may use threads) are collected, not announced."""
        self._inside = []
        return self._inside

    def leave_atomic(self) -> None:
        self._inside = None


_announcer: Announcer | None = None


def connect(announcer: Announcer | None) -> None:
    """Set this process's way to the controller; the child of a fork calls it, nobody else."""
    global _announcer
    _announcer = announcer


def connected() -> Announcer | None:
    """The way to the controller, or None in a process that nobody explores."""
    return _announcer


def announce(
    kind: str,
    target: str,
    *,
    provider: str | None = None,
    faults: tuple[str, ...] = (),
    site: Site | None = None,
    options: tuple[str, ...] = (),
) -> Order:
    """Say that this process is about to pass a boundary, and wait for the order.

    Returns the order; a seam that offered no faults may ignore it. May not return at all: the controller may
    kill the process here.
    """
    announcer = _announcer
    return GO if announcer is None else announcer.announce(kind, target, provider, faults, site, options)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A URL prefix behind which a fake provider answers.

    faults: those of WORK_FAULTS that its contract makes a difference of. asks: it may ask what its contract
    leaves open.
    """

    prefix: str
    provider: str
    faults: tuple[str, ...] = ()
    asks: bool = False


_endpoints: list[Endpoint] = []


def endpoint_prefixes() -> list[str]:
    """The addresses of all registered fakes."""
    return [endpoint.prefix for endpoint in _endpoints]


def register_endpoint(prefix: str, provider: str, *, faults: tuple[str, ...] = (), asks: bool = False) -> None:
    """Let the HTTP seams know that requests to URLs beginning with `prefix` reach `provider`.

    faults, asks: see `Endpoint`.
    """
    endpoint = Endpoint(prefix.rstrip("/"), provider, faults, asks)
    if endpoint not in _endpoints:
        _endpoints.append(endpoint)


def forget_endpoints() -> None:
    """Drop all registered endpoints (a plain run is over)."""
    _endpoints.clear()
    _before_answers.clear()
    _errors.clear()


@dataclass(frozen=True, slots=True)
class ErrorDocument:
    """An error in a provider's own words. status: HTTP status; headers: (name, value)."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


_errors: dict[tuple[str, str], ErrorDocument] = {}


def word_error(provider: str, fault: str, document: ErrorDocument) -> None:
    """Say how a provider words the error status of a soft fault."""
    _errors[provider, fault] = document


def worded_error(provider: str, fault: str) -> ErrorDocument | None:
    """How a provider words the error status of a soft fault, None if it has not said so."""
    return _errors.get((provider, fault))


_before_answers: dict[str, Callable[[int | None], None]] = {}


def before_answers(provider: str, tell: Callable[[int | None], None]) -> None:
    """Have `tell` called before an answer of a provider reaches its caller, with the arrival's id if that is known."""
    _before_answers[provider] = tell


def answer_comes(provider: str, arrival: str | None) -> None:
    """A seam has the answer to a request, or what its caller sees instead, and will hand it over now."""
    tell = _before_answers.get(provider)
    if tell is not None:
        tell(int(arrival) if arrival is not None and arrival.isdecimal() else None)


def habits_of(provider: str) -> tuple[tuple[str, ...], bool]:
    """The faults of its work that a provider knows, and whether it may ask what its contract leaves open."""
    return next(((one.faults, one.asks) for one in _endpoints if one.provider == provider), ((), False))


def endpoint_of(url: str) -> tuple[str, str] | None:
    """(provider, path below the prefix) for a URL that a fake answers, else None."""
    for endpoint in _endpoints:
        rest = url[len(endpoint.prefix) :]
        if url.startswith(endpoint.prefix) and rest[:1] in ("", "/", "?"):
            path = rest.partition("?")[0] or "/"
            return endpoint.provider, path
    return None
