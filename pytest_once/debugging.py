"""A debugger in the last life of a schedule: lived once more, in this process and without faults, on the world that the
crashes before it left."""

from __future__ import annotations

import importlib
import pdb
import sys
from bdb import BdbQuit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import pytest

from pytest_once.faults import Schedule
from pytest_once.report import LifeStory, Step, Violation
from pytest_once.site import Site, shown_path


@dataclass(frozen=True, slots=True)
class Scene:
    """Where to look. before: what happens first. life: number of the life, from 1. site: the line where it goes wrong.

    passing: which passing of that line is meant, from 1. raises: it raises something, and is looked at there. faults:
    what the schedule does to this life, which is not done to it here.
    """

    before: Schedule
    life: int
    site: Site | None
    passing: int
    raises: bool
    faults: str

    @property
    def told(self) -> str:
        """What is going to be seen, for a person."""
        said = f"incarnation {self.life} is lived in this process, with the real clock"
        if self.life > 1:
            said += ", on what those before it left"
        if self.site is not None and self.site.line:
            said += f"; the debugger opens at {shown_path(self.site.file)}:{self.site.line}, where it goes wrong"
        elif self.raises:
            said += "; the debugger opens where it raises"
        else:
            said += "; put breakpoint() where you want to look, since it passes no boundary"
        if self.faults:
            said += (
                f". The schedule also plans {self.faults} there, and nothing fails here by itself: where that call is "
                "made, do by hand what its caller would see"
            )
        return said


def scene(violation: Violation) -> Scene | None:
    """The last life of a violation's story, or None if no process is alive where it goes wrong."""
    if not violation.story:
        return None
    life = violation.story[-1]
    *earlier, plan = violation.schedule.lives[: len(violation.story)]
    if plan.deliver is not None:
        return None
    number = _decisive(life, violation)
    site = life.steps[number].boundary.site if life.steps else None
    passings = [step for step in life.steps[: number + 1] if site and _line(step) == (site.file, site.line)]
    return Scene(
        Schedule(tuple(earlier)),
        life.number,
        None if life.site is not None else site,
        len(passings),
        life.site is not None,
        "+".join(map(str, plan.faults)),
    )


def _decisive(life: LifeStory, violation: Violation) -> int:
    """The step with one effect too many; else the last."""
    for number, step in enumerate(life.steps):
        if any(key == violation.key and n > (violation.expected or 0) for key, n in step.effects):
            return number
    return len(life.steps) - 1


def _line(step: Step) -> tuple[str, int]:
    return step.boundary.site.file, step.boundary.site.line


class DebuggerLeft(Exception):
    """The person has asked the debugger to quit."""


def debugged(run: Callable[[], None], scene: Scene, debugger: pdb.Pdb) -> str:
    """Run with a debugger that opens at the scene, and where something is raised; returns how it went.

    Raises DebuggerLeft.
    """
    before = sys.gettrace()
    debugger.reset()
    stop = None
    if scene.site is not None and scene.site.line and not debugger.set_break(scene.site.file, scene.site.line):
        stop = debugger.get_breaks(scene.site.file, scene.site.line)[0]
        stop.ignore = scene.passing - 1
    debugger.botframe = sys._getframe()  # as if it had been continued from here
    debugger.set_continue()
    sys.settrace(before if stop is None else debugger.trace_dispatch)
    try:
        run()
    except BdbQuit:
        raise DebuggerLeft from None
    except BaseException as error:
        sys.settrace(before)
        debugger.reset()
        debugger.interaction(None, error.__traceback__)
        if debugger.quitting:
            raise DebuggerLeft from None
        return f"It raised {type(error).__name__}: {error}"
    finally:
        sys.settrace(before)
        debugger.clear_all_breaks()
    if stop is not None and stop.hits < scene.passing:
        return "It never came to that line here: time and randomness are real, and may lead another way."
    return "It ended."


@contextmanager
def _at_the_terminal(config: pytest.Config) -> Iterator[None]:
    """What is read and written is the person's, not pytest's."""
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is None:
        yield
        return
    capture.suspend_global_capture(in_=True)
    try:
        yield
    finally:
        capture.resume_global_capture()


def open_debugger(
    item: pytest.Item,
    violation: Violation | None,
    text: str,
    rewind: Callable[[Schedule], None],
    run: Callable[[], None],
) -> None:
    """With --pdb: show the last life of a violation, in place of pytest's own debugger, which would show the engine.

    text: the report. rewind: leaves the world as a schedule leaves it. run: one life, in this process.
    """
    _instead_of_pytests(item)
    found = None if violation is None else scene(violation)
    terminal = item.config.get_terminal_writer()
    with _at_the_terminal(item.config):
        terminal.line()
        terminal.line(text)
        terminal.sep(">", "once-chaos: debugger")
        if found is None:
            terminal.line(_NO_SCENE)
            return
        terminal.line(f"{found.told}.")
        rewind(found.before)
        debugger = _debugger_class(item.config)()
        item.config.hook.pytest_enter_pdb(config=item.config, pdb=debugger)
        try:
            terminal.line(debugged(run, found, debugger))
        except DebuggerLeft:
            pytest.exit("Quitting debugger")
        finally:
            item.config.hook.pytest_leave_pdb(config=item.config, pdb=debugger)


_NO_SCENE = (
    "No process is left to look at: the test ran in incarnations, and they are gone. To debug it in this process: "
    "--once-isolation=none --pdb, with breakpoint() where you want to look."
)


def _instead_of_pytests(item: pytest.Item) -> None:
    """Until this item is torn down, pytest opens no debugger."""
    plugins = item.config.pluginmanager
    theirs = plugins.unregister(name="pdbinvoke")
    if theirs is not None:
        item.addfinalizer(lambda: plugins.register(theirs, "pdbinvoke"))


def _debugger_class(config: pytest.Config) -> type[pdb.Pdb]:
    """pdb, or what --pdbcls names, which pytest has checked."""
    named = config.getoption("usepdb_cls")
    if not named:
        return pdb.Pdb
    found: Any = importlib.import_module(named[0])
    for name in named[1].split("."):
        found = getattr(found, name)
    return cast(type[pdb.Pdb], found)
