"""Levels, MCP annotations, and the way a tool's calls take."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, SimpleNamespace

import pytest

from pytest_once.reference.databases import SQLite
from pytest_once.reference.gate import Gate
from pytest_once.reference.middleware import Blocked, guard
from pytest_once.reference.routing import Hints, Level, Route, declare, declared_level, level, route

READS = {"readOnlyHint": True}


def test_absent_hints_mean_the_protocols_defaults() -> None:
    """S4.9: MCP assumes the worst: it writes, destroys, repeats, and deals with others."""
    for absent in (None, {}, SimpleNamespace(title="x"), {"readOnlyHint": None}):
        hints = Hints.of(absent)
        assert (hints.read_only, hints.destructive, hints.idempotent, hints.open_world) == (False, True, False, True)
        assert not hints.given and hints.level is Level.L3


@pytest.mark.parametrize(
    ("annotations", "amounts_to"),
    [
        (READS, Level.L0),
        ({"readOnlyHint": False, "idempotentHint": True}, Level.L1),
        ({"destructiveHint": False}, Level.L2),
        ({"destructiveHint": False, "idempotentHint": True}, Level.L1),
        ({"openWorldHint": False}, Level.L3),
        (SimpleNamespace(readOnlyHint=True, destructiveHint=None), Level.L0),
    ],
)
def test_what_hints_amount_to(annotations: object, amounts_to: Level) -> None:
    """S4.9: from objects as the SDK has them, and from mappings as the protocol sends them."""
    assert Hints.of(annotations).level is amounts_to


@pytest.mark.parametrize(
    ("declared", "annotations", "trusted", "expected"),
    [
        (Level.L0, None, False, Route.DIRECT),
        (Level.L1, None, False, Route.PROTECT),
        (Level.L2, None, False, Route.PROTECT),
        (Level.L3, READS, True, Route.PROTECT),
        (None, None, False, Route.BLOCK),
        (None, {}, True, Route.BLOCK),
        (None, READS, False, Route.PROTECT),
        (None, READS, True, Route.DIRECT),
        (None, {"destructiveHint": False}, True, Route.PROTECT),
        (None, {"destructiveHint": True}, False, Route.PROTECT),
        (Level.L0, {"readOnlyHint": False}, False, Route.BLOCK),
        (Level.L0, READS, False, Route.DIRECT),
    ],
)
def test_the_way_of_a_tool(declared: Level | None, annotations: object, trusted: bool, expected: Route) -> None:
    """S3.6, S4.9: hints of a server that nobody trusts make a way harder, never easier."""
    assert route(declared, annotations, trusted=trusted).route is expected


def test_an_untrusted_hint_is_taken_for_the_worst() -> None:
    """S3.6: a false negative costs a duplicate."""
    found = route(None, {"idempotentHint": True})
    assert (found.route, found.level) == (Route.PROTECT, Level.L3)
    assert "nobody trusts them" in found.reason


def test_without_identity_a_writing_tool_is_blocked() -> None:
    """S3.6: safety cannot be established where the gate can tell nothing apart; reading needs none."""
    assert route(Level.L3, identity=False).route is Route.BLOCK
    assert route(Level.L0, identity=False).route is Route.DIRECT


def test_a_level_is_declared_at_the_tool() -> None:
    """S4.9: by decorator, or afterwards for a tool of somebody else."""

    @level(Level.L2)
    def append() -> None: ...

    tool = declare(SimpleNamespace(name="x"), Level.L0)
    assert declared_level(append) is Level.L2 and declared_level(tool) is Level.L0
    assert declared_level(lambda: None) is None
    with pytest.raises(ValueError, match="L9"):
        declare(append, "L9")  # type: ignore[arg-type]


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    database = SQLite(tmp_path / "gate.db")
    database.migrate()
    yield Gate(database)
    database.close()


def test_a_framework_is_given_the_tool_the_gate_or_a_refusal(gate: Gate) -> None:
    """S3.6, S4.11: the decision is carried out, not only told."""
    calls: list[str] = []

    def act(order: str) -> int:
        calls.append(order)
        return len(calls)

    for declared, intent, expected in (
        (Level.L0, None, [1, 2]),
        (Level.L2, "order", [1, 1]),
        (Level.L2, None, []),
        (None, "order", []),
    ):
        calls.clear()
        tool = FunctionType(act.__code__, globals(), f"tool_{declared}", closure=act.__closure__)
        given = guard(gate, tool if declared is None else declare(tool, declared), intent=intent)
        if not expected:
            with pytest.raises(Blocked, match="was not called: "):
                given(f"order_{declared}")
        assert [given(f"order_{declared}") for _ in expected] == expected
        assert len(calls) == len(set(expected))


def test_a_guarded_tool_is_not_guarded_twice(gate: Gate) -> None:
    """Two gates around one tool would have two opinions."""
    tool = gate.protect(intent="order")(_named)
    assert guard(gate, tool, intent="order") is tool


def test_a_blocked_coroutine_tool_refuses_when_it_is_awaited(gate: Gate) -> None:
    """S4.11: frameworks await what they were told is a coroutine function."""

    async def act() -> None: ...

    given = guard(gate, act)
    assert inspect.iscoroutinefunction(given)
    with pytest.raises(Blocked, match="declares no level"):
        asyncio.run(given())


def _named(order: str) -> str:
    return order
