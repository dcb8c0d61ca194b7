"""The ledger is the only witness of what providers did: what it says must be complete and safe to share."""

from __future__ import annotations

import multiprocessing
import sqlite3
import sys
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from pytest_once import ledger as ledger_module
from pytest_once.ledger import (
    Arrival,
    Counter,
    Declared,
    Effect,
    Held,
    Intent,
    Ledger,
    LedgerSnapshot,
    Receipt,
    Told,
    account_of,
    canonical_payload,
    region_of,
)
from pytest_once.ledger.within import insert_arrival, store_receipt, take_held


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "ledger.db")


def test_what_is_written_is_read_back_as_rows(ledger: Ledger) -> None:
    """Reports are made of these rows, so each kind must come back as it went in."""
    ledger.record_provider("pay", "{}", "order", "https://pay.once.invalid")
    ledger.declare_intent("order_1", 2, "pay")
    ledger.declare_counter("mails", "agent.db", "SELECT count(*) FROM mails")
    effect = ledger.record_call("pay", "refund", "order_1", '{"amount":5}')
    ledger.record_told(effect.arrival, "pay", "refund", "200")
    with ledger.transaction() as connection:
        store_receipt(connection, Receipt("pay", "k", "f", 200, "{}", effect.id))

    assert ledger.providers() == [Declared("pay", "{}", "order", "https://pay.once.invalid")]
    assert ledger.provider("mail") is None
    assert ledger.intents() == [Intent("order_1", 2, "pay")]
    assert ledger.counters() == [Counter("mails", "agent.db", "SELECT count(*) FROM mails")]
    assert ledger.arrivals() == [Arrival(1, "pay", "refund", None, '{"amount":5}', 1, "executed", 200)]
    assert ledger.effects() == [effect] == [Effect(1, "pay", "refund", "order_1", '{"amount":5}', 1, number=1)]
    assert ledger.told() == [Told(1, 1, "pay", "refund", 1, "200")]
    assert ledger.receipts() == [Receipt("pay", "k", "f", 200, "{}", 1)]


def test_arrivals_belong_to_the_incarnation_that_was_begun(ledger: Ledger) -> None:
    """A story of several lives must say in which of them a request was sent."""
    ledger.record_call("pay", "refund", None, "1")
    ledger.begin_incarnation(3)
    ledger.record_call("pay", "refund", None, "2")
    ledger.record_told(None, "pay", "refund", "TimeoutError")

    assert ledger.incarnation() == 3
    assert [arrival.incarnation for arrival in ledger.arrivals()] == [1, 3]
    assert ledger.told()[0].incarnation == 3


def test_declaring_again_is_fine_and_declaring_otherwise_is_not(ledger: Ledger) -> None:
    """Every incarnation declares anew; two meanings of one name would make verdicts meaningless."""
    for _ in range(2):
        ledger.record_provider("pay", "{}", None, None)
        ledger.declare_intent("order_1")
        ledger.declare_counter("mails", "a.db", "SELECT 1")

    with pytest.raises(ValueError, match="provider 'pay' is already declared with contract"):
        ledger.record_provider("pay", '{"dedup":"none"}', None, None)
    with pytest.raises(ValueError, match="and key field None; use another name"):
        ledger.record_provider("pay", "{}", "order", None)
    with pytest.raises(ValueError, match="'order_1' is already declared in intents with count=1"):
        ledger.declare_intent("order_1", 2)
    with pytest.raises(ValueError, match="'mails' is already declared in counters"):
        ledger.declare_counter("mails", "b.db", "SELECT 1")
    with pytest.raises(ValueError, match="must be 0 or more"):
        ledger.declare_intent("order_2", -1)


def test_memory_keeps_json_values_and_defaults(ledger: Ledger) -> None:
    """The upstream caller's memory is part of the world and must outlive the process."""
    ledger.remember("acknowledged", {"order": [1, None]})
    ledger.remember("acknowledged", {"order": [2, None]})

    assert ledger.recall("acknowledged") == {"order": [2, None]}
    assert ledger.recall("never", default=0) == 0


