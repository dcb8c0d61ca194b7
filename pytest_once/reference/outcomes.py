"""What is known about an effect after a request ended: by exception, by status, by business code.

No client is imported: exceptions are known by the name of their class and the package it comes from, responses by their
attributes. It is taken for granted that nothing below sends again by itself (an SDK's retries, a transport's, redirects
that are followed): an error says what became of the last request only.
"""

from __future__ import annotations

import http
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

R = TypeVar("R")


class Certainty(StrEnum):
    """NEVER_ARRIVED: no request reached the provider, so trying again is free. FAILED: it did, and had no effect.

    UNKNOWN: it may have acted, or may still.
    """

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    NEVER_ARRIVED = "NEVER_ARRIVED"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Outcome:
    """reason: one sentence for people: what was seen, and why it proves that much and no more."""

    certainty: Certainty
    reason: str


class NoEffect(Exception):
    """Raise it in a tool that has proof of no effect."""


class Ambiguous(Exception):
    """Raise it in a tool that cannot tell whether it had its effect. So does every other exception nobody knows."""


# -- by status -------------------------------------------------------------------------------------------

# RFC 9110 says of 401, 407 and 421, and RFC 8470 of 425, that the request was not applied. Of 429 (RFC 6585) it is what
# rate limits are for: they count before they act.
_NOT_APPLIED = {
    401: "was not applied for want of credentials",
    407: "was not applied for want of the proxy's credentials",
    421: "was not applied: this server does not answer for the address",
    425: "was not applied: it could have been a replay",
    429: "was not applied: too many requests",
}

# 408: who waited in vain for the request may be a proxy that had passed on enough of it. 409 and 412: the first request
# may be running still, or this one may have met what it did itself.
_NEVER_PROOF = {
    408: "may come from a proxy that had passed the request on",
    409: "may mean that the first request is still running, or has acted",
    412: "may mean that the request met its own effect",
}

_KEY_IN_USE = re.compile(
    r"idempotency|idempotent|duplicate|already|concurrent|in_use|in_progress|conflict|locked|^704$", re.IGNORECASE
)
"""Codes which say that another request with this identity is known: the opposite of proof that nothing happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a provider documents beyond the common ground.

    statuses: HTTP status → what it proves there. no_effect_codes: business codes which prove that nothing was done,
    whatever the status. accepted_is_done: 202 is a success (else it says that the work is not completed).
    """

    statuses: Mapping[int, Certainty] = field(default_factory=dict)
    no_effect_codes: frozenset[str] = frozenset()
    accepted_is_done: bool = False


COMMON = Rules()


def of_status(status: int, document: object = None, rules: Rules = COMMON) -> Outcome:
    """What an answer proves. document: its decoded JSON body, if it has one."""
    code = business_code(document, status)
    said = f"status {status}" + (f" with code {code!r}" if code else "")
    if code in rules.no_effect_codes:
        return Outcome(Certainty.FAILED, f"{said}, which the provider documents as no effect")
    if status in rules.statuses:
        return Outcome(rules.statuses[status], f"{said}, as the provider documents it")
    if status == 202 and not rules.accepted_is_done:
        return Outcome(Certainty.UNKNOWN, f"{said}: accepted is not completed")
    if status == 207:
        return Outcome(Certainty.UNKNOWN, f"{said}: each part has a status of its own")
    if 200 <= status < 300:
        return Outcome(Certainty.SUCCEEDED, said)
    if 400 <= status < 500:
        return _of_refusal(status, code, said)
    why = "says where to look, not whether it acted" if 300 <= status < 400 else "may come after the effect"
    return Outcome(Certainty.UNKNOWN, f"{said} {why}")


def _of_refusal(status: int, code: str | None, said: str) -> Outcome:
    if status in _NEVER_PROOF:
        return Outcome(Certainty.UNKNOWN, f"{said} {_NEVER_PROOF[status]}")
    if code is not None and _KEY_IN_USE.search(code):
        return Outcome(Certainty.UNKNOWN, f"{said}: another request with this identity is known")
    if status in _NOT_APPLIED:
        return Outcome(Certainty.FAILED, f"{said}: the request {_NOT_APPLIED[status]}")
    if code is not None:
        return Outcome(Certainty.FAILED, f"{said}: refused by the provider itself")
    return Outcome(Certainty.UNKNOWN, f"{said} and no business code: who refused, and when, is not known")


_PHRASES = {re.sub(r"\W", "", status.phrase).lower() for status in http.HTTPStatus}
_CODE = re.compile(r"[A-Za-z0-9][\w.:/#-]*")


def business_code(document: object, status: int) -> str | None:
    """The code by which the provider itself, not a proxy before it, names an error; None without one.

    Found where providers put it: error.code, error.type, errors[0].code, code, errorCode, type, name, error.
    A mere repetition of the HTTP status, as number or phrase, is none.
    """
    for candidate in _candidates(document):
        text = str(candidate) if isinstance(candidate, (str, int)) and not isinstance(candidate, bool) else ""
        plain = re.sub(r"\W", "", text).lower()
        if _CODE.fullmatch(text) and text != str(status) and plain not in _PHRASES and text != "error":
            return text
    return None


def _candidates(document: object) -> Iterator[object]:
    if not isinstance(document, Mapping):
        return
    nested = document.get("error")
    errors = document.get("errors")
    first = errors[0] if isinstance(errors, list) and errors else None
    for inner in (nested, first):
        if isinstance(inner, Mapping):
            yield from (inner.get(name) for name in ("code", "type", "errorCode", "name", "category"))
    yield from (document.get(name) for name in ("code", "errorCode", "error_code", "type", "name", "__type"))
    yield nested


