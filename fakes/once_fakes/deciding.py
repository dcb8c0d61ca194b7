"""What a contract makes of one request: act, answer from a receipt, or refuse."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from dataclasses import dataclass, field
from typing import Literal

from once_fakes.contract import RETENTION_ALTERNATIVES, UNSPECIFIED, Contract
from once_fakes.dialect import Act, Shown, dialect_of
from once_fakes.instructions import Instructions, Undecided
from once_fakes.reading import field_text
from once_fakes.reply import Refusal
from once_fakes.settling import shown_effect
from pytest_once.ledger import IN_PROGRESS, Receipt
from pytest_once.ledger.within import (
    decide,
    decisions_of,
    effects_of,
    find_receipt,
    forget_receipt,
    forget_receipts,
    position_of,
)

RETENTION = "retention"
"""In `Instructions.decided`: whether a receipt is "kept" or "forgotten". Decided for each request anew."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What happens. "act": the effect is done, accepted or begun. "replay": as `receipt` says. "finish": the request
    that `receipt` belongs to is completed first, then replayed. "acknowledge": nothing is done, and it is not said
    what was done before. "refuse": for the reason `refusal`, which is stored if `stored`.

    moves: (name, value) of the provider's positions that acting changes.
    """

    what: Literal["act", "replay", "finish", "acknowledge", "refuse"]
    receipt: Receipt | None = None
    refusal: Refusal | None = None
    stored: bool = False
    moves: tuple[tuple[str, int], ...] = ()


@dataclass(slots=True)
class Case:
    """One request before its contract, inside a transaction. relied: the parameters that decided, in order."""

    connection: sqlite3.Connection
    provider: str
    contract: Contract
    act: Act
    instructions: Instructions
    now_s: float
    relied: list[str] = field(default_factory=list)
    scope: str = ""
    identity: str | None = None
    key: str | None = None
    fingerprint: str = ""

    def decide(self) -> Decision:
        """Raises Undecided where the contract leaves it open and `instructions` ask for it."""
        contract, act = self.contract, self.act
        self.key = act.key or None
        self.scope = "\n".join(self._scope())
        self.identity = self._identity()
        self.fingerprint = self._fingerprint()
        if contract.keeps_time:
            forget_receipts(self.connection, self.provider, self.now_s)
        if contract.dedup == "none":
            return self._acting()
        if self.identity is None:
            return self._without_key()
        if contract.dedup == "session_sequence":
            return self._in_session()
        if contract.dedup == "conditional":
            return self._conditional()
        if contract.dedup == "client_key" and (unusable := self._unusable(self.identity)):
            return Decision("refuse", refusal=unusable)
        receipt = find_receipt(self.connection, self.provider, self._stored_under(self.identity))
        if receipt is not None and self._forgotten(receipt):
            forget_receipt(self.connection, self.provider, receipt.key)
            receipt = None
        if receipt is None:
            return self._acting()
        if contract.dedup == "natural_key":
            self._rely("dedup")
            message = f"there is one with this {contract.natural_key_field} already"
            return self._refused("natural_conflict", contract.conflict_status, message, contract.natural_key_field)
        if contract.dedup == "content_window":
            self._rely("dedup")
            message = "the same request was made a short time ago; it was not done again"
            return self._refused("content_repeated", contract.conflict_status, message)
        return self._repeated(receipt)

    def stored_under(self) -> str | None:
        """What the receipt of this request is found by, None where there is none."""
        if self.identity is None or self.contract.dedup in ("session_sequence", "conditional"):
            return None
        return self._stored_under(self.identity)

    def value(self, parameter: str) -> str:
        """A parameter's value; of one that is not documented, what it has been decided to be."""
        self._rely(parameter)
        value: str = getattr(self.contract, parameter)
        if value != UNSPECIFIED:
            return value
        known = decisions_of(self.connection, self.provider).get(parameter)
        if known is None:
            known = self._chosen(parameter, self.contract.alternatives(parameter))
            decide(self.connection, self.provider, parameter, known)
        return known

    # -- identity ------------------------------------------------------------------------------------

    def _scope(self) -> list[str]:
        act = self.act
        parts = {"account": act.account, "endpoint": act.operation, "region": act.region, "session": act.session}
        return [parts[name] for name in self.contract.scope]

    def _identity(self) -> str | None:
        """What the provider recognises a repetition of this request by; None if by nothing."""
        contract, act = self.contract, self.act
        match contract.dedup:
            case "client_key":
                if self.key is None:
                    self.key = field_text(act.payload, contract.key_field) or None
                return self.key
            case "natural_key":
                named = field_text(act.payload, contract.natural_key_field)
                return None if named is None else f"{act.operation} {contract.natural_key_field}={named}"
            case "content_window":
                return f"{act.operation} {act.canonical}"
            case "session_sequence" if act.sequence is not None:
                return f"{act.sequence[0]}/{act.sequence[1]}"
            case "session_sequence":
                session = field_text(act.payload, contract.session_field)
                number = field_text(act.payload, contract.sequence_field)
                return None if session is None or number is None else f"{session}/{number}"
            case "conditional":
                return act.precondition if act.precondition is not None else self._version_asked()
        return None

    def _version_asked(self) -> str | None:
        return field_text(self.act.payload, self.contract.version_field)

    def _stored_under(self, identity: str) -> str:
        return f"{identity}\n{self.scope}" if self.scope else identity

    def _fingerprint(self) -> str:
        asked = self.act.canonical
        if self.contract.fingerprint_fields:
            fields = {name: field_text(self.act.payload, name) for name in self.contract.fingerprint_fields}
            asked = json.dumps(fields, sort_keys=True)
        return hashlib.sha256(f"{self.act.operation}\n{asked}".encode()).hexdigest()

    def _unusable(self, key: str) -> Refusal | None:
        where = self.contract.key_field or self.contract.key_header
        if len(key) > self.contract.max_key_length:
            message = f"{where} is longer than {self.contract.max_key_length} characters"
            return Refusal("key_too_long", 400, message, where, key)
        if not key.isascii() or not key.isprintable():
            return Refusal("key_unusable", 400, f"{where} may hold printable ASCII characters only", where, key)
        return None

    # -- repetitions ---------------------------------------------------------------------------------

    def _without_key(self) -> Decision:
        contract = self.contract
        self._rely("on_missing_key")
        if contract.on_missing_key == "execute":
            return self._acting()
        if contract.dedup == "client_key" and contract.key_field is None:
            message = f"this request needs the header {contract.key_header}"
            return self._refused("key_missing", contract.missing_key_status, message, contract.key_header)
        field = {
            "natural_key": contract.natural_key_field,
            "session_sequence": contract.sequence_field,
            "conditional": contract.version_field,
        }.get(contract.dedup, contract.key_field)
        kind = "key_missing" if contract.dedup == "client_key" else "field_missing"
        return self._refused(kind, contract.missing_key_status, f"this request needs the field {field}", field)

    def _forgotten(self, receipt: Receipt) -> bool:
        """Whether a receipt that need not be kept any more is gone."""
        if receipt.status == IN_PROGRESS or receipt.promised_s is None or self.now_s < receipt.promised_s:
            return False
        self._rely("retention_s")
        return self._chosen(RETENTION, RETENTION_ALTERNATIVES) == "forgotten"

    def _repeated(self, receipt: Receipt) -> Decision:
        contract = self.contract
        if receipt.fingerprint != self.fingerprint:
            mismatch = self.value("on_mismatch")
            if mismatch == "error":
                where = contract.key_field or contract.key_header
                message = f"{where} {self.key!r} was used before with another request"
                return self._refused("mismatch", contract.mismatch_status, message, where)
            if mismatch == "execute":
                return self._acting()
        if receipt.status == IN_PROGRESS:
            concurrent = self.value("on_concurrent") if contract.on_concurrent is not None else "coalesce"
            if concurrent == "reject":
                message = "a request with this key is still being worked on"
                where = contract.key_field or contract.key_header
                return self._refused("concurrent", contract.concurrent_status, message, where)
            return self._acting() if concurrent == "race" else Decision("finish", receipt)
        if receipt.status >= 400 and self.value("on_retry_after_failure") == "re_execute":
            return self._acting()
        self._rely("dedup")
        if receipt.effect is not None and self.value("replay_body") == "ack_only":
            return Decision("acknowledge", receipt)
        return Decision("replay", receipt)

    def _in_session(self) -> Decision:
        contract = self.contract
        session, _, number = (self.identity or "").rpartition("/")
        name = f"session {session}"
        if not _is_counted(number):
            message = f"{contract.sequence_field} must be a whole number, not {number!r}"
            return self._refused("invalid", 400, message, contract.sequence_field)
        last = position_of(self.connection, self.provider, name)
        self._rely("dedup")
        if last is not None and int(number) <= last:
            return Decision("acknowledge")
        if last is not None and int(number) > last + 1:
            message = f"{contract.sequence_field} {last + 1} of this session has not come yet"
            return self._refused("out_of_order", contract.conflict_status, message, contract.sequence_field)
        return self._acting((name, int(number)))

    def _conditional(self) -> Decision:
        path = self.act.operation.partition(" ")[2]
        present = position_of(self.connection, self.provider, f"version {path}") or 0
        self._rely("dedup")
        if self.identity != (str(present) if present else "") and not (self.identity == "0" and present == 0):
            message = f"the present version is {present}" if present else "there is no such object yet"
            status = self.contract.conflict_status
            return self._refused("precondition_failed", status, message, self.contract.version_field)
        return self._acting((f"version {path}", present + 1))

    # -- acting --------------------------------------------------------------------------------------

    def _acting(self, *moves: tuple[str, int]) -> Decision:
        contract, instructions = self.contract, self.instructions
        refusal = self.act.invalid
        if refusal is not None:
            if refusal.kind == "declined":
                return self._refused_by_business(refusal)
            kept = contract.record_point == "arrival" and contract.stored_outcomes != "success"
            return Decision("refuse", refusal=refusal, stored=kept)
        if contract.fencing == "token" and (fence := self._fenced()):
            if isinstance(fence, Decision):
                return fence
            moves = (*moves, fence)
        forbidden = dialect_of(contract).forbids(contract, self.act, self._done)
        if forbidden is not None:
            return self._refused_by_business(forbidden)
        if instructions.decline:
            return self._refused_by_business(Refusal("declined", 402, "the request was understood and is declined"))
        if instructions.fail:
            self._rely("stored_outcomes")
            kept = contract.stored_outcomes == "all"
            return self._refused("failed", 500, "An unexpected error occurred.", stored=kept)
        return Decision("act", moves=moves)

    def _fenced(self) -> Decision | tuple[str, int] | None:
        contract = self.contract
        token = field_text(self.act.payload, contract.fence_field)
        if token is None or not _is_counted(token):
            message = f"this request needs the field {contract.fence_field}, a whole number"
            return self._refused("field_missing", contract.missing_key_status, message, contract.fence_field)
        highest = position_of(self.connection, self.provider, "fence")
        if highest is not None and int(token) < highest:
            self._rely("fencing")
            message = f"{contract.fence_field} {token} is stale: {highest} has been seen"
            return self._refused("fenced", contract.fence_status, message, contract.fence_field)
        return "fence", int(token)

    def _refused_by_business(self, refusal: Refusal) -> Decision:
        self._rely("stored_outcomes")
        return Decision("refuse", refusal=refusal, stored=self.contract.stored_outcomes != "success")

    def _done(self) -> list[Shown]:
        return [shown_effect(effect) for effect in effects_of(self.connection, self.provider)]

    # -- bookkeeping ---------------------------------------------------------------------------------

    def _refused(
        self, kind: str, status: int, message: str, param: str | None = None, *, stored: bool = False
    ) -> Decision:
        return Decision("refuse", refusal=Refusal(kind, status, message, param, self.identity), stored=stored)

    def _rely(self, parameter: str) -> None:
        if parameter not in self.relied:
            self.relied.append(parameter)

    def _chosen(self, parameter: str, options: tuple[str, ...]) -> str:
        chosen = self.instructions.decided.get(parameter)
        if chosen in options:
            return chosen
        if self.instructions.asks:
            raise Undecided(parameter, options)
        return options[0]


def _is_counted(text: str) -> bool:
    """Whether a text is a whole number that a ledger can hold."""
    return text.isdecimal() and len(text) <= 18
