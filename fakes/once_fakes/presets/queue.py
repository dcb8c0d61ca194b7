"""A queue of messages with a visibility time-out: what it hands out, to whom it does not, what it forgets.

The messages are a provider's effects. What has become of one is in the ledger's positions: "message <number>" says
until when it is hidden (milliseconds since 1970), or that it is deleted, "handle <number>" which handle is the latest.
"""

from __future__ import annotations

import json
import math
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from once_fakes.presets.bodies import texts
from once_fakes.reply import Refusal
from pytest_once.ledger.within import effects_of, move_position, now_within, position_of

_DELETED = -1
_HANDLE = re.compile("AQEB-([0-9]{1,9})-([0-9]{1,15})")
_DEFAULT_HIDDEN_S = 30
_LONGEST_HIDDEN_S = 12 * 3600
_MOST_MESSAGES = 10
_LONGEST_WAIT_S = 20


class QueueRefusal(Exception):
    """The queue does not do what was asked, for that reason."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class _Message:
    number: int
    payload: Any
    hidden_until_ms: int


class Queue:
    """A queue inside a transaction. operation: of the effects that are its messages. shown: how it shows a message."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        provider: str,
        operation: str,
        fifo: bool,
        shown: Callable[[int, Any], dict[str, Any]],
    ) -> None:
        self._connection = connection
        self._provider = provider
        self._operation = operation
        self._fifo = fifo
        self._shown = shown
        self._now_ms = math.ceil(now_within(connection) * 1000)

    def tend(self, action: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Do what a consumer asks: the body of the answer. Raises QueueRefusal."""
        match action:
            case "ReceiveMessage":
                return self._receive(asked)
            case "DeleteMessage":
                return self._delete(asked)
            case "ChangeMessageVisibility":
                return self._hide_longer(asked)
        return self._attributes()

    def _messages(self) -> Iterator[_Message]:
        """Those that are not deleted, the oldest first."""
        for effect in effects_of(self._connection, self._provider):
            hidden = self._noted("message", effect.number) or 0
            if effect.operation == self._operation and hidden != _DELETED:
                yield _Message(effect.number, json.loads(effect.payload), hidden)

    def _receive(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        most = _number(asked, "MaxNumberOfMessages", 1, 1, _MOST_MESSAGES)
        hidden_s = _number(asked, "VisibilityTimeout", _DEFAULT_HIDDEN_S, 0, _LONGEST_HIDDEN_S)
        _number(asked, "WaitTimeSeconds", 0, 0, _LONGEST_WAIT_S)
        until_ms = self._now_ms + hidden_s * 1000
        handed = []
        for message in self._visible()[:most]:
            self._note("message", message.number, until_ms)
            self._note("handle", message.number, until_ms)
            handed.append(
                {
                    **self._shown(message.number, message.payload),
                    **_attributes_of(message, asked, self._fifo),
                    "ReceiptHandle": f"AQEB-{message.number}-{until_ms}",
                }
            )
        return {"Messages": handed} if handed else {}

    def _visible(self) -> list[_Message]:
        """What may be handed out now: of a FIFO queue's group nothing while one of its messages is hidden."""
        found, busy = [], set()
        for message in self._messages():
            group = texts(message.payload).get("MessageGroupId")
            if message.hidden_until_ms > self._now_ms:
                busy.add(group)
            elif not self._fifo or group not in busy:
                found.append(message)
        return found

    def _delete(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        number, latest = self._handled(asked)
        hidden_until_ms = self._noted("message", number) or 0
        if hidden_until_ms == _DELETED:
            return {}
        if self._fifo and (not latest or hidden_until_ms <= self._now_ms):
            raise _invalid("ReceiptHandle", "The receipt handle has expired", asked)
        if latest:
            self._note("message", number, _DELETED)
        return {}  # an older handle of a standard queue deletes nothing, and succeeds

    def _hide_longer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        number, latest = self._handled(asked)
        if "VisibilityTimeout" not in asked:
            message = "The request must contain the parameter VisibilityTimeout."
            raise QueueRefusal(Refusal("field_missing", 400, message, "VisibilityTimeout"))
        hidden_s = _number(asked, "VisibilityTimeout", 0, 0, _LONGEST_HIDDEN_S)
        if not latest or (self._noted("message", number) or 0) <= self._now_ms:
            message = "The message referred to isn't in flight."
            raise QueueRefusal(Refusal("not_in_flight", 400, message, "ReceiptHandle"))
        self._note("message", number, self._now_ms + hidden_s * 1000)
        return {}

    def _attributes(self) -> dict[str, Any]:
        hidden = [message.hidden_until_ms > self._now_ms for message in self._messages()]
        counts = {
            "ApproximateNumberOfMessages": str(hidden.count(False)),
            "ApproximateNumberOfMessagesNotVisible": str(hidden.count(True)),
        }
        return {"Attributes": counts}

    def _handled(self, asked: Mapping[str, Any]) -> tuple[int, bool]:
        """The message that a receipt handle names, and whether it is the latest handle of it."""
        handle = texts(asked).get("ReceiptHandle")
        if handle is None:
            message = "The request must contain the parameter ReceiptHandle."
            raise QueueRefusal(Refusal("field_missing", 400, message, "ReceiptHandle"))
        named = _HANDLE.fullmatch(handle)
        known = None if named is None else self._noted("handle", int(named[1]))
        if named is None or known is None:
            message = f'The input receipt handle "{handle}" is not a valid receipt handle.'
            raise QueueRefusal(Refusal("bad_handle", 400, message, "ReceiptHandle"))
        return int(named[1]), int(named[2]) == known

    def _noted(self, what: str, number: int) -> int | None:
        return position_of(self._connection, self._provider, f"{what} {number}")

    def _note(self, what: str, number: int, value: int) -> None:
        move_position(self._connection, self._provider, f"{what} {number}", value)


def _attributes_of(message: _Message, asked: Mapping[str, Any], fifo: bool) -> dict[str, Any]:
    """The attributes that a consumer asks for by name, or all."""
    found: dict[str, Any] = {}
    given = message.payload.get("MessageAttributes") if isinstance(message.payload, dict) else None
    if isinstance(given, dict) and (kept := {name: given[name] for name in given if _wants(asked, name, "")}):
        found["MessageAttributes"] = kept
    if fifo:
        system = {
            "MessageGroupId": texts(message.payload).get("MessageGroupId", ""),
            "SequenceNumber": f"{message.number:020d}",
        }
        if kept := {name: value for name, value in system.items() if _wants(asked, name, "System")}:
            found["Attributes"] = kept
    return found


def _wants(asked: Mapping[str, Any], name: str, kind: str) -> bool:
    fields = ("MessageSystemAttributeNames", "AttributeNames") if kind else ("MessageAttributeNames",)
    wanted = [one for field in fields for one in (asked.get(field) or []) if isinstance(asked.get(field), list)]
    return any(one in ("All", ".*", name) for one in wanted)


def _number(asked: Mapping[str, Any], name: str, usual: int, least: int, most: int) -> int:
    value = asked.get(name, usual)
    if type(value) is not int or not least <= value <= most:
        raise _invalid(name, f"Must be between {least} and {most}, if provided", asked)
    return value


def _invalid(name: str, reason: str, asked: Mapping[str, Any]) -> QueueRefusal:
    message = f"Value {asked.get(name)} for parameter {name} is invalid. Reason: {reason}."
    return QueueRefusal(Refusal("invalid", 400, message, name))
