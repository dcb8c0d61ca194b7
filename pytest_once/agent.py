"""A model around a tool, without a model: every way in which an agent repeats a call, as choices.

What a model does after a tool call: it stops; it calls again, word for word, under the same call id (a framework's or a
transport's retry) or a new one (the model's own); it calls again in other words; it asks again although the tool has
answered. Each repetition is the same intent, so each counts against the same logical key.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from pytest_once.scenario import ScenarioError

T = TypeVar("T")

STOP = "stop"
SAME_CALL = "repeat the call, same call id"
NEW_CALL = "repeat the call, new call id"
REWORDED = "repeat the call in other words"
ASK_AGAIN = "ask again after success"


class Choose(Protocol):
    """`once.choose`."""

    def __call__(self, name: str, options: tuple[str, ...], /) -> str: ...


class _Turn:
    """What the model remembers between the calls of one incarnation."""

    def __init__(
        self, choose: Choose, tool: Any, calls: int, call_id: str | None, reworded: Mapping[str, Any], gives_up: Any
    ) -> None:
        self._choose = choose
        self._left = calls
        self._call_id = call_id
        self._reworded = reworded
        self._gives_up = gives_up
        self._name = str(getattr(tool, "__name__", type(tool).__name__))
        self._number = 0
        self._next = NEW_CALL

    def arguments(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of the next call."""
        self._left -= 1
        if self._next != SAME_CALL:
            self._number += 1
        given = {**kwargs, **self._reworded} if self._next == REWORDED else dict(kwargs)
        if self._call_id is not None:
            given[self._call_id] = f"call_{self._number}"
        return given

    def goes_on(self, failed: BaseException | None) -> bool:
        """What the model does next: whether it calls again. Raises what the tool has raised if the model leaves it."""
        if self._left > 0:
            self._next = self._choose(
                f"the model, after {self._name}{' failed' if failed else ''}", self._options(failed)
            )
            if self._next != STOP:
                return True
        if failed is not None and not isinstance(failed, self._gives_up):
            raise failed
        return False

    def _options(self, failed: BaseException | None) -> tuple[str, ...]:
        again = (
            *((SAME_CALL,) if self._call_id is not None else ()),
            NEW_CALL if failed is not None else ASK_AGAIN,
            *((REWORDED,) if self._reworded else ()),
        )
        return (STOP, *again)


def played(
    choose: Choose,
    tool: Callable[..., Any],
    *,
    calls: int,
    call_id: str | None,
    reworded: Mapping[str, Any],
    gives_up: tuple[type[BaseException], ...],
) -> Callable[..., Any]:
    """The tool as an agent calls it; see `Once.agent`. Raises ScenarioError for what cannot be played."""
    if not callable(tool):
        raise ScenarioError(f"once.agent needs a tool that can be called, not {tool!r}")
    if type(calls) is not int or calls < 1:
        raise ScenarioError(f"once.agent(calls={calls!r}): give a whole number of 1 or more")
    _check_parameters(tool, (*((call_id,) if call_id is not None else ()), *reworded))

    if inspect.iscoroutinefunction(tool):

        @functools.wraps(tool)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            turn = _Turn(choose, tool, calls, call_id, reworded, gives_up)
            while True:
                answer, failed = None, None
                try:
                    answer = await tool(*args, **turn.arguments(kwargs))
                except Exception as error:
                    failed = error
                if not turn.goes_on(failed):
                    return answer

        return call_async

    @functools.wraps(tool)
    def call(*args: Any, **kwargs: Any) -> Any:
        turn = _Turn(choose, tool, calls, call_id, reworded, gives_up)
        while True:
            answer, failed = None, None
            try:
                answer = tool(*args, **turn.arguments(kwargs))
            except Exception as error:
                failed = error
            if not turn.goes_on(failed):
                return answer

    return call


def _check_parameters(tool: Callable[..., Any], names: tuple[str, ...]) -> None:
    try:
        parameters = inspect.signature(tool).parameters
    except (TypeError, ValueError):
        return  # a built-in that does not tell
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for name in names:
        if name not in parameters:
            raise ScenarioError(
                f"once.agent: the tool has no parameter {name!r}; it takes {', '.join(parameters) or 'nothing'}"
            )
