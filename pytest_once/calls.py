"""How a call fails while its caller survives: soft faults of what answers with a value or an exception."""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from pytest_once.boundaries import Order
from pytest_once.faults import (
    CALL_FAULTS,
    DUPLICATE,
    KINDS,
    LOST_REQUEST,
    LOST_RESPONSE,
    REFUSED,
    RESET_RESPONSE,
)

T = TypeVar("T")
MakeError = Callable[[str], BaseException]
"""Makes the exception the caller sees from a sentence that says what happened; an exception class will do."""


_underway: contextvars.ContextVar[bool] = contextvars.ContextVar("pytest_once_call_underway", default=False)


def underway() -> bool:
    """Whether this code runs inside a call that the test has wrapped, and so has spoken for."""
    return _underway.get()


@contextmanager
def _under_way() -> Iterator[None]:
    token = _underway.set(True)
    try:
        yield
    finally:
        _underway.reset(token)


def perform(
    order: Order,
    act: Callable[[], T],
    *,
    timeout_error: MakeError = TimeoutError,
    reset_error: MakeError = ConnectionResetError,
    refused_error: MakeError = ConnectionRefusedError,
) -> T:
    """Make the call as ordered: once, not at all, twice, or with its answer lost.

    act: one delivery of the call; an Exception it raises is an answer like any other. Returns the answer the
    caller sees, or raises it if it is an exception; where the fault hides it, raises what a factory makes.
    Raises ValueError for a fault that is not in CALL_FAULTS.
    """
    with _under_way():
        return _perform(order, act, timeout_error, reset_error, refused_error)


def _perform(
    order: Order, act: Callable[[], T], timeout_error: MakeError, reset_error: MakeError, refused_error: MakeError
) -> T:
    if order.fault is None:
        return act()
    if order.fault == DUPLICATE:
        try:
            answer = act()
        except Exception:
            _deliver_unheard(act)
            raise
        _deliver_unheard(act)
        return answer
    error = _error(order.fault, timeout_error, reset_error, refused_error)
    if KINDS[order.fault].effect:
        try:
            act()
        except Exception as answer_lost:
            raise error from answer_lost
    raise error


async def perform_async(
    order: Order,
    act: Callable[[], Awaitable[T]],
    *,
    timeout_error: MakeError = TimeoutError,
    reset_error: MakeError = ConnectionResetError,
    refused_error: MakeError = ConnectionRefusedError,
) -> T:
    """`perform` for a call that must be awaited."""
    with _under_way():
        return await _perform_async(order, act, timeout_error, reset_error, refused_error)


async def _perform_async(
    order: Order,
    act: Callable[[], Awaitable[T]],
    timeout_error: MakeError,
    reset_error: MakeError,
    refused_error: MakeError,
) -> T:
    if order.fault is None:
        return await act()
    if order.fault == DUPLICATE:
        try:
            answer = await act()
        except Exception:
            await _deliver_unheard_async(act)
            raise
        await _deliver_unheard_async(act)
        return answer
    error = _error(order.fault, timeout_error, reset_error, refused_error)
    if KINDS[order.fault].effect:
        try:
            await act()
        except Exception as answer_lost:
            raise error from answer_lost
    raise error


# The answer to the second delivery reaches nobody, be it a value or an exception.
def _deliver_unheard(act: Callable[[], object]) -> None:
    try:
        act()
    except Exception:
        return


async def _deliver_unheard_async(act: Callable[[], Awaitable[object]]) -> None:
    try:
        await act()
    except Exception:
        return


def _error(fault: str, timeout: MakeError, reset: MakeError, refused: MakeError) -> BaseException:
    makers = {REFUSED: refused, LOST_REQUEST: timeout, LOST_RESPONSE: timeout, RESET_RESPONSE: reset}
    if fault not in makers:
        raise ValueError(f"a call cannot perform the fault {fault!r}, only {', '.join(CALL_FAULTS)}")
    return makers[fault](KINDS[fault].story)