def test_a_transaction_that_raises_leaves_nothing(ledger: Ledger) -> None:
    """An arrival without its effect would look like a provider that broke its contract."""

    def half() -> None:
        with ledger.transaction() as connection:
            insert_arrival(connection, "pay", "refund", key=None, payload="1", outcome="executed", status=200)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half()
    assert ledger.arrivals() == []


def http_request(body: bytes = b"{}", path: str = "/r", **headers: str) -> dict[str, Any]:
    return {"method": "POST", "path": path, "headers": headers, "body": body}


def test_requests_in_flight_are_state(ledger: Ledger) -> None:
    """A request that may still take effect distinguishes two worlds that look alike otherwise."""
    ledger.record_provider("pay", '{"key_header":"Idem"}', None, None)
    ledger.begin_incarnation(2)
    ledger.hold("pay", "refund", {"payload": "1", "key": "k"})
    ledger.hold("pay", "refund", {"payload": "2", "key": None})

    first = Held(1, "pay", "refund", "k", "1", {"payload": "1", "key": "k"}, 2)
    assert ledger.in_flight() == [first, Held(2, "pay", "refund", None, "2", {"payload": "2", "key": None}, 2)]
    assert ledger.state_rows() == [
        ("in_flight", ("pay", "refund", "k", "1", None)),
        ("in_flight", ("pay", "refund", None, "2", None)),
    ]
    with ledger.transaction() as connection:
        assert take_held(connection, 1) == first
    assert [held.id for held in ledger.in_flight()] == [2]
    assert ledger.arrivals() == []


@pytest.mark.parametrize("number", [-1, 0, 2])
def test_only_what_is_on_its_way_can_be_taken(ledger: Ledger, number: int) -> None:
    """A schedule that no longer fits the code must be noticed, not deliver another request."""
    ledger.record_provider("pay", "{}", None, None)
    ledger.hold("pay", "refund", {"payload": "1", "key": None})
    with ledger.transaction() as connection, pytest.raises(LookupError, match=f"no request number {number}"):
        take_held(connection, number)


def test_a_held_http_request_keeps_its_bytes_and_no_credentials(ledger: Ledger) -> None:
    """It must arrive as it was sent, and ledgers end up in bug trackers."""
    ledger.record_provider("pay", '{"key_header":"X-Idem-Token"}', None, None)
    secrets = {"Authorization": "s3cret", "COOKIE": "s3cret", "X-Api-Key": "s3cret"}
    ledger.hold("pay", "POST /r", http_request(b"\x00\xff", "/r?a=1", **secrets, **{"x-idem-token": "k", "Via": "v"}))

    (held,) = ledger.in_flight()
    account = account_of({"authorization": "s3cret"})
    kept = {"x-idem-token": "k", "via": "v", "once-account": account}
    assert held.key == "k"
    assert held.request == {"method": "POST", "path": "/r?a=1", "headers": kept, "body": b"\x00\xff"}
    assert b"s3cret" not in ledger.path.read_bytes()


SIGNED = "AWS4-HMAC-SHA256 Credential=AKID{}/20301130/{}/sqs/aws4_request, SignedHeaders=host, Signature={}"


def test_a_held_request_still_says_who_asks_and_where(ledger: Ledger) -> None:
    """A key is unique within an account or a region; a late copy that has lost them would be another request."""
    ledger.record_provider("pay", '{"key_header":"Idempotency-Key"}', None, None)
    for secret in (
        {"Authorization": "Bearer s3cret"},
        {"X-Postmark-Server-Token": "s3cret"},
        {"Authorization": SIGNED.format("", "eu-west-1", "s3cret"), "X-Amz-Security-Token": "s3cret"},
    ):
        ledger.hold("pay", "POST /r", http_request(b"1", **secret))
        sent = {name.lower(): value for name, value in secret.items()}
        kept = ledger.in_flight()[-1].request["headers"]
        assert (account_of(kept), region_of(kept)) == (account_of(sent), region_of(sent))
        assert account_of(sent)
    assert region_of(kept) == "eu-west-1"
    assert b"s3cret" not in ledger.path.read_bytes()


