"""`explore` and `replay`: the same as the marker, for programs that are not tests."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_once import inherited
from pytest_once.boundaries.seam import Seam
from pytest_once.events import Listener, silent
from pytest_once.exploration import Exploration
from pytest_once.faults import Schedule
from pytest_once.once import Once
from pytest_once.premises import Premises, ProviderServer
from pytest_once.recording import FrontEnd
from pytest_once.report import Report
from pytest_once.scenario import from_marker, profile_limits
from pytest_once.stores.opening import OpenStore, open_builtin

inherited.watch()


def explore(
    body: Callable[[Once], Any],
    *,
    name: str | None = None,
    profile: str = "standard",
    limits: Mapping[str, Any] | None = None,
    listener: Listener = silent,
    boundaries: Sequence[Seam] = (),
    open_store: OpenStore = open_builtin,
    **marker: Any,
) -> Report:
    """Explore `body(once)`, sync or async, as a marked test is explored, and return the report.

    profile: "crash", "standard" or "deep". limits: fields of pytest_once.scenario.Limits, such as
    {"deadline_s": 60, "max_states": 500}. boundaries: seams for libraries that the built-in ones do not know, as the
    hook pytest_once_boundaries returns them. open_store: makes the store that `once.track(url)` names, or answers
    None (then the built-in ones are asked). marker: the arguments of `once_effect`.
    Raises ScenarioError (a ValueError) for arguments that make no sense; what happens in the body is in the report.
    """
    with ProviderServer() as server, Premises(server, open_store) as premises:
        return _exploration(body, name, premises, profile, limits, listener, boundaries, marker).run()


def replay(
    body: Callable[[Once], Any],
    schedule: str,
    *,
    name: str | None = None,
    keep: Path | None = None,
    profile: str = "standard",
    limits: Mapping[str, Any] | None = None,
    boundaries: Sequence[Seam] = (),
    open_store: OpenStore = open_builtin,
    **marker: Any,
) -> Report:
    """Repeat one schedule of `body(once)` from nothing, with real SIGKILL at its crash points.

    schedule: an id as printed in a report. keep: directory that receives the world's files as the schedule left them.
    Raises ScheduleError for an id that cannot be read; one that does not fit the code is told in the report.
    """
    planned = Schedule.parse(schedule)
    with ProviderServer() as server, Premises(server, open_store) as premises:
        report = _exploration(body, name, premises, profile, limits, silent, boundaries, marker).replay(planned)
        if keep is not None:
            premises.keep(keep)
        return report


def _exploration(
    body: Callable[[Once], Any],
    name: str | None,
    premises: Premises,
    profile: str,
    limits: Mapping[str, Any] | None,
    listener: Listener,
    seams: Sequence[Seam],
    marker: Mapping[str, Any],
) -> Exploration:
    expectations, base = from_marker((), marker, profile_limits(profile, limits))

    def act(once: Once) -> Any:
        return asyncio.run(body(once)) if inspect.iscoroutinefunction(body) else body(once)

    return Exploration(
        name=name or str(getattr(body, "__name__", "body")),
        premises=premises,
        front=FrontEnd(act=act),
        expectations=expectations,
        limits=base,
        listener=listener,
        seams=seams,
    )
