"""`once.process`: a program in any language as the incarnation.

Explored, it is cut at its start, before and after each of its requests to a fake provider, and at its end; not between
two of its own writes. All that it starts belongs to it: the run is over when the last of them has ended.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import selectors
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import IO, Any

from pytest_once import audit, descent
from pytest_once.boundaries import GO
from pytest_once.boundaries.program import GIVES_UP_WITHIN_S, NoTimeOut, Relay
from pytest_once.boundaries.seam import Wiring
from pytest_once.calls import perform
from pytest_once.scanning import PID
from pytest_once.scenario import ScenarioError
from pytest_once.unseeded import ChangedFiles, random_looking

Argument = str | PathLike[str]

KEPT_OUTPUT_BYTES = 1024 * 1024
"""Of each of its two outputs, the end is kept."""
SHOWN_OUTPUT_CHARS = 2000
"""Of what it wrote to standard error, so much is told with its failure."""

SHOWN_COMMAND_CHARS = 100
"""Of its command, so much is told."""

_REST_S = 0.2
"""How long a program that waits for an answer may go on with something else before it is held still anyway."""
_GONE_S = 5.0
"""How long the system may take to end what was killed."""
_AT_A_TIME = 100
_POLL_S = 0.02
"""Between two looks at whether it has ended, where the system does not tell."""


class ProcessFailed(Exception):
    """The program did not end as it should. status: its exit status, -N if signal N ended it, None if it went on.

    stderr: the end of what it wrote there.
    """

    def __init__(self, what: str, status: int | None, stderr: str) -> None:
        said = stderr.strip()[-SHOWN_OUTPUT_CHARS:]
        super().__init__(f"{what}; it wrote to its standard error: {said}" if said else what)
        self.status = status
        self.stderr = stderr


@dataclass(frozen=True, slots=True)
class Wired:
    """What a life gives to the programs that it runs. mint: is told texts that are random."""

    wiring: Wiring
    mint: Callable[[list[str]], None]


_wired: Wired | None = None


def wire(wired: Wired) -> None:
    """In the child, before the body: from here on, programs are explored."""
    global _wired
    _wired = wired


@dataclass(frozen=True, slots=True)
class Program:
    """What to run, and how. As in `Once.process`."""

    command: tuple[Argument, ...]
    env: Mapping[str, str]
    cwd: Path
    timeout_s: float
    client_timeout_s: float | None

    def __post_init__(self) -> None:
        if not self.command or not all(isinstance(word, (str, PathLike)) for word in self.command):
            raise ScenarioError(
                f"once.process({list(self.command)!r}): give the program and its arguments as a list of texts or paths"
            )
        if not self.timeout_s > 0:
            raise ScenarioError(f"once.process(timeout_s={self.timeout_s!r}): give a number of seconds greater than 0")
        least_s = (self.client_timeout_s or 0.0) + 2 * GIVES_UP_WITHIN_S
        if self.client_timeout_s is not None and not (self.client_timeout_s > 0 and self.timeout_s >= least_s):
            raise ScenarioError(
                f"once.process(client_timeout_s={self.client_timeout_s!r}, timeout_s={self.timeout_s!r}): the program "
                "must give up waiting before it is taken to hang: let timeout_s be at least 2 s more. Give the program "
                "a short time-out for its requests, since it waits for real"
            )

    def __str__(self) -> str:
        line = " ".join(shlex.join(os.fspath(word) for word in self.command).split())
        return line if len(line) <= SHOWN_COMMAND_CHARS else line[: SHOWN_COMMAND_CHARS - 1] + "…"


def run(program: Program, misuse: Callable[[str, str], None]) -> subprocess.CompletedProcess[str]:
    """Run the program to its end, whatever its status.

    misuse(code, message): reports what cannot be explored. Raises ProcessFailed if it is silent for too long or leaves
    something running, ScenarioError if it cannot be started.
    """
    with _Run(program, _wired) as running:
        try:
            running.attend()
        except NoTimeOut:
            misuse(
                "client-timeout",
                f"once.process(client_timeout_s={program.client_timeout_s:g}) says that the program gives up waiting "
                f"for an answer by then, but it still waits {GIVES_UP_WITHIN_S:g} s later. Give its client that "
                "time-out, or leave client_timeout_s out: then no answers are lost without the connection breaking",
            )
        return running.completed()


@dataclass(slots=True)
class _Output:
    """One of the program's outputs: its end is kept, and all of it goes on to ours."""

    pipe: IO[bytes]
    ours: Any
    kept: bytearray = field(default_factory=bytearray)
    decoder: codecs.IncrementalDecoder = field(default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace"))

    def read(self) -> bool:
        """Take what is there; False if there is nothing, and will not be."""
        try:
            piece = os.read(self.pipe.fileno(), 65536)
        except BlockingIOError:  # somebody holds it open who was not started by the program
            return False
        self.kept += piece
        del self.kept[:-KEPT_OUTPUT_BYTES]
        self.ours.write(self.decoder.decode(piece))
        return bool(piece)

    def text(self) -> str:
        return self.kept.decode("utf-8", "replace")


class _Run:
    """One run of a program. wired: what explores it, None in a plain run."""

    def __init__(self, program: Program, wired: Wired | None) -> None:
        self._program = program
        self._wired = wired
        self._cleanup = ExitStack()
        self._selector = self._cleanup.enter_context(selectors.DefaultSelector())
        self._files = ChangedFiles()
        self._before = frozenset(descent.children(os.getpid()))
        self._followed: set[int] = set()
        self._relay: Relay | None = None
        if wired is not None:
            descent.adopt_orphans()
            self._relay = Relay(self._selector, wired.wiring, self._held_still, self._notice, program.client_timeout_s)
            self._cleanup.callback(self._relay.close)

    def __enter__(self) -> _Run:
        try:
            self._start()
        except BaseException:
            self._cleanup.close()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        with self._cleanup:
            self._end()

    def _start(self) -> None:
        redirected = (lambda text: text) if self._relay is None else self._relay.redirected
        command = [redirected(os.fspath(word)) for word in self._program.command]
        env = {name: redirected(value) for name, value in {**os.environ, **self._program.env}.items()}

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                command,
                env=env,
                cwd=self._program.cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # Explored, it stays in the group of the life, which is killed as a whole.
                start_new_session=self._wired is None,
            )

        try:
            with audit.announced():
                self._process = perform(GO, start)
        except OSError as error:
            raise ScenarioError(
                f"once.process: the program {command[0]!r} cannot be started in {self._program.cwd}: {error}. Install "
                "it, or give its full path; a test that can do without it skips itself (shutil.which)"
            ) from error
        assert self._process.stdout is not None and self._process.stderr is not None
        if self._wired is not None:
            self._wired.mint([f"{PID}{self._process.pid}"])
        self._stdout = _Output(self._process.stdout, sys.stdout)
        self._stderr = _Output(self._process.stderr, sys.stderr)
        for output in (self._stdout, self._stderr):
            self._cleanup.enter_context(output.pipe)
            os.set_blocking(output.pipe.fileno(), False)
            self._selector.register(output.pipe, selectors.EVENT_READ, lambda output=output: self._read(output))
        self._follow(self._process.pid)

    def attend(self) -> None:
        """Serve it until it and all that it has started have ended. Raises ProcessFailed, NoTimeOut."""
        seen = None
        deadline = 0.0
        while not self._over():
            state = self._process.returncode, self._relay.requests if self._relay is not None else 0
            now = time.monotonic()
            if state != seen:
                seen, deadline = state, now + self._program.timeout_s
            if now > deadline:
                raise ProcessFailed(self._silent(), self._process.returncode, self._stderr.text())
            if self._relay is not None:
                self._relay.check()
            if self._relay is not None and self._relay.asked:
                self._let_arrive()
                self._relay.perform()
            else:
                self._serve(min(deadline - now, GIVES_UP_WITHIN_S if self._telling else _POLL_S))
        for output in (self._stdout, self._stderr):
            while output.read():
                continue
        self._notice_files()

    def _let_arrive(self) -> None:
        """Requests made at the same time must not overtake each other, now this way, now that: wait for all of them."""
        descent.come_to_rest(self._all, _REST_S)
        for _ in range(_AT_A_TIME):  # it may write output for ever
            if not self._serve(0.0):
                break

    def _serve(self, timeout_s: float) -> bool:
        """Do what is to be done where something has happened; False if nothing has."""
        ready = self._selector.select(timeout_s)
        for key, _ in sorted(ready, key=lambda one: one[0].fd):
            if key.fileobj in self._selector.get_map():
                key.data()
        return bool(ready)

    def completed(self) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(
            [os.fspath(word) for word in self._program.command],
            self._process.returncode,
            self._stdout.text(),
            self._stderr.text(),
        )

    def _silent(self) -> str:
        for_s = f"for {self._program.timeout_s:g} s (timeout_s)"
        if self._process.returncode is None:
            return f"{self._program} neither ended nor asked for anything {for_s} and was killed"
        left = ", ".join(f"{pid} ({descent.name_of(pid)})" for pid in self._left())
        return (
            f"{self._program} ended, but left something running that neither ended nor asked for anything {for_s}: "
            f"{left}. It was killed. Let the program wait for what it starts"
        )

    # -- what runs -----------------------------------------------------------------------------------

    _telling = hasattr(os, "pidfd_open")

    def _follow(self, pid: int) -> None:
        """Be told when a process has ended."""
        if not self._telling or pid in self._followed:
            return
        with contextlib.suppress(OSError):  # it is gone already
            told = os.pidfd_open(pid)
            self._followed.add(pid)
            self._selector.register(told, selectors.EVENT_READ, lambda: self._unfollow(told))
            self._cleanup.callback(os.close, told)

    def _unfollow(self, told: int) -> None:
        self._selector.unregister(told)

    def _over(self) -> bool:
        if self._process.poll() is None:
            return False
        for pid in self._left():
            self._follow(pid)
        return not self._left()

    def _left(self) -> list[int]:
        """What the program has started and still runs. In a plain run orphans cannot be told from others' children."""
        if self._wired is None:
            return []
        for pid in set(descent.children(os.getpid())) - self._before - {self._process.pid}:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        return [pid for pid in self._all() if descent.lives(pid)]

    def _all(self) -> list[int]:
        """The program, as long as nobody has waited for it, and all that it has started."""
        mine = {pid for pid in descent.children(os.getpid()) if pid not in self._before}
        if self._process.returncode is None:
            mine.add(self._process.pid)
        return sorted({*mine, *(one for pid in mine for one in descent.descendants(pid))})

    def _end(self) -> None:
        """Nothing of it may go on."""
        if self._wired is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        else:
            descent.end(self._left, _GONE_S)
        self._process.kill()
        self._process.wait()

    # -- what it does --------------------------------------------------------------------------------

    def _read(self, output: _Output) -> None:
        if not output.read():
            self._selector.unregister(output.pipe)

    @contextmanager
    def _held_still(self) -> Iterator[None]:
        with descent.held_still(self._all, _REST_S):
            self._notice_files()
            yield

    def _notice(self, said: bytes) -> None:
        assert self._wired is not None
        self._wired.mint(sorted(random_looking(said, _real_now_s())))

    def _notice_files(self) -> None:
        if self._wired is not None:
            for content in self._files.contents(self._wired.wiring.roots):
                self._notice(content)


_STARTED_S = time.time() - os.times().elapsed
"""Unix seconds of the system's start. This module is imported before any clock is virtual."""


def _real_now_s() -> float:
    """The program's time is real, whatever this process is told."""
    return os.times().elapsed + _STARTED_S
