from __future__ import annotations

import asyncio
import datetime
import importlib.util
import os
import time
from collections.abc import Callable, Coroutine
from time import monotonic as early_monotonic
from time import sleep as early_sleep
from typing import Any

import pytest

from pytest_once import Once, explore
from pytest_once import clock as clock_module
from pytest_once.boundaries import rebinding
from pytest_once.clock import EPOCH_S, Clock
from tests.boundaries.recording import Recording, recorded

needs_trio = pytest.mark.skipif(importlib.util.find_spec("trio") is None, reason="trio is not installed")


def run(body: Callable[[Clock], Any]) -> Recording:
    """The body under a new clock, which must not take real seconds."""
    clock = Clock()
    early = rebinding.references(*clock_module.originals())
    begun = time.monotonic()
    recording = recorded(lambda: body(clock), install=lambda: clock.install(early))
    assert time.monotonic() - begun < 5, "it waited"
    return recording


def run_async(main: Callable[[Clock], Coroutine[Any, Any, Any]]) -> Recording:
    return run(lambda clock: asyncio.run(main(clock)))


def test_every_run_begins_at_the_same_instant() -> None:
    """Stored times must be the same in each incarnation of a schedule."""

    def body(clock: Clock) -> list[Any]:
        return [time.time(), datetime.datetime.now(datetime.UTC).isoformat(), clock.now_s]

    assert run(body).result == [EPOCH_S, "2031-03-04T05:06:07+00:00", EPOCH_S]


def test_sleeping_moves_the_clock_and_takes_no_time() -> None:
    """Retry delays of minutes are searched through in microseconds."""

    def body(clock: Clock) -> list[float]:
        time.sleep(60)
        early_sleep(0.5)
        clock.advance(3600)
        return [time.time() - EPOCH_S, clock.passed_s]

    assert run(body).result == [3660.5, 3660.5]


def test_a_loop_that_polls_until_a_deadline_ends() -> None:
    """Monotonic time has to go along with the sleeps, by whatever name it is known."""

    def body(clock: Clock) -> list[int]:
        turns = []
        for now in (time.monotonic, early_monotonic, time.perf_counter, time.time):
            deadline = now() + 10
            count = 0
            while now() < deadline:
                time.sleep(1)
                count += 1
            turns.append(count)
        before_ns = time.monotonic_ns()
        time.sleep(5)
        return [*turns, round((time.monotonic_ns() - before_ns) / 1e9)]

    assert run(body).result == [10, 10, 10, 10, 5]


@pytest.mark.parametrize("call", [lambda clock: time.sleep(-1), lambda clock: clock.advance(-1)])
def test_time_does_not_go_back(call: Callable[[Clock], Any]) -> None:
    """The real sleep refuses it too."""
    error = run(call).error

    assert error is not None
    assert error.startswith("ValueError")


def test_sleeps_that_run_at_once_do_not_add_up() -> None:
    """Each sleeper wakes at its own due time, in the order of these."""

    async def main(clock: Clock) -> list[Any]:
        woken: list[Any] = []

        async def sleeper(delay: float) -> None:
            await asyncio.sleep(delay)
            woken.append([delay, clock.passed_s])

        await asyncio.gather(sleeper(3), sleeper(1), sleeper(2))
        return woken

    assert run_async(main).result == [[1, 1], [2, 2], [3, 3]]


def test_a_sleeper_lets_others_finish_first() -> None:
    """Time passes only when nothing else can run."""

    async def main(clock: Clock) -> list[str]:
        order: list[str] = []

        async def busy() -> None:
            for _ in range(50):
                await asyncio.sleep(0)
            order.append(f"busy at {clock.passed_s}")

        async def sleeper() -> None:
            await asyncio.sleep(1)
            order.append(f"slept until {clock.passed_s}")

        await asyncio.gather(sleeper(), busy())
        return order

    assert run_async(main).result == ["busy at 0.0", "slept until 1.0"]


async def times_out_around(seconds: float, delay: float) -> str:
    try:
        async with asyncio.timeout(seconds):
            return str(await asyncio.sleep(delay, "slept"))
    except TimeoutError:
        return "timed out"


async def waits_for(seconds: float, delay: float) -> str:
    try:
        return str(await asyncio.wait_for(asyncio.sleep(delay, "slept"), seconds))
    except TimeoutError:
        return "timed out"


@pytest.mark.parametrize("wait", [times_out_around, waits_for])
def test_asyncio_timeouts_fire_on_the_virtual_clock(wait: Callable[[float, float], Any]) -> None:
    """A sleep longer than its time-out must not win because it takes no time."""

    async def main(clock: Clock) -> list[Any]:
        longer = await wait(5, 10)
        at = clock.passed_s
        shorter = await wait(5, 3)
        return [longer, at, shorter, clock.passed_s]

    # What the machine really takes counts too: on a loaded one it is some hundredths of a second.
    assert run_async(main).result == ["timed out", pytest.approx(5, abs=0.5), "slept", pytest.approx(8, abs=0.5)]


