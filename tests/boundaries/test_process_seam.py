"""Running another program: announced where the test has spoken for it, else reported as escaping."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from os import system as system_by_name
from typing import Any

import pytest

from pytest_once import Once, Verdict, explore
from pytest_once.boundaries import Order
from pytest_once.boundaries.subprocess import PROCESSES
from pytest_once.calls import perform, perform_async
from tests.boundaries.fake_server import lived
from tests.engine.bodies import proven, told


async def _asyncio_exec() -> Any:
    process = await asyncio.create_subprocess_exec("true")
    return await process.wait()


def _spawn() -> Any:
    return os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", "exit 0"], {}), 0)[1]


RUNS: dict[str, tuple[Callable[[], Any], str]] = {
    "run": (lambda: subprocess.run(["true"], check=True).returncode, "true"),
    "call with a path": (lambda: subprocess.call(["/bin/sh", "-c", "exit 0"]), "sh"),
    "text": (lambda: subprocess.call("true"), "true"),
    "shell": (lambda: subprocess.call("true && : git", shell=True), "true"),
    "executable": (lambda: subprocess.call(["renamed", "-c", "exit 0"], executable="/bin/sh"), "sh"),
    "this interpreter": (lambda: subprocess.call([sys.executable, "-S", "-c", ""]), "python"),
    "popen": (lambda: os.popen("true").close() or 0, "true"),
    "system": (lambda: os.system("true"), "true"),
    "asyncio": (lambda: asyncio.run(_asyncio_exec()), "true"),
    "posix_spawn": (_spawn, "sh"),
}


@pytest.mark.parametrize("run", RUNS)
def test_each_way_to_run_a_program_is_seen_once(run: str) -> None:
    """And before it runs: what a program has done cannot be taken back."""
    start, program = RUNS[run]

    seen = lived(start, [PROCESSES])

    assert [one[:2] for one in seen.outside] == [["runs", f"subprocess:{program}"]]
    assert seen.outside[0][2]
    assert (seen.returned, seen.targets) == (0, ["after"])


def test_a_function_held_by_name_is_seen_too() -> None:
    """`from os import system`, long before the seam was installed; the parent's search finds the name."""
    assert PROCESSES.originals()[0] is system_by_name


def test_inside_a_wrapped_call_it_is_a_boundary() -> None:
    """Whoever wraps the call has said what its effects are."""

    def body() -> Any:
        async def run_later() -> int:
            return await _asyncio_exec()  # type: ignore[no-any-return]

        codes = [perform(Order(), lambda: subprocess.call(["true"]))]
        codes.append(asyncio.run(perform_async(Order(), run_later)))
        codes.append(subprocess.call(["true"]))
        return codes

    seen = lived(body, [PROCESSES])

    assert [(one.kind, one.target) for one in seen.recording.passed] == [
        ("process", "subprocess:true"),
        ("process", "subprocess:true"),
        ("point", "after"),
    ]
    assert len(seen.outside) == 1
    assert seen.returned == [0, 0, 0]


def test_a_wrong_call_fails_as_it_always_does() -> None:
    """The seam looks at the arguments first, and must not stumble over them."""
    for wrong in (lambda: subprocess.call([]), lambda: subprocess.Popen(), lambda: os.system(3)):  # type: ignore[call-overload,arg-type]
        with pytest.raises(Exception) as expected:  # noqa: PT011 - whichever it is
            wrong()
        assert lived(wrong, [PROCESSES]).returned[0] == expected.type.__name__


def test_the_standard_library_may_ask_about_the_machine() -> None:
    """`platform` and `uuid` run programs to learn something; boto3 asks at every start."""

    def body() -> Any:
        import ctypes.util
        import platform

        platform._Processor.from_subprocess()  # type: ignore[attr-defined]
        return ctypes.util.find_library("c") is not None

    seen = lived(body, [PROCESSES])

    assert (seen.targets, seen.outside) == (["after"], [])


def test_a_program_that_nobody_speaks_for_is_an_escaped_effect() -> None:
    """It may push, pay or delete; a pass would say nothing about that. The message names the remedy."""

    def body(once: Once) -> None:
        once.provider("pay", contract="client_key").call("refund", {"order": "o1"}, key="o1")
        subprocess.run(["git", "push"], check=True)

    report = explore(body, soft_faults=0)

    assert (report.verdict, report.passed) == (Verdict.ESCAPED_EFFECT, False)
    assert "the program git is run" in told(report)
    assert "once.tool(fn, counted=False)" in told(report)
    assert "git" in report.problem.rpartition("(")[0]


def test_a_program_in_a_tool_is_explored() -> None:
    """Counted: each call is one effect. Not counted: what it changes is pictured like anything else."""

    def marks(path: str) -> None:
        subprocess.run(["touch", path], check=True)

    def counted(once: Once) -> None:
        if not (once.path / "marked").exists():
            once.tool(marks, key="mark")(str(once.path / "marked"))

    def uncounted(once: Once) -> None:
        once.tool(marks, counted=False)(str(once.path / "marked"))
        once.provider("pay", contract="client_key").call("refund", {"order": "o1"}, key="o1")

    assert proven(explore(counted, soft_faults=0)), "the mark and the count are one step"
    assert proven(explore(uncounted, soft_faults=0))
