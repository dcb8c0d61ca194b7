"""Coverage: what lives have run is told to the measurement that is going on in the parent, whoever started it.

A child leaves at once and writes no file of its own, so coverage.py needs no configuration for it.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

Lines = dict[str, set[Any]]
"""File name -> numbers of lines, or pairs of them where branches are measured."""


@dataclass(slots=True)
class Ran:
    """What one life has run. tracers: file name -> the plugin of coverage.py that knows this kind of file."""

    lines: Lines = field(default_factory=dict)
    arcs: Lines = field(default_factory=dict)
    tracers: dict[str, str] = field(default_factory=dict)

    # As coverage.CoverageData has them: a collector flushes into whatever has these.
    def add_lines(self, lines: Mapping[str, Collection[int]]) -> None:
        _add(self.lines, lines)

    def add_arcs(self, arcs: Mapping[str, Collection[tuple[int, int]]]) -> None:
        _add(self.arcs, arcs)

    def add_file_tracers(self, tracers: Mapping[str, str]) -> None:
        self.tracers.update(tracers)


def ran() -> Ran | None:
    """In a child, at its end: what has been measured here and was told to nobody yet; None if nobody measures."""
    collector = _collector()
    if collector is None:
        return None
    collector.covdata = found = Ran()
    collector.flush_data()
    return found


@dataclass(slots=True)
class Told:
    """In the parent: what the lives of one exploration have run, each line told to the measurement once."""

    known: Ran = field(default_factory=Ran)

    def add(self, life: Ran | None) -> None:
        """Add what one life has run, if anybody measures."""
        collector = _collector()
        if life is None or collector is None:
            return
        lines, arcs = _new(life.lines, self.known.lines), _new(life.arcs, self.known.arcs)
        if lines:
            collector.covdata.add_lines(lines)
        if arcs:
            collector.covdata.add_arcs(arcs)
        if lines or arcs:
            collector.covdata.add_file_tracers(life.tracers)
        _add(self.known.lines, lines)
        _add(self.known.arcs, arcs)


def _collector() -> Any:
    """The collector of the measurement that is going on, or None. coverage.py has no public way to it."""
    coverage = sys.modules.get("coverage")
    current = coverage.Coverage.current() if coverage is not None and hasattr(coverage, "Coverage") else None
    return getattr(current, "_collector", None)


def _new(found: Lines, known: Lines) -> Lines:
    new = {name: lines - known.get(name, set()) for name, lines in found.items()}
    return {name: lines for name, lines in new.items() if lines}


def _add(known: Lines, more: Mapping[str, Collection[Any]]) -> None:
    for name, lines in more.items():
        known.setdefault(name, set()).update(lines)
