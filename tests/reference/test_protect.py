"""Tools behind the gate: frameworks that retry around them, sync and async."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_once.reference.databases import AsyncSQLite, SQLite
from pytest_once.reference.gate import (
    AsyncGate,
    Conflict,
    Gate,
    Unknown,
)
from pytest_once.reference.routing import Level
from pytest_once.reference.transitions import Attempt
from tests.reference.gates import Provider


def test_a_frameworks_retries_around_a_protected_tool_are_harmless(tmp_path: Path) -> None:
    """S4.8, S4.11, S3.1: outside the gate they get Unknown or the receipt. Without it, the same loop acts thrice."""
    database = SQLite(tmp_path / "gate.db")
    database.migrate()
    gate, provider = Gate(database), Provider()

    def refund(order: str, amount: int) -> str:
        provider.effects.append(order)
        raise TimeoutError("no answer")

    def retried(tool: Callable[..., Any]) -> list[str]:
        ended = []
        for _ in range(3):
            try:
                tool("order_1", amount=5)
            except Exception as error:
                ended.append(type(error).__name__)
        return ended

    protected = gate.protect(intent=lambda order, **_: f"shop:{order}:refund:pay")(refund)
    assert retried(protected) == ["Unknown"] * 3 and len(provider.effects) == 1
    assert retried(refund) == ["TimeoutError"] * 3 and len(provider.effects) == 4
    database.close()


def test_a_protected_tool_gives_the_attempt_and_hides_it(tmp_path: Path) -> None:
    """S4.11: the tool needs the key; the model must not be asked for it."""
    database = SQLite(tmp_path / "gate.db")
    database.migrate()
    keys = []

    @Gate(database).protect(intent="intent_id", level=Level.L2, binds=("amount",))
    def pay(intent_id: str, amount: int, note: str = "", *, attempt: Attempt) -> dict[str, Any]:
        """Pay."""
        keys.append(attempt.key)
        return {"paid": amount}

    call: Any = pay
    assert call("i1", 5) == {"paid": 5}
    assert call(intent_id="i1", amount=5, note="reworded") == {"paid": 5}
    with pytest.raises(Conflict):
        call("i1", 6)
    assert keys == ["i1"]
    assert list(inspect.signature(pay).parameters) == ["intent_id", "amount", "note"]
    assert pay.__doc__ == "Pay." and "attempt" not in pay.__annotations__
    database.close()


def test_an_async_tool_is_protected_alike(tmp_path: Path) -> None:
    """S4.11: coroutine tools, and callers that are cancelled while the request is out."""

    async def scenario() -> list[Any]:
        database = AsyncSQLite(tmp_path / "gate.db")
        await database.migrate()
        gate = AsyncGate(database)
        started, calls = asyncio.Event(), []

        @gate.protect(intent="intent_id")
        async def pay(intent_id: str, slow: bool = False) -> str:
            calls.append(intent_id)
            if slow:
                started.set()
                await asyncio.Event().wait()
            return "paid"

        ended: list[Any] = [await pay("i1"), await pay("i1")]
        task = asyncio.create_task(pay("i2", slow=True))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(Unknown):
            await pay("i2", slow=True)
        at_once = await asyncio.gather(pay("i3"), pay("i3"), return_exceptions=True)
        ended += [at_once.count("paid"), calls]
        await database.close()
        return ended

    first, second, at_once, calls = asyncio.run(scenario())
    assert (first, second) == ("paid", "paid") and at_once >= 1
    assert calls == ["i1", "i2", "i3"]


def test_a_tool_without_identity_is_refused(tmp_path: Path) -> None:
    """S4.10: arguments alone are none; a slip of the pen is told where it is made."""
    gate = Gate(SQLite(tmp_path / "gate.db"))
    with pytest.raises(ValueError, match="refund has no parameter 'intent'; it has order"):
        gate.protect(intent="intent")(_refund)
    with pytest.raises(ValueError, match="must be a text that is not empty"):
        gate.protect(intent="order")(_refund)("")


def _refund(order: str) -> None:
    raise AssertionError("nobody may get here")
