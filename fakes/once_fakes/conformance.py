"""Does a fake, or a real sandbox, keep what its contract promises? Tests to import.

    from once_fakes.conformance import Conformance, Subject

    class TestMine(Conformance):
        @pytest.fixture
        def subject(self, tmp_path):
            mine = MyFake(tmp_path)
            return Subject(contract=MY_CONTRACT, send=mine.send, effects=mine.count)

A test that cannot be asked of a subject is skipped and says why. What a contract leaves unspecified may be answered in
any of the documented ways, but in one of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import SkipTest

from once_fakes.contract import UNSPECIFIED, Contract
from once_fakes.dialect import Request, dialect_of
from once_fakes.wire import handle_http
from pytest_once.ledger import Ledger

_CALLERS = 20
"""Requests that are sent at the same time."""


@dataclass(frozen=True, slots=True)
class Said:
    """An answer, read. status: HTTP status."""

    status: int
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is tested.

    contract: what it promises; its dialect gives the example requests. send: sends one request and answers with status,
    headers and body. effects: how many effects there have been, accepted ones included; None for a sandbox that does
    not tell. advance: lets so many seconds pass; None where time is real. unique: makes the keys of one test differ
    from those of earlier runs, for a sandbox that remembers them. crash_build: makes the fake anew on a directory that
    holds all its state, for a fake in Python on SQLite that can be crashed at each of its commits. crash_count: the
    file there, and the query for rows of (logical key, number of effects).
    """

    contract: Contract
    send: Callable[[Request], Said]
    effects: Callable[[], int] | None = None
    advance: Callable[[float], None] | None = None
    unique: str = ""
    crash_build: Callable[[Path], Callable[[Request], Said]] | None = None
    crash_count: tuple[str, str] | None = None

    def ask(self, key: str | None, variant: int = 0) -> Said:
        """Send the dialect's example under an identity."""
        return self.send(self.example(key, variant))

    def example(self, key: str | None, variant: int = 0) -> Request:
        """The dialect's example under an identity."""
        named = None if key is None else f"{key}{self.unique}"
        return dialect_of(self.contract).example(self.contract, named, variant)


