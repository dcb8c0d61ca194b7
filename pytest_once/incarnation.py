"""One life of the process under test: a forked child, a pipe, orders, a time-out, and SIGKILL.

The child says what it is about to do and waits; the parent orders it to go on, to go on with a fault, or kills
it. While the child waits, the parent may look at everything that a successor would find.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import linecache
import os
import select
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, NoReturn

from pytest_once import boundaries, measured
from pytest_once.boundaries import Announcer, Boundary, Order
from pytest_once.descent import descendants
from pytest_once.site import NOWHERE, Site, call_site, is_own_file, is_user_code

try:
    from posix import _exit  # os._exit may be patched: coverage.py can have it write a file in every child
except ImportError:
    from os import _exit


@dataclass(frozen=True, slots=True)
class At:
    """The child stands before a boundary and waits. now_s: its virtual time. minted: random texts made since."""

    boundary: Boundary
    now_s: float
    minted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """The child needs something only the parent can do; answer with `Incarnation.answer`."""

    what: str
    argument: Any


@dataclass(frozen=True, slots=True)
class Ended:
    """The body ended by itself, and the child waits to be dismissed.

    claim: "done", "failed", "unknown", "in_progress", or "none" (it raised, which claims nothing).
    claimed: the claim was made with once.claim, not by how the body ended. error: class and message of what was
    raised, or "". site: where it was raised. details: the traceback, for a person. skipped: the reason, when the
    test skipped itself. modules: what the life imported. ran: what it ran, if coverage is measured.
    """

    claim: str
    now_s: float
    minted: tuple[str, ...]
    claimed: bool = False
    error: str = ""
    site: Site = NOWHERE
    details: str = ""
    skipped: str | None = None
    modules: tuple[str, ...] = ()
    incarnation_was_read: bool = False
    ran: measured.Ran | None = None


@dataclass(frozen=True, slots=True)
class Misuse:
    """The body did something that cannot be explored. code: a stable short name; message says the remedy."""

    code: str
    message: str
    site: Site


@dataclass(frozen=True, slots=True)
class Died:
    """The child ended without being told to. how: "exit status 3" or "signal SIGSEGV"."""

    how: str


@dataclass(frozen=True, slots=True)
class Hung:
    """The child said nothing for too long and was killed. stack: where its threads were."""

    seconds: float
    stack: str


_STACK_S = 1.0
"""Seconds that a silent child gets to say where it is."""
_GONE_S = 5.0
"""Seconds that a process that was killed may take to be gone; one that waits for a disk takes that long, if ever."""

Message = At | Request | Ended | Misuse | Died | Hung


class Channel:
    """The child's end of the pipe."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._one_at_a_time = threading.Lock()  # or one thread takes the answer that another one waits for
        self._minted: list[str] = []
        self.now_s: Callable[[], float] = lambda: 0.0
        self.between: Callable[[], None] = lambda: None

    def mint(self, texts: list[str]) -> None:
        """Note texts that this life's randomness produced; they travel with the next message."""
        self._minted.extend(texts)

    def ask(self, boundary: Boundary) -> Order:
        """Announce, wait, and return the order. Does not return when the order is to die."""
        self.between()
        answer = self._exchange(At(boundary, self.now_s(), self._take_minted()))
        assert isinstance(answer, Order)
        return answer

    def request(self, what: str, argument: Any) -> Any:
        """Have the parent do something and return its answer; an exception it answers with is raised."""
        answer = self._exchange(Request(what, argument))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def misuse(self, code: str, message: str, site: Site) -> NoReturn:
        """Report what cannot be explored. The parent ends this process."""
        self._exchange(Misuse(code, message, site))
        _exit(1)

    def end(self, ended: Ended) -> None:
        """Say that the body has ended, and wait until that was heard."""
        self.between()
        self._exchange(replace(ended, now_s=self.now_s(), minted=self._take_minted()))

    def _take_minted(self) -> tuple[str, ...]:
        minted, self._minted = tuple(self._minted), []
        return minted

    def _exchange(self, message: Message) -> Any:
        try:
            with self._one_at_a_time:
                self._connection.send(message)
                return self._connection.recv()
        except (EOFError, ConnectionError):
            _exit(1)  # the parent is gone; nobody needs this life any more


