"""Virtual time of an incarnation: sleeping takes no time, and every run begins at a chosen instant.

`time`, `datetime` and what builds on them stand still (time-machine) until something sleeps. A sleeping
coroutine waits for its own due time: only when nothing else in its loop can run does the clock jump, to the
earliest of all due times and of the loop's own timers. So sleeps that run at once do not add up, and
`asyncio.timeout()`, `wait_for()` and trio's cancel scopes fire when they should. Where a seam waits for
something real, an answer over the network or a database thread, it holds the clock (`held()`).

Monotonic clocks keep real time and add the virtual one: loops that end at a deadline end, and real time-outs
stay real. A wait with a time-out and nobody asleep takes its real time.
"""

from __future__ import annotations

import heapq
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_once.boundaries.rebinding import Reference, rebind

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

EPOCH_S = 1930367167.0
"""Where virtual time begins: 2031-03-04T05:06:07Z, in Unix seconds."""

WINDOW_S = (EPOCH_S - 86400.0, EPOCH_S + 10 * 365.0 * 86400.0)
"""Instants of virtual time lie in here; a stored number or timestamp in it is taken for one."""

BOUNDARY_TAKES_S = 0.001
"""Virtual seconds that pass at each boundary, so that instants before and after it differ."""

_HELD_POLL_S = 0.0005
"""Real time between two looks at whether the clock may move again."""

_MONOTONIC_S = ("monotonic", "perf_counter")
_MONOTONIC_NS = ("monotonic_ns", "perf_counter_ns")

_holds = 0
_holds_lock = threading.Lock()


@contextmanager
def held() -> Iterator[None]:
    """Let no sleeping coroutine move the clock meanwhile: something real is being waited for."""
    global _holds
    with _holds_lock:
        _holds += 1
    try:
        yield
    finally:
        with _holds_lock:
            _holds -= 1


class Clock:
    """The virtual wall clock. start_s: Unix seconds at which it stands until something sleeps."""

    def __init__(self, start_s: float = EPOCH_S) -> None:
        self._start_s = start_s
        self._passed_s = 0.0
        self._lock = threading.Lock()
        self._traveller: Any = None
        self._sleepers: weakref.WeakKeyDictionary[Any, _AsyncioSleepers] = weakref.WeakKeyDictionary()
        self._trio_dues: list[float] = []

    @property
    def now_s(self) -> float:
        """The virtual instant, in Unix seconds."""
        return self._start_s + self._passed_s

    @property
    def passed_s(self) -> float:
        """Virtual seconds since the start."""
        return self._passed_s

    def advance(self, seconds: float) -> None:
        """Move virtual time forward. Raises ValueError if `seconds` is negative."""
        if not seconds >= 0:
            raise ValueError(f"virtual time cannot go back: {seconds!r} seconds")
        with self._lock:
            self._passed_s += seconds
            if self._traveller is not None:
                self._traveller.shift(float(seconds))

    def _advance_to(self, passed_s: float) -> None:
        if passed_s > self._passed_s:
            self.advance(passed_s - self._passed_s)

    def install(self, early: Sequence[Reference] = ()) -> None:
        """Make this the clock of the process; for a forked child only."""
        import time_machine

        travel = time_machine.travel(self.now_s, tick=False)
        self._traveller = travel.start()
        self._replace(time, "sleep", self._time_sleep(time.sleep), early)
        # The interpreter's own modules measure real waiting (queues, subprocesses) with the names they hold.
        outside_stdlib = [
            reference
            for reference in early
            if str(reference[0].get("__name__")).partition(".")[0] not in sys.stdlib_module_names
        ]
        for names, scale in ((_MONOTONIC_S, 1), (_MONOTONIC_NS, 1_000_000_000)):
            for name in names:
                shifted = self._shifted(getattr(time, name), scale)
                self._replace(time, name, shifted, outside_stdlib)
        # These read the time in C when they are given none.
        self._replace(time, "ctime", _given_now(time.ctime, time.time), early)
        self._replace(time, "asctime", _given_now(time.asctime, time.localtime), early)
        if asyncio := sys.modules.get("asyncio"):
            self._replace(asyncio, "sleep", self._asyncio_sleep(asyncio.sleep), early)
            asyncio.tasks.sleep = asyncio.sleep
        if trio := sys.modules.get("trio"):
            self._replace(trio, "sleep", self._trio_sleep(trio.sleep), early)

    @staticmethod
    def _replace(module: Any, name: str, replacement: object, early: Sequence[Reference]) -> None:
        rebind(early, getattr(module, name), replacement)
        setattr(module, name, replacement)

    def _shifted(self, real: Callable[[], Any], scale: int) -> Callable[[], Any]:
        if scale == 1:
            return lambda: real() + self._passed_s
        return lambda: real() + int(self._passed_s * scale)

    def _time_sleep(self, real_sleep: Callable[[float], None]) -> Callable[[float], None]:
        def sleep(seconds: float, /) -> None:
            """time.sleep, without waiting."""
            if seconds < 0:
                raise ValueError("sleep length must be non-negative")
            if threading.current_thread() is not threading.main_thread():
                # A thread that polls must not take the processor from what it polls for.
                real_sleep(min(seconds, _HELD_POLL_S))
            self.advance(seconds)

        return sleep

    def _asyncio_sleep(self, real_sleep: Callable[[float], Any]) -> Callable[..., Any]:
        import asyncio

        async def sleep(delay: float, result: T | None = None) -> T | None:
            """asyncio.sleep on the virtual clock: wakes when its own due time has come."""
            if not delay > 0:
                await real_sleep(0)
                return result
            loop = asyncio.get_running_loop()
            sleepers = self._sleepers.get(loop)
            if sleepers is None:
                sleepers = self._sleepers[loop] = _AsyncioSleepers(self, loop)
            await sleepers.add(self._passed_s + delay)
            return result

        return sleep

    def _trio_sleep(self, real_sleep: Callable[[float], Any]) -> Callable[[float], Any]:
        import trio
        import trio.testing

        async def sleep(seconds: float) -> None:
            """trio.sleep on the virtual clock: wakes when its own due time has come."""
            if seconds < 0:
                raise ValueError("`seconds` must be non-negative")
            if seconds == 0:
                await trio.lowlevel.checkpoint()
                return
            due = self._passed_s + seconds
            self._trio_dues.append(due)
            try:
                while self._passed_s < due:
                    before = self._passed_s
                    await trio.testing.wait_all_tasks_blocked()
                    if _holds:
                        await real_sleep(_HELD_POLL_S)
                    elif self._passed_s == before:
                        # Whoever else woke with us has not moved the clock: nothing runs, so it may jump.
                        timer = trio.lowlevel.current_statistics().seconds_to_next_deadline
                        self._advance_to(min(*self._trio_dues, due, before + max(0.0, timer)))
                        await trio.lowlevel.checkpoint()
            finally:
                self._trio_dues.remove(due)

        return sleep


