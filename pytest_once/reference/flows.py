"""A course of action over several transactions, written once for sync and async callers.

A flow yields what is to be done and is sent what came of it; an error is thrown into it where it asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from pytest_once.reference.databases import AsyncDatabase, Database
from pytest_once.reference.steps import Steps

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Transact:
    """Perform these steps as one transaction."""

    steps: Steps[Any]


@dataclass(frozen=True, slots=True)
class Call:
    """Call the user's function: a plain one from `drive`, one that may answer with an awaitable from `drive_async`."""

    function: Callable[[], Any]


Flow: TypeAlias = Generator[Transact | Call, Any, T]


def drive(database: Database, flow: Flow[T]) -> T:
    """Carry a flow out and return what it returns, or raise what it raises."""
    try:
        action = next(flow)
        while True:
            try:
                done = database.transact(action.steps) if isinstance(action, Transact) else action.function()
            except BaseException as error:
                action = flow.throw(error)
            else:
                action = flow.send(done)
    except StopIteration as end:
        result: T = end.value
        return result


async def drive_async(database: AsyncDatabase, flow: Flow[T]) -> T:
    """As `drive`, awaiting."""
    try:
        action = next(flow)
        while True:
            try:
                if isinstance(action, Transact):
                    done = await database.transact(action.steps)
                else:
                    done = action.function()
                    if isinstance(done, Awaitable):
                        done = await done
            except BaseException as error:
                action = flow.throw(error)
            else:
                action = flow.send(done)
    except StopIteration as end:
        result: T = end.value
        return result