def test_an_account_is_not_its_signature() -> None:
    """Each attempt is signed anew."""

    def account(key: str, signature: str) -> str:
        return account_of({"authorization": SIGNED.format(key, "eu-west-1", signature)})

    assert account("1", "a") == account("1", "b") != account("2", "a")
    assert account_of({"accept": "*/*"}) == region_of({"authorization": "Bearer 1"}) == ""


def test_held_http_requests_are_told_apart_by_what_a_contract_reads(tmp_path: Path) -> None:
    """Worlds are merged by these rows: other requests are other worlds, another trace id is not."""

    def state(request: dict[str, Any]) -> list[tuple[str, tuple[Any, ...]]]:
        ledger = Ledger.create(tmp_path / f"{len(list(tmp_path.iterdir()))}.db")
        ledger.record_provider("pay", '{"key_header":"Idem"}', None, None)
        ledger.hold("pay", "POST /r", request)
        return ledger.state_rows()

    same = state(http_request(b"1", idem="k", trace="1"))
    assert same == state(http_request(b"1", Idem="k", trace="2"))
    others = (
        http_request(b"2", idem="k"),
        http_request(b"1", idem="l"),
        http_request(b"1"),
        http_request(b"1", "/r?a=1", idem="k"),
        http_request(b"1", idem="k", **{"content-type": "text/plain"}),
        http_request(b"\xff", idem="k"),
    )
    assert all(state(other) != same for other in others)


def test_only_a_declared_provider_can_be_on_the_way_to(ledger: Ledger) -> None:
    """Nobody could receive it."""
    with pytest.raises(LookupError, match="no provider 'mail' is declared in"):
        ledger.hold("mail", "send", {"payload": "1", "key": None})


def test_the_providers_time_is_kept_and_is_no_state(ledger: Ledger) -> None:
    """What a contract does with time is state; the time of day is not."""
    assert abs(ledger.now_s() - time.time()) < 60  # nobody has said otherwise: a plain run
    ledger.set_now(1930367167.25)
    ledger.set_now(1930367168)
    picture = ledger.path.read_bytes()
    ledger.set_now(1930367168.0)
    assert ledger.path.read_bytes() == picture
    assert ledger.now_s() == LedgerSnapshot(picture).now_s() == 1930367168.0
    assert ledger.state_rows() == []


def test_state_has_no_history_in_it(ledger: Ledger) -> None:
    """If evidence entered the digest, every attempt would be a new state and no search would close."""
    effect = ledger.record_call("pay", "refund", "order_1", "1")
    with ledger.transaction() as connection:
        store_receipt(connection, Receipt("pay", "k", "f", 200, "{}", effect.id))
    ledger.remember("told", True)
    before = ledger.state_rows()

    ledger.begin_incarnation(7)
    ledger.record_told(1, "pay", "refund", "200")
    ledger.record_provider("mail", "{}", None, None)
    with ledger.transaction() as connection:
        insert_arrival(connection, "pay", "refund", key="k", payload="1", outcome="replayed", status=200)

    assert ledger.state_rows() == before
    assert before == [
        ("effects", ("pay", "refund", "order_1", "1", None, None, "done", None)),
        ("receipts", ("pay", "k", "f", 200, "{}", None, None)),
        ("memory", ("told", "true")),
    ]