class _AsyncioSleepers:
    """The sleeping coroutines of one event loop, woken in the order of their due times."""

    def __init__(self, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._clock = clock
        # The clock keeps this object while the loop lives; a strong reference would keep both for ever.
        self._loop = weakref.ref(loop)
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0
        self._ticking = False

    def add(self, due_s: float) -> asyncio.Future[None]:
        loop = self._running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._count += 1
        heapq.heappush(self._waiting, (due_s, self._count, future))
        if not self._ticking:
            self._ticking = True
            loop.call_soon(self._tick)
        return future

    def _running_loop(self) -> Any:
        loop = self._loop()
        assert loop is not None, "its own callback runs in it"
        return loop

    def _tick(self) -> None:
        """Move the clock if nothing else can run, and look again in the loop's next round."""
        loop = self._running_loop()
        while self._waiting and self._waiting[0][2].done():
            heapq.heappop(self._waiting)
        if not self._waiting:
            self._ticking = False
            return
        if _holds:
            loop.call_later(_HELD_POLL_S, self._tick)
            return
        # The loop's queue of what can run now, and of timers; another implementation may not show them.
        if not getattr(loop, "_ready", None):
            due_s = self._waiting[0][0]
            timers = [timer.when() for timer in getattr(loop, "_scheduled", ()) if not timer.cancelled()]
            timer_s = self._clock.passed_s + max(0.0, min(timers) - loop.time()) if timers else due_s
            self._clock._advance_to(min(due_s, timer_s))
            while self._waiting and self._waiting[0][0] <= self._clock.passed_s:
                future = heapq.heappop(self._waiting)[2]
                if not future.done():
                    future.set_result(None)
                    break  # one at a time: the order in which sleepers wake is the order of their due times
        loop.call_soon(self._tick)


def _given_now(original: Callable[..., str], now: Callable[[], Any]) -> Callable[..., str]:
    return lambda *given: original(*(given or (now(),)))


def originals() -> tuple[object, ...]:
    """What `Clock.install()` replaces: the parent looks for early references to these.

    Also loads what children would otherwise load each for itself.
    """
    import time_machine  # noqa: F401

    if "trio" in sys.modules:
        import trio.testing  # noqa: F401
    found: list[object] = [
        time.ctime,
        time.asctime,
        time.sleep,
        *(getattr(time, name) for name in (*_MONOTONIC_S, *_MONOTONIC_NS)),
    ]
    for library in ("asyncio", "trio"):
        if module := sys.modules.get(library):
            found.append(module.sleep)
    return tuple(found)
