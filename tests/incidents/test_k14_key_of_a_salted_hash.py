"""K14: the key is the language's built-in hash of a text, which is salted anew in each process.

Stable as long as one process lives, another one after every restart. Reports: Opentrons/opentrons#12581,
suitenumerique/meet#148. Lives are forked from one process and share its salt, so each starts an interpreter of its own,
with a seed as random as a new process has it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

from pytest_once import Once, Verdict, explore
from tests.incidents.models import convicted, exactly_once


def salted_hash(text: str) -> str:
    """hash(text) in a new process."""
    seed = int.from_bytes(os.urandom(4), "big") or 1
    command = [sys.executable, "-S", "-c", f"print(hash({text!r}))"]
    return subprocess.check_output(command, env={"PYTHONHASHSEED": str(seed)}, text=True).strip()


def worker(once: Once, key: str) -> None:
    once.provider("rooms", contract="client_key").call("open", {"room": "room_1"}, key=key)


def test_the_key_does_not_survive_the_process() -> None:
    report = explore(
        lambda once: worker(once, salted_hash("room_1")), soft_faults=0, redeliver=0, allow=("process:python*",)
    )
    violation = convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="room_1")
    assert violation.schedule.crashes == 1


def test_a_digest_is_the_same_in_every_process() -> None:
    exactly_once(explore(lambda once: worker(once, hashlib.sha256(b"room_1").hexdigest()), soft_faults=0))
