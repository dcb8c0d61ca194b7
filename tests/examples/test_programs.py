"""The example programs by themselves, without the harness: they must mean what the demonstrations say."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
import respx

from examples.five_cuts.intent import ConflictingArguments, Intent
from examples.five_cuts.orchestrator import Orchestrator
from examples.five_cuts.protocols import WAREHOUSES, ProtocolName, Reserve, run
from examples.five_cuts.warehouse import Warehouse, WarehouseWithReceipts
from examples.refund_agent import agent_broken, agent_corrected, agent_recovery_key
from examples.refund_agent.errors import RefundConflict, RefundRejected, RefundUnconfirmed

RESERVE = Intent("tenantA", "reserve42", "bearing", 2)


class Crash(BaseException):
    """Not an Exception, so that no program under test can survive it."""


def reservations(directory: Path, key: str = RESERVE.key) -> int:
    with Warehouse(directory) as warehouse:
        return warehouse.reservations(key)


# Five cuts


@pytest.mark.parametrize("protocol", list(WAREHOUSES))
def test_every_protocol_reserves_once_and_never_redoes_a_done_row(protocol: ProtocolName, tmp_path: Path) -> None:
    """S1.1: without faults nothing tells the protocols apart."""
    for _ in range(3):
        run(protocol, tmp_path, RESERVE)
    assert reservations(tmp_path) == 1
    with Orchestrator(tmp_path) as orchestrator:
        assert orchestrator.state(RESERVE.key) == "done"


def crash_before(reserve: Reserve) -> Reserve:
    def call(intent: Intent, /) -> str:
        raise Crash

    return call


def crash_after(reserve: Reserve) -> Reserve:
    def call(intent: Intent, /) -> str:
        reserve(intent)
        raise Crash

    return call


@pytest.mark.parametrize(
    ("protocol", "through", "effects"),
    [
        ("mark-first", crash_before, 0),
        ("mark-first", crash_after, 1),
        ("outbox-no-dedup", crash_before, 1),
        ("outbox-no-dedup", crash_after, 2),
        ("outbox-dedup", crash_before, 1),
        ("outbox-dedup", crash_after, 1),
    ],
)
def test_a_crash_around_the_call_ends_as_published(
    protocol: ProtocolName, through: Callable[[Reserve], Reserve], effects: int, tmp_path: Path
) -> None:
    """S1.3: the columns of the table that differ, cut by hand."""
    with pytest.raises(Crash):
        run(protocol, tmp_path, RESERVE, through=through)
    run(protocol, tmp_path, RESERVE)
    assert reservations(tmp_path) == effects


@pytest.mark.parametrize(
    ("protocol", "interrupted", "effects"),
    [
        ("receipt-after-effect", "_insert_receipt", 2),
        ("receipt-before-effect", "_insert_reservation", 0),
        ("outbox-dedup", "_insert_receipt", 1),
    ],
)
def test_a_receipt_in_another_transaction_leaves_a_hole(
    protocol: ProtocolName, interrupted: str, effects: int, tmp_path: Path
) -> None:
    """S1.5: in either order; in the same transaction there is none."""

    def crash(self: Warehouse, intent: Intent) -> None:
        raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WAREHOUSES[protocol], interrupted, crash)
        with pytest.raises(Crash):
            run(protocol, tmp_path, RESERVE)
    run(protocol, tmp_path, RESERVE)
    assert reservations(tmp_path) == effects


def test_the_tenant_is_part_of_the_key(tmp_path: Path) -> None:
    """S1.4: the same action of another tenant is another effect."""
    other = Intent("tenantB", RESERVE.action, RESERVE.part, RESERVE.quantity)
    assert (RESERVE.key, other.key) == ("tenantA:reserve42", "tenantB:reserve42")
    run("outbox-dedup", tmp_path, RESERVE)
    run("outbox-dedup", tmp_path, other)
    assert (reservations(tmp_path), reservations(tmp_path, other.key)) == (1, 1)


def test_a_tenant_cannot_forge_another_tenants_key() -> None:
    """S1.4: the separator must not occur in the first part."""
    with pytest.raises(ValueError, match="cannot contain"):
        Intent("a:b", "c", "bearing", 1)


@pytest.mark.parametrize("protocol", ["outbox-dedup", "receipt-after-effect", "receipt-before-effect"])
def test_a_receipt_refuses_other_arguments(protocol: ProtocolName, tmp_path: Path) -> None:
    """S1.4: refused, not replayed, and nothing is reserved."""
    with WAREHOUSES[protocol](tmp_path) as warehouse:
        warehouse.reserve(RESERVE)
        with pytest.raises(ConflictingArguments):
            warehouse.reserve(Intent(RESERVE.tenant, RESERVE.action, RESERVE.part, 3))
        assert warehouse.reservations(RESERVE.key) == 1


def test_the_orchestrator_refuses_other_arguments(tmp_path: Path) -> None:
    """S1.4: a resubmission with other arguments is not the same intent."""
    run("outbox-dedup", tmp_path, RESERVE)
    with pytest.raises(ConflictingArguments):
        run("outbox-dedup", tmp_path, Intent(RESERVE.tenant, RESERVE.action, "gasket", 2))


def test_a_receipt_answers_a_repetition_until_it_is_forgotten(tmp_path: Path) -> None:
    """S1.8: a deleted receipt lets an old attempt act again."""
    with WarehouseWithReceipts(tmp_path) as warehouse:
        first = warehouse.reserve(RESERVE)
        assert warehouse.reserve(RESERVE) == first
        assert warehouse.reservations(RESERVE.key) == 1
        warehouse.forget_receipt(RESERVE.key)
        assert warehouse.reserve(RESERVE) == first
        assert warehouse.reservations(RESERVE.key) == 2


def test_concurrent_arrivals_reserve_once(tmp_path: Path) -> None:
    """S1.6: the look-up and the effect are one write transaction."""
    Warehouse(tmp_path).close()
    together = threading.Barrier(4)
    results: list[str] = []

    def arrive() -> None:
        with WarehouseWithReceipts(tmp_path) as warehouse:
            together.wait(timeout=10)
            results.append(warehouse.reserve(RESERVE))

    threads = [threading.Thread(target=arrive) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["2 x bearing reserved"] * 4
    assert reservations(tmp_path) == 1


# Refund agents

AGENTS = [agent_broken, agent_corrected, agent_recovery_key]
KEEPS_KEY = [agent_corrected, agent_recovery_key]
every_agent = pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.__name__.rpartition(".")[2])
every_agent_that_keeps_its_key = pytest.mark.parametrize(
    "agent", KEEPS_KEY, ids=lambda agent: agent.__name__.rpartition(".")[2]
)

Fault = Callable[[], httpx.Response | None]


class Payments:
    """A provider which deduplicates by Idempotency-Key. Faults happen after it acted, one per arrival."""

    url = "http://payments.test"

    def __init__(self) -> None:
        self.refunds: dict[str, str] = {}
        self.keys: list[str] = []
        self.faults: list[Fault] = []

    def answer(self, request: httpx.Request) -> httpx.Response:
        key = request.headers["Idempotency-Key"]
        self.keys.append(key)
        refund_id = self.refunds.setdefault(key, f"re_{len(self.refunds) + 1}")
        fault = self.faults.pop(0)() if self.faults else None
        return fault or httpx.Response(200, json={"id": refund_id})


def lose_response() -> httpx.Response | None:
    raise httpx.ReadTimeout("response lost")


def server_error() -> httpx.Response | None:
    return httpx.Response(503)


def still_in_progress() -> httpx.Response | None:
    return httpx.Response(409)


def die() -> httpx.Response | None:
    raise Crash


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    return slept


@pytest.fixture
def payments(respx_mock: respx.MockRouter, sleeps: list[float]) -> Payments:
    fake = Payments()
    respx_mock.post(f"{fake.url}/refunds").mock(side_effect=fake.answer)
    return fake


def refund(agent: ModuleType, tmp_path: Path, amount: int = 500) -> Any:
    """One life of the process."""
    return agent.RefundAgent(tmp_path / "agent.db", Payments.url).refund("order_123", amount)


def task(tmp_path: Path) -> Any:
    with closing(sqlite3.connect(tmp_path / "agent.db")) as conn:
        return conn.execute("SELECT amount, status, idempotency_key, refund_id FROM tasks").fetchone()


@every_agent
def test_a_done_refund_is_not_sent_again(agent: ModuleType, payments: Payments, tmp_path: Path) -> None:
    """A restart after completion answers from the task."""
    assert [refund(agent, tmp_path), refund(agent, tmp_path)] == ["re_1", "re_1"]
    assert len(payments.keys) == 1
    assert task(tmp_path) == (500, "done", payments.keys[0], "re_1")


@pytest.mark.parametrize("fault", [lose_response, server_error, still_in_progress])
@every_agent_that_keeps_its_key
def test_a_retry_sends_the_same_key(
    agent: ModuleType, fault: Fault, payments: Payments, sleeps: list[float], tmp_path: Path
) -> None:
    """Within one life even the agent with the broken recovery is right."""
    payments.faults = [fault, fault]
    refund(agent, tmp_path)
    assert len(payments.keys) == 3
    assert len(payments.refunds) == 1
    assert sleeps == [0.5, 1.0]


def test_a_key_per_attempt_refunds_twice(payments: Payments, tmp_path: Path) -> None:
    """The broken agent is convicted by one lost response."""
    payments.faults = [lose_response]
    refund(agent_broken, tmp_path)
    assert len(payments.refunds) == 2


@every_agent
def test_no_answer_is_no_claim(agent: ModuleType, payments: Payments, tmp_path: Path) -> None:
    """A time-out says nothing about the refund."""
    payments.faults = [lose_response] * 4
    with pytest.raises(RefundUnconfirmed):
        refund(agent, tmp_path)
    assert task(tmp_path)[1] != "done"


@every_agent_that_keeps_its_key
def test_a_restart_after_no_answer_sends_the_same_key(agent: ModuleType, payments: Payments, tmp_path: Path) -> None:
    """The key outlives the process that made it."""
    payments.faults = [lose_response] * 4
    with pytest.raises(RefundUnconfirmed):
        refund(agent, tmp_path)
    assert refund(agent, tmp_path) == "re_1"
    assert len(payments.refunds) == 1


@every_agent
def test_a_refusal_is_raised_and_not_retried(
    agent: ModuleType, payments: Payments, sleeps: list[float], tmp_path: Path
) -> None:
    """A 4xx answer is an answer."""
    payments.faults = [lambda: httpx.Response(402, json={"error": "insufficient balance"})]
    with pytest.raises(RefundRejected, match="402"):
        refund(agent, tmp_path)
    assert sleeps == []


@every_agent
def test_another_amount_is_a_conflict(agent: ModuleType, payments: Payments, tmp_path: Path) -> None:
    """Neither replayed nor paid."""
    refund(agent, tmp_path)
    with pytest.raises(RefundConflict):
        refund(agent, tmp_path, amount=700)
    assert len(payments.keys) == 1


class CrashingConnection(sqlite3.Connection):
    """Dies instead of the commit that `commits_left` counts down to."""

    commits_left = 0

    def __exit__(self, kind: Any, error: Any, trace: Any) -> Any:
        if error is None:
            if CrashingConnection.commits_left == 0:
                self.rollback()
                raise Crash
            CrashingConnection.commits_left -= 1
        return super().__exit__(kind, error, trace)


def crash_at_commit(agent: ModuleType, number: int, tmp_path: Path) -> None:
    """One life that dies just before its commit of that number, from 0."""
    connect = sqlite3.connect
    CrashingConnection.commits_left = number
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sqlite3.connect", lambda path: connect(path, factory=CrashingConnection))
        with pytest.raises(Crash):
            refund(agent, tmp_path)


@pytest.mark.parametrize(
    ("agent", "commit"),
    [
        *((agent_corrected, commit) for commit in range(2)),
        *((agent_recovery_key, commit) for commit in range(3)),
    ],
)
def test_one_crash_at_any_commit_is_survived(
    agent: ModuleType, commit: int, payments: Payments, tmp_path: Path
) -> None:
    """The recovery that is wrong looks right to every test that crashes once."""
    crash_at_commit(agent, commit, tmp_path)
    refund(agent, tmp_path)
    assert len(payments.refunds) == 1


@every_agent_that_keeps_its_key
def test_one_crash_after_sending_is_survived(agent: ModuleType, payments: Payments, tmp_path: Path) -> None:
    """The key was stored before the request left."""
    payments.faults = [die]
    with pytest.raises(Crash):
        refund(agent, tmp_path)
    refund(agent, tmp_path)
    assert len(payments.refunds) == 1


@pytest.mark.parametrize(
    ("agent", "refunds"), [(agent_corrected, 1), (agent_recovery_key, 2)], ids=["corrected", "recovery_key"]
)
def test_a_crash_in_the_recovery_tells_the_agents_apart(
    agent: ModuleType, refunds: int, payments: Payments, tmp_path: Path
) -> None:
    """Only a second crash convicts the recovery that makes a key before it stores one."""
    crash_at_commit(agent, 1, tmp_path)
    payments.faults = [die]
    with pytest.raises(Crash):
        refund(agent, tmp_path)
    refund(agent, tmp_path)
    assert len(payments.refunds) == refunds