class Conformance:
    """Tests of one subject; a subclass gives the fixture `subject`."""

    def test_a_request_acts(self, subject: Subject) -> None:
        """Without that, no other answer means anything."""
        before = _count(subject)
        said = subject.ask("first")
        _require(said.status < 300, f"a valid request was answered with {said.status}: {_shown(said)}")
        _require_effects(subject, before, 1, "one valid request")

    def test_another_identity_is_another_effect(self, subject: Subject) -> None:
        """A provider that takes two intents for one loses the second."""
        before = _count(subject)
        _accepted(subject.ask("one"))
        _accepted(subject.ask("another", variant=1))
        _require_effects(subject, before, 2, "two requests with different identities")

    def test_a_repetition_is_treated_as_promised(self, subject: Subject) -> None:
        """The promise itself: the same request again."""
        contract = subject.contract
        before = _count(subject)
        first = _accepted(subject.ask("again"))
        second = subject.ask("again")
        if contract.dedup == "none":
            _accepted(second)
            _require_effects(subject, before, 2, "a repetition to a provider that recognises none")
            return
        _require_effects(subject, before, 1, "a request and its repetition")
        if contract.dedup in ("natural_key", "content_window", "conditional"):
            _require_status(second, contract.conflict_status, "a repetition is to be refused")
            return
        _accepted(second)
        if contract.dedup != "client_key":
            return
        if contract.replay_header:
            mark = {name.lower(): value for name, value in second.headers.items()}.get(contract.replay_header.lower())
            _require(mark is not None, f"a replayed answer has no header {contract.replay_header}")
        if contract.replay_body == "original":
            _require(
                (first.status, first.content) == (second.status, second.content),
                f"replay_body='original', but the repetition was answered with {second.status} {_shown(second)} "
                f"after {first.status} {_shown(first)}",
            )

    def test_the_same_key_with_another_payload(self, subject: Subject) -> None:
        """A key that is not bound to its request swallows another intent."""
        contract = _keyed(subject)
        before = _count(subject)
        first = _accepted(subject.ask("bound"))
        second = subject.ask("bound", variant=1)
        executed = _effects_since(subject, before)
        seen = {
            "error": second.status >= 400 or _is_refusal(first, second),
            "replay": second.status < 300 and executed in (None, 1),
            "execute": second.status < 300 and executed in (None, 2),
        }
        allowed = tuple(seen) if contract.on_mismatch == UNSPECIFIED else (contract.on_mismatch,)
        _require(
            any(seen[way] for way in allowed),
            f"on_mismatch={contract.on_mismatch!r}, but the same key with another payload was answered with "
            f"{second.status} {_shown(second)}" + ("" if executed is None else f" and had {executed} effects in all"),
        )
        if contract.on_mismatch == "error":
            _require_effects(subject, before, 1, "a key used for two payloads")
            if second.status >= 400:
                _require_status(second, contract.mismatch_status, "mismatch_status")

    def test_a_request_without_identity(self, subject: Subject) -> None:
        """Whether forgetting the key is noticed."""
        contract = subject.contract
        if contract.dedup in ("none", "content_window"):
            raise SkipTest(f"dedup={contract.dedup!r} looks at no key")
        before = _count(subject)
        said = subject.ask(None)
        if contract.on_missing_key == "error":
            if not _is_refusal(None, said):
                _require_status(said, contract.missing_key_status, "on_missing_key='error'")
            _require_effects(subject, before, 0, "a request without key")
        else:
            _accepted(said)
            _accepted(subject.ask(None))
            _require_effects(subject, before, 2, "two requests without key")

    def test_an_unusable_key(self, subject: Subject) -> None:
        """A key that cannot be stored must not be taken for none."""
        contract = _keyed(subject)
        before = _count(subject)
        said = subject.ask("k" * (contract.max_key_length + 1))
        _require(
            400 <= said.status < 500 or _is_refusal(None, said),
            f"a key of {contract.max_key_length + 1} characters was answered with {said.status}",
        )
        _require_effects(subject, before, 0, "a request with an unusable key")

    def test_a_receipt_is_kept_as_long_as_promised(self, subject: Subject) -> None:
        """A receipt forgotten early lets a retry act that relied on the promise."""
        contract = _keyed(subject)
        advance = _timed(subject)
        kept = contract.retention_s
        if isinstance(kept, str):
            raise SkipTest("the retention is not documented, so none is promised")
        least = kept[0] if isinstance(kept, tuple) else kept
        before = _count(subject)
        _accepted(subject.ask("kept"))
        advance(10 * 365 * 86400.0 if least is None else least - 1)
        _accepted(subject.ask("kept"))
        promised = "for ever" if least is None else f"for {least:g} s"
        _require_effects(subject, before, 1, f"a repetition while the receipt is promised to be kept ({promised})")

    def test_a_receipt_is_forgotten_when_it_expires(self, subject: Subject) -> None:
        """Code that is right only if receipts live longer must not look right."""
        contract = _keyed(subject)
        advance = _timed(subject)
        kept = contract.retention_s
        most = kept[1] if isinstance(kept, tuple) else kept
        if most is None or isinstance(most, str):
            raise SkipTest("receipts need not be forgotten at any time")
        before = _count(subject)
        _accepted(subject.ask("expires"))
        advance(most + 1)
        _accepted(subject.ask("expires"))
        _require_effects(subject, before, 2, f"a repetition {most + 1:g} s later, when the receipt has expired")

    def test_content_is_compared_within_its_window(self, subject: Subject) -> None:
        """The window is all the protection there is."""
        window_s = subject.contract.window_s
        if window_s is None:
            raise SkipTest("dedup is not 'content_window'")
        advance = _timed(subject)
        before = _count(subject)
        _accepted(subject.ask("same"))
        advance(window_s - 1)
        _require_status(subject.ask("same"), subject.contract.conflict_status, "the same content within the window")
        advance(2.0)
        _accepted(subject.ask("same"))
        _require_effects(subject, before, 2, "the same content within and after the window")

    def test_concurrent_requests_with_one_identity(self, subject: Subject) -> None:
        """Isolation and a unique constraint, not luck, keep the effect single (two callers may both see no receipt)."""
        contract = subject.contract
        if contract.dedup == "none":
            raise SkipTest("every request acts")
        before = _count(subject)
        with ThreadPoolExecutor(_CALLERS) as threads:
            answers = list(threads.map(lambda _: subject.ask("together"), range(_CALLERS)))
        _require(any(said.status < 300 for said in answers), "none of the concurrent requests was accepted")
        for said in answers:
            expected = (contract.concurrent_status, contract.conflict_status)
            _require(
                said.status < 300 or said.status in expected,
                f"a concurrent repetition was answered with {said.status}: {_shown(said)}",
            )
        if contract.on_concurrent in ("race", UNSPECIFIED):
            return
        _require_effects(subject, before, 1, f"{_CALLERS} concurrent requests with one identity")

    def test_a_crash_of_the_provider_leaves_effect_and_receipt_together(self, subject: Subject) -> None:
        """A receipt in another transaction than its effect moves the hole to the receiver, in either order."""
        contract = _keyed(subject)
        if subject.crash_build is None or subject.crash_count is None:
            raise SkipTest("the subject cannot be crashed: crash_build and crash_count are not given")
        if contract.atomicity != "atomic":
            raise SkipTest(f"atomicity={contract.atomicity!r} promises nothing about crashes")
        from pytest_once import explore

        build, (file, query) = subject.crash_build, subject.crash_count
        request = subject.example("crashed")

        def body(once: Any) -> None:
            send = build(once.path)
            once.count(once.path / file, query)
            said = send(request)
            if said.status >= 300:
                raise RuntimeError(f"refused with {said.status}")

        report = explore(body, profile="crash")
        _require(
            report.passed,
            f"atomicity='atomic', but a crash of the provider and a repetition of the request gave {report.verdict}: "
            f"{report.problem or '; '.join(str(violation) for violation in report.violations[:1])}",
        )

    def test_lookups_show_what_was_done(self, subject: Subject) -> None:
        """Reconciliation rests on it: what was done is found, and what was not is not."""
        contract = subject.contract
        if contract.lookup == "none":
            raise SkipTest("the contract promises no look-up")
        dialect = dialect_of(contract)
        _accepted(subject.ask("sought"))
        if contract.visibility_lag_s:
            advance = _timed(subject)
            listed = subject.send(dialect.example_lookup(contract, None))
            _require("sought" not in _text(listed), "a look-up shows an effect before its visibility lag is over")
            advance(contract.visibility_lag_s + 1)
        listed = subject.send(dialect.example_lookup(contract, None))
        _accepted(listed)
        _require("sought" in _text(listed), f"a list does not show what was done: {_shown(listed)}")
        if contract.lookup == "list_only":
            return
        found = subject.send(dialect.example_lookup(contract, f"sought{subject.unique}"))
        _accepted(found)
        _require("sought" in _text(found), f"a look-up by reference does not show what was done: {_shown(found)}")
        missing = subject.send(dialect.example_lookup(contract, f"never-done{subject.unique}"))
        if missing.status >= 300 or "sought" in _text(missing):  # a search for one may also find nothing
            _require_status(missing, 404, "a look-up of something that was never asked for")

    def test_accepted_work_is_done_in_time(self, subject: Subject) -> None:
        """202 is a promise to be done later, or to say that it failed."""
        contract = subject.contract
        if contract.acceptance != "async202":
            raise SkipTest("the contract answers after the effect")
        advance = _timed(subject)
        first = _accepted(subject.ask("later"))
        advance(contract.completes_after_s + 1)
        if contract.lookup == "none":
            raise SkipTest("the contract has no look-up that could tell")
        listed = subject.send(dialect_of(contract).example_lookup(contract, None))
        _accepted(listed)
        _require(listed.content != first.content, "accepted work looks the same after its time as before")

    def test_a_body_that_cannot_be_read(self, subject: Subject) -> None:
        """Bad input gets an error document, and nothing is done."""
        request = subject.example("bad")
        if not request.body:
            raise SkipTest("the example has no body")
        before = _count(subject)
        said = subject.send(replace(request, body=b'{"\xff'))
        _require(
            400 <= said.status < 500 or _is_refusal(None, said),
            f"a body that cannot be read was answered with {said.status}: {_shown(said)}",
        )
        _require(b"Traceback" not in said.content, "the answer shows a traceback")
        _require_effects(subject, before, 0, "a body that cannot be read")

    def test_an_unknown_method(self, subject: Subject) -> None:
        """A wrong method is refused in the provider's own words, and nothing is done."""
        before = _count(subject)
        said = subject.send(replace(subject.example("method"), method="PROPFIND"))
        _require(400 <= said.status < 500, f"the method PROPFIND was answered with {said.status}: {_shown(said)}")
        _require_effects(subject, before, 0, "a request with an unknown method")


