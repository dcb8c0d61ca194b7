"""All seams together: what the parent prepares once, and what each child installs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_once import audit, clock, entropy
from pytest_once.allowance import Allowance, request_names
from pytest_once.boundaries import files, httpx, sqlite, sqlite_inherited
from pytest_once.boundaries.rebinding import Reference, references
from pytest_once.scanning import PID

if TYPE_CHECKING:
    from pytest_once.incarnation import Channel
    from pytest_once.life import Birth
    from pytest_once.once import Once
    from pytest_once.site import Site


@dataclass(slots=True)
class Prepared:
    """What the parent found before it forked: tracked directories, early imports, open connections.

    searched: names of the modules in which early imports were looked for. allow: what may be touched outside.
    """

    roots: tuple[Path, ...]
    early: list[Reference]
    searched: set[str]
    inherited: list[sqlite_inherited.Inherited]
    allow: tuple[Allowance, ...] = ()


_installed_roots: list[Path] = []


def prepare(roots: Sequence[Path], allow: Sequence[str] = ()) -> Prepared:
    """In the parent, once per exploration."""
    allowances = tuple(map(Allowance.parse, allow))
    prepared = Prepared(tuple(roots), [], set(), sqlite_inherited.inherited_connections(), allowances)
    refresh(prepared)
    return prepared


def refresh(prepared: Prepared) -> None:
    """In the parent, again after it has imported more: modules may hold names that must be rebound."""
    httpx.prepare()
    originals = (*clock.originals(), *entropy.originals(), *sqlite.originals(), *files.originals())
    prepared.early += references(*originals, besides=prepared.searched)
    prepared.searched.update(sys.modules)


def install(prepared: Prepared, channel: Channel, birth: Birth, once: Once) -> clock.Clock:
    """In the child, before the body: from here on, everything the seams know is announced."""
    entropy.install(b"%d/%d" % (birth.number, birth.variant), channel.mint, prepared.early)
    channel.mint([f"{PID}{os.getpid()}"])
    time = clock.Clock(birth.start_s)
    time.install(prepared.early)
    _installed_roots[:] = prepared.roots
    audit.install(
        _installed_roots,
        once.path.parent,
        prepared.allow,
        lambda message, site: channel.misuse("outside", message, site),
        lambda target: channel.request("allowed", target),
    )

    def foreign_file(path: str, site: Site) -> None:
        if audit.permits("file", path):
            return
        channel.misuse(
            "outside",
            f"the database {path} is below no tracked directory, so its changes can be neither pictured nor undone, "
            "and would leak from one incarnation into another. Put it below tmp_path or once.path; call "
            "once.track(its directory) at the beginning; or, if no decision depends on it, "
            f'allow=("file:{path}",)',
            site,
        )

    sqlite.install(_installed_roots, prepared.early, foreign_file)
    files.install(_installed_roots, prepared.early)

    def outside(method: str, url: str, site: Site) -> None:
        if audit.permits("http", *request_names(url)):
            return
        channel.misuse(
            "outside",
            f"{method} {url} would reach a server that no fake stands for: what it does there is neither counted "
            "nor undone, and exploring would send it many times. Point the client at once.provider(...).url, use its "
            f'router, or, if no effect depends on it, allow=("http:{request_names(url)[0]}",)',
            site,
        )

    def told(provider: str, operation: str, arrival: str | None, what: str) -> None:
        once.ledger.record_told(None if arrival is None else int(arrival), provider, operation, what)

    httpx.install(outside, told)

    def inherited(file: str, site: Site) -> None:
        channel.misuse(
            "inherited-connection",
            f"a connection to {file} was opened before the incarnation (at module level, or by a module or session "
            "fixture) and is used inside it. A restarted process opens its own: open it in the test, or in a "
            "function-scoped fixture",
            site,
        )

    sqlite_inherited.watch_inherited(prepared.inherited, inherited)
    channel.now_s = lambda: time.now_s
    channel.between = lambda: time.advance(clock.BOUNDARY_TAKES_S)
    return time


def watch_also(directory: Path) -> None:
    """In the child: one more directory belongs to the world."""
    if directory not in _installed_roots:
        _installed_roots.append(directory)
        sqlite.add_root(directory)
        files.add_root(directory)
