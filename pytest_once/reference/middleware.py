"""The way of each tool, enforced: what an agent framework is given instead of the tool itself."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from pytest_once.reference.gate import AsyncGate, Gate
from pytest_once.reference.routing import GATED, Level, Route, declared_level, route


class Blocked(Exception):
    """The tool was not called, since nobody can say that calling it is safe; the message says why."""


def guard(
    gate: Gate | AsyncGate,
    tool: Callable[..., Any],
    *,
    intent: str | Callable[..., str] | None = None,
    annotations: object = None,
    trusted: bool = False,
    binds: Sequence[str] | None = None,
) -> Callable[..., Any]:
    """The tool itself if it only reads, the tool behind the gate if it acts, and a refusal where neither is safe.

    intent, binds: as for Gate.protect; without intent the calls of an acting tool cannot be told apart. annotations,
    trusted: as for routing.route. AsyncGate is for coroutine functions. A tool that passes a gate is left alone.
    """
    if getattr(tool, GATED, False):
        return tool
    routed = route(declared_level(tool), annotations, trusted=trusted, identity=intent is not None)
    if routed.route is Route.DIRECT:
        return tool
    if routed.route is Route.BLOCK or intent is None:
        return _refusing(tool, routed.reason)
    level = routed.level or Level.L3
    protected: Callable[..., Any] = gate.protect(intent=intent, level=level, binds=binds)(tool)
    return protected


def _refusing(tool: Callable[..., Any], reason: str) -> Callable[..., Any]:
    name = getattr(tool, "__name__", type(tool).__name__)

    def refuse(*_: Any, **__: Any) -> Any:
        raise Blocked(f"{name} was not called: {reason}")

    async def refuse_async(*_: Any, **__: Any) -> Any:
        refuse()

    return functools.wraps(tool)(refuse_async if inspect.iscoroutinefunction(tool) else refuse)
