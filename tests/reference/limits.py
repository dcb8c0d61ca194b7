"""What no code can promise, as runs: `python -m tests.reference.limits` prints what docs/what-it-cannot-promise.md
shows."""

from __future__ import annotations

import tempfile
import textwrap
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from once_fakes import CLIENT_KEY_24H
from pytest_once import Once, Report, Verdict, explore
from pytest_once.reference.answers import Answer, Applied
from pytest_once.reference.claims import Delivery
from pytest_once.reference.databases import SQLite
from pytest_once.reference.relay import Relay, one_by_one
from tests.reference.mutants.keys import KEPT_A_DAY
from tests.reference.mutants.scenes import (
    AT_ONCE,
    BLIND,
    FACTS,
    FOR_EVER,
    OUTBOX,
    SEEN,
    Body,
    refunding,
    report,
    save,
    world,
)
from tests.reference.mutants.telling import story

WIDTH = 100
BOUNDED: Mapping[str, Any] = {"max_states": 25}


def _behind_an_outbox(once: Once, files: Path) -> None:
    """The outbox is right in everything, and the service knows no keys."""
    mail = once.provider("mail")
    with closing(SQLite(once.track(files) / "agent.db")) as ours:

        def send(delivery: Delivery) -> Answer:
            mail.call("send", {"about": "report-17"}, key=delivery.event_id).raise_for_status()
            return Applied("status 200")

        ours.transact(save(report()))
        Relay(ours, one_by_one(send), FACTS).drain()


@dataclass(frozen=True)
class Limit:
    """name: as the page has it, before its output."""

    name: str
    body: Body
    how: Mapping[str, Any]
    verdict: Verdict


LIMITS = (
    Limit("no-key-no-lookup", refunding(), BLIND, Verdict.ESCALATED),
    Limit("doubled-by-the-network", refunding(), {**BLIND, **BOUNDED, "profile": "standard", "faults": ("duplicate",)},
          Verdict.DUPLICATE),
    Limit("lookup-and-late-arrival", refunding(contract=SEEN, promise=AT_ONCE),
          {**BLIND, "max_states": 40, "profile": "deep", "soft_faults": 1, "in_flight": 1, "faults": ("late",)},
          Verdict.DUPLICATE),
    Limit("retention-believed-too-long", refunding(contract=CLIENT_KEY_24H, promise=FOR_EVER),
          {**BLIND, **BOUNDED, "restart_after": ("31s", "25h")}, Verdict.DUPLICATE),
    Limit("retention-respected", refunding(contract=CLIENT_KEY_24H, promise=KEPT_A_DAY),
          {**BLIND, "redeliver": 0, "restart_after": ("31s", "25h"),
           "ignore": ("gate_intents.attempts", "*.attempt", "*.reason", "gate_*.*_at")}, Verdict.ESCALATED),
    Limit("service-behind-an-outbox", _behind_an_outbox, {**OUTBOX, **BOUNDED, "ignore": ()}, Verdict.DUPLICATE),
)  # fmt: skip


def run(limit: Limit) -> Report:
    """The run that shows it."""
    with tempfile.TemporaryDirectory() as directory:
        world(Path(directory))
        return explore(lambda once: limit.body(once, Path(directory)), name=limit.name, **limit.how)


def told(limit: Limit, found: Report) -> str:
    """The verdict, the shortest story, and why no code could do better, where the engine can show it."""
    lines = [f"{limit.name}: {found.verdict}"]
    if found.violations:
        lines += textwrap.wrap(story(found).replace("`", ""), WIDTH)
    if found.impossible:
        lines += textwrap.wrap(found.impossible, WIDTH)
    return "\n".join(lines)


if __name__ == "__main__":
    for each in LIMITS:
        print(f"```text\n{told(each, run(each))}\n```\n", flush=True)