def test_a_cancelled_sleeper_does_not_move_the_clock() -> None:
    """Nobody waits for its due time any more."""

    async def main(clock: Clock) -> float:
        task = asyncio.create_task(asyncio.sleep(1000))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])
        await asyncio.sleep(1)
        return clock.passed_s

    assert run_async(main).result == 2


def test_a_held_clock_waits_for_what_is_real() -> None:
    """A heartbeat beside a request must beat as often in every run."""

    async def main(clock: Clock) -> list[float]:
        sleeper = asyncio.create_task(asyncio.sleep(1))
        with clock_module.held():
            real = asyncio.get_running_loop().run_in_executor(None, lambda: os.read(reader, 1))
            for _ in range(1000):
                await asyncio.sleep(0)
            held_at = clock.passed_s
            os.write(writer, b"x")
            await real
        await sleeper
        return [held_at, clock.passed_s]

    reader, writer = os.pipe()
    assert run_async(main).result == [0, 1]
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("backend", ["asyncio", pytest.param("trio", marks=needs_trio)])
def test_anyio_sleeps_and_time_outs_are_virtual_too(backend: str) -> None:
    """anyio's backends hold asyncio's and trio's functions under names of their own."""
    anyio = pytest.importorskip("anyio")

    def body(clock: Clock) -> list[Any]:
        woken: list[Any] = []

        async def sleeper(delay: float) -> None:
            await anyio.sleep(delay)
            woken.append([delay, clock.passed_s])

        async def main() -> None:
            async with anyio.create_task_group() as group:
                for delay in (3, 1, 2):
                    group.start_soon(sleeper, delay)
            with anyio.move_on_after(4) as scope:
                await anyio.sleep(100)
            woken.append([scope.cancelled_caught, round(clock.passed_s, 1)])

        anyio.run(main, backend=backend)
        return woken

    recording = run(body)

    assert recording.error is None
    assert recording.result == [[1, 1], [2, 2], [3, 3], [True, 7]]


@pytest.mark.parametrize("backend", ["asyncio", pytest.param("trio", marks=needs_trio)])
def test_anyio_deadlines_agree_with_its_sleeps(backend: str) -> None:
    """fail_after, a deadline around a group and one around an event: none is missed because sleeping takes no time."""
    anyio = pytest.importorskip("anyio")

    def body(clock: Clock) -> list[Any]:
        seen: list[Any] = []

        def note(what: str) -> None:
            seen.append([what, round(clock.passed_s, 1)])

        async def beat() -> None:
            while True:
                await anyio.sleep(6)
                note("beat")

        async def main() -> None:
            try:
                with anyio.fail_after(5):
                    await anyio.sleep(10)
            except TimeoutError:
                note("failed")
            await anyio.sleep_until(anyio.current_time() + 3)
            note("slept until")
            with anyio.move_on_after(20):
                async with anyio.create_task_group() as group:
                    group.start_soon(beat)
                    with anyio.CancelScope(shield=True):
                        await anyio.sleep(2)
                    await anyio.sleep(100)
            note("moved on")
            async with anyio.create_task_group() as group:
                group.start_soon(anyio.sleep, 5)
                with anyio.move_on_after(3):
                    await anyio.Event().wait()
                note("no event")
            await anyio.to_thread.run_sync(time.sleep, 30)
            note("thread")

        anyio.run(main, backend=backend)
        return seen

    recording = run(body)

    assert recording.error is None
    beats = [["beat", 14], ["beat", 20], ["beat", 26]]
    assert recording.result == [
        ["failed", 5],
        ["slept until", 8],
        *beats,
        ["moved on", 28],
        ["no event", 31],
        ["thread", 63],
    ]


@needs_trio
def test_trio_sleeps_are_virtual_and_ordered() -> None:
    """Also without anyio, and with a deadline inside a loop."""
    import trio

    def body(clock: Clock) -> list[Any]:
        seen: list[Any] = []

        async def main() -> None:
            with trio.move_on_after(3.5):
                while True:
                    await trio.sleep(1)
                    seen.append(clock.passed_s)
            await trio.sleep(0)
            seen.append(round(clock.passed_s, 1))

        trio.run(main)
        return seen

    recording = run(body)

    assert recording.error is None
    assert recording.result == [1, 2, 3, 3.5]


def test_the_times_that_c_reads_by_itself_are_virtual_too() -> None:
    """A key made from time.ctime() must change as one made from time.time() does."""

    def body(once: Once) -> None:
        year = datetime.datetime.fromtimestamp(time.time()).strftime("%Y")
        assert time.ctime().endswith(year) and time.asctime().endswith(year)
        assert time.ctime(0).endswith(("1970", "1969"))
        once.provider("pay").call("refund", {"order": "o"}, key="o")

    report = explore(body, profile="crash", redeliver=0, limits={"max_states": 1})
    assert report.problem == "", report.problem