def ledger_subject(contract: Contract, directory: Path) -> Subject:
    """A contract of this package as a subject, on a ledger of its own in the directory."""
    ledger = Ledger.create(directory / f"{contract.name}.db")
    ledger.record_provider("provider", contract.to_json(), None, None)
    clock = [1_900_000_000.0]
    ledger.set_now(clock[0])

    def send(request: Request) -> Said:
        path = f"{request.path}?{request.query}" if request.query else request.path
        reply = handle_http(ledger, "provider", contract, request.method, path, request.headers, request.body)
        return Said(reply.status, reply.headers, reply.content)

    def advance(seconds: float) -> None:
        clock[0] += seconds
        ledger.set_now(clock[0])

    return Subject(
        contract=contract,
        send=send,
        effects=lambda: sum(effect.state != "failed" for effect in ledger.begun()),
        advance=advance,
    )


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)


def _require_status(said: Said, status: int, why: str) -> None:
    _require(said.status == status, f"{why}: expected {status}, got {said.status} {_shown(said)}")


def _accepted(said: Said) -> Said:
    _require(said.status < 300, f"a valid request was refused with {said.status}: {_shown(said)}")
    return said


def _is_refusal(first: Said | None, said: Said) -> bool:
    """Whether a successful status carries an error document, as GraphQL and some chat services answer."""
    text = _text(said).lower()
    return said.status < 300 and "error" in text and (first is None or said.content != first.content)


def _count(subject: Subject) -> int | None:
    return None if subject.effects is None else subject.effects()


def _effects_since(subject: Subject, before: int | None) -> int | None:
    after = _count(subject)
    return None if before is None or after is None else after - before


def _require_effects(subject: Subject, before: int | None, expected: int, what: str) -> None:
    made = _effects_since(subject, before)
    _require(made in (None, expected), f"{what} had {made} effects, where {expected} are promised")


def _keyed(subject: Subject) -> Contract:
    if subject.contract.dedup != "client_key":
        raise SkipTest(f"dedup={subject.contract.dedup!r} has no client's key")
    return subject.contract


def _timed(subject: Subject) -> Callable[[float], None]:
    if subject.advance is None:
        raise SkipTest("time cannot be moved for this subject")
    return subject.advance


def _text(said: Said) -> str:
    return said.content.decode("utf-8", "replace")


def _shown(said: Said) -> str:
    text = _text(said)
    return json.dumps(text if len(text) <= 300 else f"{text[:300]}…", ensure_ascii=False)
