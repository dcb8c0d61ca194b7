"""The process seam: another program is about to be run.

What it does is unknown, so nothing can be said about crashes around it: running one is reported as escaping, unless
the function that runs it is wrapped with `once.tool(...)`. Wrapped, it is announced like any boundary (crashes are
tried before and after the call as a whole; a counted tool collects it as its one step), and its effects are those
that the tool, a provider or `once.count` counts.
"""

from __future__ import annotations

import functools
import os
import shlex
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from pytest_once.boundaries import announce
from pytest_once.boundaries.rebinding import rebind
from pytest_once.boundaries.seam import Wiring
from pytest_once.calls import underway
from pytest_once.site import call_site

_ASKING = frozenset({"platform", "uuid", "ctypes.util", "sysconfig", "_osx_support", "_aix_support"})
"""Modules of the standard library that run programs to learn something about the machine, and change nothing."""

_OS_CALLS = tuple(name for name in ("system", "posix_spawn", "posix_spawnp") if hasattr(os, name))


class ProcessSeam:
    """Hooks subprocess.Popen (and so asyncio's subprocesses and os.popen), os.system and os.posix_spawn."""

    name = "subprocess"
    library = "subprocess"

    def __init__(self) -> None:
        self._originals = {name: getattr(os, name) for name in _OS_CALLS}

    def originals(self) -> tuple[object, ...]:
        """The functions of os; of subprocess, a method is hooked."""
        return tuple(self._originals.values())

    def install(self, wiring: Wiring) -> None:
        """Announce what this process runs from now on; for a forked child only."""
        import subprocess

        running = _Running(wiring)
        opened: Any = subprocess.Popen
        opened.__init__ = running.hooked(opened.__init__, _popen_program)
        for name, original in self._originals.items():
            replacement = running.hooked(original, _system_program if name == "system" else _spawn_program)
            rebind(wiring.early, original, replacement)
            setattr(os, name, replacement)


PROCESSES = ProcessSeam()


class _Running:
    """Announces a run once, though subprocess may itself call os.posix_spawn."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._thread = threading.local()

    def hooked(self, run_now: Callable[..., Any], program: Callable[..., str]) -> Callable[..., Any]:
        @functools.wraps(run_now)
        def run(*positional: Any, **named: Any) -> Any:
            if getattr(self._thread, "announced", False) or _only_asks():
                return run_now(*positional, **named)
            try:
                target = f"subprocess:{program(*positional, **named)}"
            except (TypeError, ValueError, IndexError, AttributeError):
                return run_now(*positional, **named)  # which says what is wrong with the arguments
            if underway():
                announce("process", target)
            else:
                self._wiring.outside("runs", target, call_site())
            self._thread.announced = True
            try:
                return run_now(*positional, **named)
            finally:
                self._thread.announced = False

        return run


def _only_asks() -> bool:
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__") in ("subprocess", "os", __name__):
        frame = frame.f_back
    return frame.f_globals.get("__name__") in _ASKING


def _popen_program(_: Any, args: Any, *positional: Any, **named: Any) -> str:
    executable = named.get("executable", positional[1] if len(positional) > 1 else None)
    shell = named.get("shell", positional[7] if len(positional) > 7 else False)
    if executable is not None and not shell:
        return _shown(executable)
    if isinstance(args, (str, bytes, os.PathLike)):
        return _system_program(args) if shell else _shown(args)
    if not isinstance(args, Sequence):
        return "?"  # looking into an iterator would take the program out of it
    return _system_program(args[0]) if shell else _shown(args[0])


def _system_program(command: Any) -> str:
    return _shown(shlex.split(os.fsdecode(command), comments=True)[0])


def _spawn_program(path: Any, argv: Sequence[Any], *_: Any, **__: Any) -> str:
    return _shown(path)


def _shown(program: Any) -> str:
    """A program's name without what depends on the machine."""
    name = os.path.basename(os.fsdecode(program))
    return "python" if name == os.path.basename(sys.executable) else name
