"""What a provider insists on in a request: that it is JSON, and what its fields are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from once_fakes.dialect import Request, read_payload
from once_fakes.reply import Refusal


@dataclass(frozen=True, slots=True)
class Field:
    """A field along a dotted path. holds: whether a value will do; what: how the refusal says what would.

    needed: a request without it is refused as well.
    """

    path: str
    holds: Callable[[Any], bool]
    what: str
    needed: bool = True


def text(path: str, *, needed: bool = True, longest: int = 100_000) -> Field:
    """A field that holds a text, not empty, of so many characters at most."""
    return Field(path, lambda value: isinstance(value, str) and 0 < len(value) <= longest, "a text", needed)


def whole(path: str, *, needed: bool = True) -> Field:
    """A field that holds a whole number above 0."""
    return Field(path, lambda value: type(value) is int and 0 < value < 10**12, "a whole number above 0", needed)


def decimal(path: str, *, needed: bool = True) -> Field:
    """A field that holds an amount as a decimal number in a text: "10.99"."""
    return Field(path, _is_decimal, 'a decimal number in a text, such as "10.99"', needed)


def flaw(payload: object, fields: Iterable[Field], status: int = 400) -> Refusal | None:
    """What is wrong with the first field that is wrong: "field_missing" or "invalid"; None if nothing is."""
    for field in fields:
        value = at(payload, field.path)
        if value is None:
            if field.needed:
                return Refusal("field_missing", status, f"{field.path} is missing", field.path)
        elif not field.holds(value):
            return Refusal("invalid", status, f"{field.path} must be {field.what}", field.path, str(value)[:100])
    return None


def at(payload: object, path: str) -> Any:
    """The value along a dotted path, None where there is none."""
    for part in path.split("."):
        payload = payload.get(part) if isinstance(payload, dict) else None
    return payload


def read_object(request: Request) -> dict[str, Any] | Refusal:
    """The body as a JSON object, whatever its content type says; {} if it is empty."""
    payload = read_payload(replace(request, headers={"content-type": "application/json"}))
    if isinstance(payload, Refusal):
        return replace(payload, message="the body is not JSON")
    if payload is None:
        return {}
    return payload if isinstance(payload, dict) else Refusal("malformed", 400, "the body is not a JSON object")


def _is_decimal(value: object) -> bool:
    if not isinstance(value, str) or len(value) > 32:
        return False
    whole, dot, cents = value.partition(".")
    digits = whole + cents
    return (
        whole.isascii()
        and digits.isdecimal()
        and bool(whole)
        and bool(cents or not dot)
        and any(digit != "0" for digit in digits)
    )