# -- by response -----------------------------------------------------------------------------------------


def of_response(response: Any, document: object = None, rules: Rules = COMMON) -> Outcome:
    """What a response of httpx, requests, aiohttp, urllib3, urllib or http.client proves.

    document: the decoded JSON body; where None, it is read from responses that have it at hand (httpx, requests,
    urllib3; not aiohttp: pass `await response.json()`).
    Raises TypeError for what has no status.
    """
    status = _status(response)
    if status is None:
        raise TypeError(f"{type(response).__name__} has no HTTP status (status_code, status or code)")
    return of_status(status, _document(response) if document is None else document, rules)


def check(response: R, document: object = None, rules: Rules = COMMON) -> R:
    """The response, if it proves success. Raises NoEffect or Ambiguous with the reason otherwise."""
    outcome = of_response(response, document, rules)
    if outcome.certainty is Certainty.SUCCEEDED:
        return response
    raise (Ambiguous if outcome.certainty is Certainty.UNKNOWN else NoEffect)(outcome.reason)


def _status(response: Any, names: tuple[str, ...] = ("status_code", "status", "code")) -> int | None:
    for name in names:
        value = getattr(response, name, None)
        if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599:
            return value
    return None


def _document(response: Any) -> object:
    for name in ("json_body", "body"):
        if isinstance(value := getattr(response, name, None), Mapping):
            return value
    if _package(type(response)) not in ("httpx", "httpx2", "requests", "urllib3"):
        return None
    try:
        return response.json()
    except Exception:  # not JSON, not text, not read yet: then there is no code, which proves less
        return None


# -- by exception ----------------------------------------------------------------------------------------

_NEVER_ARRIVED: Mapping[str, frozenset[str]] = {
    "builtins": frozenset({"ConnectionRefusedError"}),
    "socket": frozenset({"gaierror"}),
    "httpx": frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol", "InvalidURL"}),
    "httpcore": frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol"}),
    "requests": frozenset({"ConnectTimeout", "InvalidURL", "InvalidSchema", "MissingSchema", "InvalidHeader"}),
    "urllib3": frozenset(
        {"NewConnectionError", "NameResolutionError", "ConnectTimeoutError", "EmptyPoolError", "LocationParseError"}
    ),
    "aiohttp": frozenset({"ClientConnectorError", "ConnectionTimeoutError", "InvalidURL"}),
}
"""Package → its exceptions which say that no connection came about. Their subclasses say so too."""


def of_exception(error: BaseException, rules: Rules = COMMON) -> Outcome:
    """What an exception proves. One that nobody knows proves nothing: UNKNOWN."""
    name = type(error).__name__
    said = f"{name}: {error}" if str(error) else name
    if isinstance(error, NoEffect):
        return Outcome(Certainty.FAILED, str(error) or "the tool has proof of no effect")
    if isinstance(error, Ambiguous):
        return Outcome(Certainty.UNKNOWN, str(error) or "the tool cannot tell")
    if (status := _of_status_error(error, rules)) is not None:
        return status
    if never_arrived(error):
        return Outcome(Certainty.NEVER_ARRIVED, f"{said}: there was no connection to send on")
    return Outcome(Certainty.UNKNOWN, f"{said}: the request may have arrived")


def never_arrived(error: BaseException) -> bool:
    """Whether an exception proves that nothing was sent: refused, not resolved, or timed out while connecting."""
    for cls in type(error).__mro__:
        if cls.__name__ in _NEVER_ARRIVED.get(_package(cls), ()):
            return True
    cause = _wrapped(error)
    return cause is not None and never_arrived(cause)


def _wrapped(error: BaseException) -> BaseException | None:
    """What requests, urllib3 and urllib wrap: their own class says only that something went wrong."""
    package, name = _package(type(error)), type(error).__name__
    if (package, name) in (("urllib3", "MaxRetryError"), ("urllib", "URLError")):
        inner = getattr(error, "reason", None)
    elif (package, name) in (("requests", "ConnectionError"), ("requests", "ProxyError")):
        inner = error.args[0] if error.args else None
    else:
        return None
    return inner if isinstance(inner, BaseException) else None


def _of_status_error(error: BaseException, rules: Rules) -> Outcome | None:
    """An exception that stands for an answer: it has a response, or a status and perhaps a code of its own."""
    package = _package(type(error))
    response = getattr(error, "response", None) or getattr(error, "reply", None)
    status = None if response is None else _status(response)
    if status is None and isinstance(error, Exception):
        status = _status(error, ("code",) if package == "urllib" else ("status_code", "http_status", "status"))
    if status is None:
        return None
    document = None if response is None else _document(response)
    outcome = of_status(status, _own_document(error) if document is None else document, rules)
    if outcome.certainty is Certainty.SUCCEEDED:
        # The answer said yes, but something in it could not be read.
        return Outcome(Certainty.UNKNOWN, f"{type(error).__name__} after {outcome.reason}")
    return outcome


def _own_document(error: BaseException) -> object:
    for name in ("body", "json_body"):
        if isinstance(value := getattr(error, name, None), Mapping):
            return value
    # aiohttp's own attribute of that name is a number, and warns.
    code = None if _package(type(error)) == "aiohttp" else getattr(error, "code", None)
    return {"code": code} if isinstance(code, str) else None


def _package(cls: type) -> str:
    return "socket" if cls.__name__ == "gaierror" else cls.__module__.partition(".")[0]
