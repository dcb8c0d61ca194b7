"""Forms and texts in requests, and ids and instants that are made up: the same for the same effect, in every run."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from once_fakes.dialect import Request, read_payload
from once_fakes.reply import Refusal

_FIRST = datetime(2024, 1, 1, tzinfo=UTC)
"""Before all virtual time, so that nobody takes it for the time of something that happened."""


def form_fields(request: Request) -> dict[str, Any] | Refusal:
    """The body as form fields, whatever its content type says: text, or a list of texts for a repeated one."""
    payload = read_payload(replace(request, headers={"content-type": "application/x-www-form-urlencoded"}))
    return {} if payload is None else payload if isinstance(payload, (dict, Refusal)) else {"": payload}


def texts(payload: object) -> dict[str, str]:
    """Those fields of a payload that are texts and not empty."""
    fields = payload if isinstance(payload, dict) else {}
    return {name: value for name, value in fields.items() if isinstance(value, str) and value}


def made_at(number: int) -> datetime:
    """When the effect of that number is said to be made: a second after the one before."""
    return _FIRST + timedelta(seconds=number)


def uuid_of(number: int) -> str:
    """The id of the effect of that number, as a UUID."""
    return str(UUID(int=number, version=4))
