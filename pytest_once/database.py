"""Failing schedules, kept from one run to the next. A disposable cache: what cannot be read is absent, and nothing here
changes a verdict; a schedule that is still wrong is merely found sooner."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pytest_once.faults import Schedule, ScheduleError
from pytest_once.report import Report
from pytest_once.scenario import Expectations, Limits

KEPT_SCHEDULES = 8
"""Of one test, so many are kept."""
KEPT_TESTS = 1000
"""Of so many tests. Beyond, those that failed longest ago are forgotten."""
_LONGEST_BYTES = 64 * 1024
_FORMAT = 1


def terms(expectations: Expectations, limits: Limits) -> str:
    """What decides which schedules a search may try; one that was found under other terms says nothing under these."""
    parts = (
        limits.soft_faults,
        sorted(limits.fault_kinds),
        limits.in_flight,
        limits.choices,
        expectations.redeliver,
        expectations.restart_after_s,
    )
    return json.dumps(parts)


@dataclass(frozen=True, slots=True)
class Failures:
    """The failing schedules of one test under certain terms, in a directory shared by all tests and processes.

    directory: None if nothing is kept.
    """

    directory: Path | None
    test: str
    terms: str

    def fetch(self) -> tuple[Schedule, ...]:
        """Those that failed when the test was last explored, most important first."""
        if self.directory is None:
            return ()
        try:
            with self._path(self.directory).open("rb") as file:
                kept = json.loads(file.read(_LONGEST_BYTES))
            if [kept[name] for name in ("format", "test", "terms")] != [_FORMAT, self.test, self.terms]:
                return ()
            return tuple(Schedule.parse(text) for text in kept["schedules"][:KEPT_SCHEDULES])
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, ScheduleError):
            return ()

    def keep(self, schedules: Iterable[Schedule]) -> None:
        """Let these be what fails now; with none of them the test is forgotten. Where nothing can be written, nothing
        is kept."""
        if self.directory is None:
            return
        texts = list(dict.fromkeys(map(str, schedules)))[:KEPT_SCHEDULES]
        content = json.dumps({"format": _FORMAT, "test": self.test, "terms": self.terms, "schedules": texts}).encode()
        path = self._path(self.directory)
        with contextlib.suppress(OSError):
            if not texts or len(content) > _LONGEST_BYTES:
                path.unlink(missing_ok=True)
                return
            self.directory.mkdir(parents=True, exist_ok=True)
            _write(path, content)
            _forget_oldest(self.directory)

    def learn(self, report: Report) -> None:
        """Keep what this exploration has shown to fail. One without an answer has not shown anything to be mended."""
        failing = [violation.schedule for violation in report.violations if violation.confirmed]
        if report.coverage != "none" and (failing or not report.violations):
            self.keep(failing)

    def _path(self, directory: Path) -> Path:
        name = hashlib.blake2b(f"{self.test}\n{self.terms}".encode("utf-8", "surrogateescape"), digest_size=16)
        return directory / f"{name.hexdigest()}.json"


def _write(path: Path, content: bytes) -> None:
    """All of it or nothing, whoever else writes at the same time."""
    descriptor, new = tempfile.mkstemp(prefix="new-", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
        os.replace(new, path)
    except BaseException:
        os.unlink(new)
        raise


def _forget_oldest(directory: Path) -> None:
    with os.scandir(directory) as entries:
        aged = sorted((entry.stat().st_mtime_ns, entry.path) for entry in entries if entry.name.endswith(".json"))
    for _, path in aged[:-KEPT_TESTS]:
        Path(path).unlink(missing_ok=True)