Body = Callable[[Channel], Ended]


class ForkUnavailable(RuntimeError):
    """This platform cannot fork; the message says what to do."""


class Incarnation:
    """A forked child that runs `body`, and the parent's end of its pipe.

    timeout_s: how long it may be silent. output: file that receives what it prints.
    """

    def __init__(self, body: Body, *, timeout_s: float, output: Path) -> None:
        if not hasattr(os, "fork"):
            raise ForkUnavailable(
                "exploring needs os.fork(), which this platform does not have: run the suite on Linux or macOS "
                "(a container or WSL will do), or without --once-chaos to run each test once"
            )
        self._timeout_s = timeout_s
        self._stack_file = output.with_name("stack.txt")
        self._connection, theirs = Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # "multi-threaded, fork may deadlock": we time out
            pid = os.fork()
        if pid == 0:
            self._connection.close()
            _live(body, theirs, output, self._stack_file)
        theirs.close()
        self._pid: int | None = pid
        self._status: int | None = None
        self._dismissed = False
        self._descendants: list[int] = []
        try:
            os.setpgid(pid, pid)
        except (PermissionError, ProcessLookupError):
            pass  # the child was quicker and did it itself, or is gone already

    def listen(self) -> Message:
        """The child's next message. Died and Hung are messages too; after them the child is gone."""
        try:
            if not self._connection.poll(self._timeout_s):
                return Hung(self._timeout_s, self._interrogate())
            message: Message = self._connection.recv()
            return message
        except (EOFError, ConnectionError):
            return Died(self._reap())

    def answer(self, value: Any) -> None:
        """Order, or result of a Request."""
        try:
            self._connection.send(value)
        except ConnectionError:
            return  # it died meanwhile; the next listen() says how

    def kill(self) -> None:
        """SIGKILL to the child and everything it started in its group, and wait until it is gone."""
        if self._pid is None:
            return
        self._note_descendants()
        for send, target in ((os.killpg, self._pid), (os.kill, self._pid)):
            try:
                send(target, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        self._reap()

    def dismiss(self) -> None:
        """Let a child that has ended go; `close` waits until it is gone."""
        self._note_descendants()  # once it is gone, nobody knows whose they were
        self.answer(None)
        self._dismissed = True

    def close(self) -> None:
        """Wait for a dismissed child, end any other, and clear what it may have left running."""
        if self._dismissed:
            self._connection.poll(1.0)  # the end of the pipe is the end of the child
        self.kill()
        self._connection.close()

    def __enter__(self) -> Incarnation:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _reap(self) -> str:
        if self._pid is not None:
            pid, self._pid = self._pid, None
            self._status = os.waitpid(pid, 0)[1]
            try:
                os.killpg(pid, signal.SIGKILL)  # whatever it left behind in its group
            except (ProcessLookupError, PermissionError):
                pass
            self._kill_descendants()
        code = os.waitstatus_to_exitcode(self._status or 0)
        return f"exit status {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"

    def _note_descendants(self) -> None:
        """Remember what the child has started, wherever that has put itself: a session of its own leaves the group."""
        for pid in [] if self._pid is None else descendants(self._pid):
            with contextlib.suppress(OSError):
                self._descendants.append(os.pidfd_open(pid))

    def _kill_descendants(self) -> None:
        """They must be gone, not only told to go: one that is just writing would do so into the next world."""
        for descriptor in self._descendants:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        for descriptor in self._descendants:
            gone = select.poll()
            gone.register(descriptor, select.POLLIN)
            gone.poll(_GONE_S * 1000)
            os.close(descriptor)
        self._descendants.clear()

    def _interrogate(self) -> str:
        """Ask the silent child for its stacks, then kill it."""
        if self._pid is not None and hasattr(signal, "SIGUSR1"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGUSR1)
                self._wait_for_stack()
        self.kill()
        try:
            return self._stack_file.read_text(encoding="utf-8", errors="replace").strip()
        except FileNotFoundError:
            return ""

    def _wait_for_stack(self) -> None:
        """Until the dump is there and grows no more; a child that cannot run writes none."""
        seen = -1
        deadline = time.monotonic() + _STACK_S
        while time.monotonic() < deadline:
            size = self._stack_file.stat().st_size if self._stack_file.exists() else 0
            if size and size == seen:
                return
            seen = size
            select.select([], [], [], 0.01)


def _live(body: Body, connection: Connection, output: Path, stack_file: Path) -> NoReturn:
    """The child, from fork to its end. Never returns to the parent's code."""
    code = 1
    try:
        if os.getpgrp() != os.getpid():
            os.setpgid(0, 0)
        _die_with_parent()
        _print_into(output)
        faulthandler.register(signal.SIGUSR1, stack_file.open("w", encoding="utf-8"), all_threads=True)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        channel = Channel(connection)
        _refuse_debuggers(channel)
        boundaries.connect(Announcer(channel.ask))
        ended = body(channel)
        _leave_no_work(channel)
        boundaries.connect(None)
        _flush_output()
        channel.end(replace(ended, ran=measured.ran()))
        code = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        _exit(code)


def _refuse_debuggers(channel: Channel) -> None:
    """Nobody could answer one: the terminal belongs to the parent."""

    def refuse(*args: object, **kwargs: object) -> None:
        channel.misuse(
            "breakpoint",
            "breakpoint() is reached in an incarnation, which has no terminal. Run the test once in this process "
            "(--once-isolation=none, or without --once-chaos); or let --pdb open a debugger in the last life of a "
            "failure, without any breakpoint()",
            call_site(),
        )

    if os.environ.get("PYTHONBREAKPOINT") != "0":
        sys.breakpointhook = refuse


def _leave_no_work(channel: Channel) -> None:
    """Report a thread that is still at work when the body has ended: what it does is in no claim and no picture."""
    for thread in threading.enumerate():
        while thread is not threading.current_thread() and (site := _at_work(thread)) is not None:
            if site is not NOWHERE:
                channel.misuse(
                    "thread-at-work",
                    f"the body ended while its thread {thread.name!r} was still at work, so what it claims and what it "
                    "does may differ from run to run. Wait for it (join, a future's result) before the body ends",
                    site,
                )
            select.select([], [], [], 0.001)


def _at_work(thread: threading.Thread) -> Site | None:
    """Where a thread is in code of the user's or in a seam; NOWHERE while it starts or ends; None if it only waits."""
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None:
        return None
    module = frame.f_globals.get("__name__")
    if module == "threading" and frame.f_code.co_name.startswith(("_bootstrap", "run", "_delete")):
        return NOWHERE
    acts = False
    found: Site | None = None
    while frame is not None:
        acts = acts or is_own_file(frame.f_code.co_filename)
        if found is None and is_user_code(frame.f_code):
            found = Site(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname, "")
        frame = frame.f_back
    return found if acts or module not in ("threading", "queue", "selectors") else None


def _flush_output() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # the body may have closed it
            stream.flush()


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _print_into(output: Path) -> None:
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    # Open until the process ends.
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115


def raised_at(error: BaseException) -> Site:
    """The innermost line of user code in an exception's traceback."""
    found = NOWHERE
    for frame, line in traceback.walk_tb(error.__traceback__):
        if is_user_code(frame.f_code):
            file = os.path.abspath(frame.f_code.co_filename)
            found = Site(file, line, frame.f_code.co_qualname, linecache.getline(file, line).strip())
    return found
