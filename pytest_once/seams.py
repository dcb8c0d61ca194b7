"""All seams together: what the parent prepares once, and what each child installs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_once import clock, entropy
from pytest_once.boundaries import files, httpx, servers, sqlite
from pytest_once.boundaries.asyncpg import ASYNCPG
from pytest_once.boundaries.psycopg import PSYCOPG
from pytest_once.boundaries.rebinding import Reference, references
from pytest_once.boundaries.redis import REDIS
from pytest_once.boundaries.seam import Seam, Wiring
from pytest_once.canonical import PID

if TYPE_CHECKING:
    from pytest_once.incarnation import Channel
    from pytest_once.life import Birth
    from pytest_once.once import Once
    from pytest_once.site import Site


@dataclass(slots=True)
class Prepared:
    """What the parent found before it forked: tracked directories, early imports, open connections.

    searched: names of the modules in which early imports were looked for.
    """

    roots: tuple[Path, ...]
    early: list[Reference]
    searched: set[str]
    inherited: list[sqlite.Inherited]


BOUNDARY_TAKES_S = 0.001
"""Virtual seconds that pass at each boundary, so that instants before and after it differ."""

_installed_roots: list[Path] = []

SERVERS: tuple[Seam, ...] = (PSYCOPG, ASYNCPG, REDIS)
"""The seams of clients of databases on servers."""

_KINDS = {"postgresql": "PostgreSQL database", "redis": "Redis database"}
_wiring: list[Wiring] = []
_hooked: set[str] = set()


def prepare(roots: Sequence[Path]) -> Prepared:
    """In the parent, once per exploration."""
    prepared = Prepared(tuple(roots), [], set(), sqlite.inherited_connections())
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

    def foreign_file(path: str, site: Site) -> None:
        channel.misuse(
            "outside",
            f"the database {path} is below no tracked directory, so its changes can be neither pictured nor undone, "
            "and would leak from one incarnation into another. Put it below tmp_path or once.path, or call "
            "once.track(its directory) at the beginning",
            site,
        )

    sqlite.install(_installed_roots, prepared.early, foreign_file)
    files.install(_installed_roots, prepared.early)

    def outside(method: str, url: str, site: Site) -> None:
        channel.misuse(
            "outside",
            f"{method} {url} would reach a server that no fake stands for: what it does there is neither counted "
            "nor undone, and exploring would send it many times. Point the client at once.provider(...).url, or use "
            "its router",
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

    def foreign_server(what: str, target: str, site: Site) -> None:
        kind, _, database = target.partition(":")
        channel.misuse(
            "outside",
            f"{what} would change {database}, a {_KINDS[kind]} that is not tracked: the "
            "change could be neither pictured nor undone, and would leak from one incarnation into another. Call "
            "url = once.track(url) at the beginning, and use the URL it returns",
            site,
        )

    def hold(provider: str, operation: str, request: dict[str, Any]) -> None:
        raise NotImplementedError("no seam here holds requests")

    _wiring[:] = [Wiring(prepared.early, _installed_roots, foreign_server, told, hold)]
    _hook_imported()

    sqlite.watch_inherited(prepared.inherited, inherited)
    channel.now_s = lambda: time.now_s
    channel.between = lambda: time.advance(BOUNDARY_TAKES_S)
    return time


def _hook_imported() -> None:
    for seam in SERVERS:
        if seam.library in sys.modules and seam.name not in _hooked:
            _hooked.add(seam.name)
            seam.install(_wiring[0])


def watch_server(address: str) -> None:
    """In the child: one more database on a server belongs to the world."""
    servers.track(address)
    _hook_imported()


def watch_also(directory: Path) -> None:
    """In the child: one more directory belongs to the world."""
    if directory not in _installed_roots:
        _installed_roots.append(directory)
        sqlite.add_root(directory)
        files.add_root(directory)
