"""Runs a body in a forked child, as an incarnation would be, and records what its seams announce."""

from __future__ import annotations

import json
import os
import select
import signal
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pytest_once.boundaries import Announcer, Boundary, Order, connect

PATIENCE_S = 20


@dataclass
class Passed:
    """One announcement. line: text of the user's line; seen: what the parent saw while the child waited.

    ordered: the fault that the child was told to perform.
    """

    kind: str
    target: str
    line: str
    provider: str | None
    faults: list[str]
    seen: Any = None
    ordered: str | None = None


@dataclass
class Recording:
    """What a child announced, and what its body returned (through JSON) or raised (as text)."""

    passed: list[Passed] = field(default_factory=list)
    result: Any = None
    error: str | None = None
    status: int = 0

    def targets(self) -> list[str]:
        return [one.target for one in self.passed]

    def fired(self) -> list[tuple[str, str]]:
        """(target, fault) of each order to fail."""
        return [(one.target, one.ordered) for one in self.passed if one.ordered]

    def seen(self) -> list[tuple[str, Any]]:
        return [(one.target, one.seen) for one in self.passed]


def recorded(
    body: Callable[[], Any],
    *,
    install: Callable[[], None],
    look: Callable[[], Any] = lambda: None,
    fault: str | None = None,
    at: str = "",
) -> Recording:
    """Fork, install the seams, run the body. look: called in the parent at each announcement.

    fault: ordered at the first announcement that offers it and has `at` in its target. Fails the test if the
    child neither ends nor announces anything for 20 s.
    """
    from_child, to_parent = os.pipe()
    from_parent, to_child = os.pipe()
    pid = os.fork()
    if pid == 0:
        _be_the_child(body, install, from_parent, to_parent)
    os.close(to_parent)
    os.close(from_parent)
    recording = Recording()
    try:
        with os.fdopen(from_child) as lines, os.fdopen(to_child, "w") as answers:
            while select.select([lines], [], [], PATIENCE_S)[0]:
                line = lines.readline()
                if not line:
                    break
                message = json.loads(line)
                if "end" in message:
                    recording.result, recording.error = message["end"], message["error"]
                    continue
                passed = Passed(**message, seen=look())
                recording.passed.append(passed)
                order = fault if fault in passed.faults and at in passed.target else None
                passed.ordered = order
                fault = None if order else fault
                answers.write(json.dumps(order) + "\n")
                answers.flush()
            else:
                raise AssertionError(f"the child hangs after {recording.targets()}")
    finally:
        os.kill(pid, signal.SIGKILL)
        recording.status = os.waitpid(pid, 0)[1]
    return recording


def _be_the_child(body: Callable[[], Any], install: Callable[[], None], from_parent: int, to_parent: int) -> None:
    status = 1
    write = os.write  # the files seam replaces os.write

    def ask(boundary: Boundary) -> Order:
        message = {
            "kind": boundary.kind,
            "target": boundary.target,
            "line": boundary.site.text,
            "provider": boundary.provider,
            "faults": list(boundary.faults),
        }
        write(to_parent, json.dumps(message).encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            answer += os.read(from_parent, 100)
        return Order(json.loads(answer))

    try:
        warnings.simplefilter("ignore")  # what a body leaves open dies with it, as in a crash
        connect(Announcer(ask))
        install()
        result, error = None, None
        try:
            result = body()
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
        write(to_parent, json.dumps({"end": result, "error": error}).encode() + b"\n")
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)