def test_a_snapshot_answers_as_the_file_did(ledger: Ledger) -> None:
    """The controller judges pictures, never the live file."""
    ledger.record_call("pay", "refund", "order_1", "1")
    ledger.declare_intent("order_1")
    snapshot = LedgerSnapshot(ledger.path.read_bytes())
    ledger.record_call("pay", "refund", "order_1", "1")

    assert len(snapshot.effects()) == 1
    assert snapshot.intents() == ledger.intents()
    assert snapshot.state_rows() == ledger.state_rows()[:1]
    assert len(ledger.effects()) == 2


def test_restoring_the_file_between_operations_is_seen(ledger: Ledger) -> None:
    """No connection may outlive an operation, or it would go on with the world before the crash."""
    picture = ledger.path.read_bytes()
    ledger.record_call("pay", "refund", None, "1")
    ledger.path.unlink()
    ledger.path.write_bytes(picture)

    assert ledger.effects() == []
    assert [path.name for path in ledger.path.parent.iterdir()] == ["ledger.db"]


def test_a_missing_file_is_said_and_not_created(tmp_path: Path) -> None:
    """SQLite would make an empty file, and 'no such table' would not name the reason."""
    missing = Ledger(tmp_path / "gone.db")
    with pytest.raises(FileNotFoundError, match=r"no ledger at .*gone\.db; Ledger\.create"):
        missing.effects()
    assert not missing.path.exists()
    Ledger.create(missing.path)
    with pytest.raises(FileExistsError):
        Ledger.create(missing.path)


def test_a_path_with_odd_characters_works(tmp_path: Path) -> None:
    """Parametrised tests have such names, and the path becomes a URI."""
    ledger = Ledger.create(tmp_path / "a b?[c]%20#é.db")
    ledger.record_call("pay", "refund", None, "1")
    assert len(Ledger(ledger.path).effects()) == 1


def test_the_ledger_goes_on_when_sqlite_is_patched(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own bookkeeping must not be announced as a boundary of the code under test."""

    def patched(*_: object, **__: object) -> None:
        raise AssertionError("the ledger went through the patched connect")

    original = sqlite3.connect
    for module in list(sys.modules.values()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is original:
                monkeypatch.setattr(module, name, patched)

    assert not any(value is patched for value in vars(ledger_module).values())
    ledger.record_call("pay", "refund", None, "1")
    assert len(LedgerSnapshot(ledger.path.read_bytes()).effects()) == 1


def _record_many(path: Path) -> None:
    for number in range(20):
        Ledger(path).record_call("pay", "refund", None, str(number))


def test_processes_and_threads_share_it(ledger: Ledger) -> None:
    """A child, the parent and the server write at the same time; none may lose a row or fail on a lock."""
    process = multiprocessing.get_context("fork").Process(target=_record_many, args=(ledger.path,))
    process.start()
    threads = [threading.Thread(target=_record_many, args=(ledger.path,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    process.join()

    assert process.exitcode == 0
    assert [effect.id for effect in ledger.effects()] == list(range(1, 61))


@dataclass
class Point:
    x: int


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None, 1.5]}, '{"a":[true,null,1.5],"b":1}'),
        ("é", '"é"'),
        (b"\x00\xff", '{"bytes":"00ff"}'),
        ((1, {2}), "[1,[2]]"),
        (Path("a/b"), '"a/b"'),
        (Decimal("1.50"), '"1.50"'),
        (datetime(2024, 1, 2, tzinfo=UTC), '"2024-01-02T00:00:00+00:00"'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Point(1), '"Point(x=1)"'),
        ({1: "a", None: "b"}, '{"1":"a","null":"b"}'),
        (float("nan"), '{"float":"nan"}'),
        ("\ud800", '"\\ud800"'),
    ],
)
def test_payloads_have_one_canonical_text(value: object, text: str) -> None:
    """Payloads are compared as text, so equal values must have equal texts, whatever their type."""
    assert canonical_payload(value) == text


def test_an_object_without_repr_has_no_address_in_its_text() -> None:
    """An address differs in every incarnation and would make each a new state."""
    assert canonical_payload([object(), object()]) == '["<object object>","<object object>"]'
