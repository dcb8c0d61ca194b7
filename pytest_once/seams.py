"""All seams together: what the parent prepares once, and what each child installs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_once import audit, clock, entropy, filetimes, process
from pytest_once.allowance import Allowance, request_names
from pytest_once.boundaries import files, servers, sqlite, sqlite_inherited
from pytest_once.boundaries.builtin import BUILT_IN
from pytest_once.boundaries.importing import when_imported
from pytest_once.boundaries.rebinding import Reference, references
from pytest_once.boundaries.seam import Seam, Wiring
from pytest_once.scanning import PID

if TYPE_CHECKING:
    from pytest_once.incarnation import Channel
    from pytest_once.life import Birth
    from pytest_once.once import Once
    from pytest_once.site import Site


@dataclass(slots=True)
class Prepared:
    """What the parent found before it forked: tracked directories, early imports, open connections.

    libraries: the seams of libraries, built in and third parties'. searched: names of the modules in which early
    imports were looked for. allow: what may be touched outside.
    """

    roots: tuple[Path, ...]
    libraries: tuple[Seam, ...]
    early: list[Reference]
    searched: set[str]
    inherited: list[sqlite_inherited.Inherited]
    allow: tuple[Allowance, ...] = ()


_installed_roots: list[Path] = []

_DATABASES = {"postgresql": "PostgreSQL database", "redis": "Redis database"}


def prepare(roots: Sequence[Path], allow: Sequence[str] = (), seams: Sequence[Seam] = ()) -> Prepared:
    """In the parent, once per exploration. seams: those of third parties, besides the built-in ones."""
    prepared = Prepared(
        tuple(roots),
        (*BUILT_IN, *seams),
        [],
        set(),
        sqlite_inherited.inherited_connections(),
        tuple(map(Allowance.parse, allow)),
    )
    refresh(prepared)
    return prepared


def refresh(prepared: Prepared) -> None:
    """In the parent, again after it has imported more: modules may hold names that must be rebound."""
    originals = [*clock.originals(), *entropy.originals(), *sqlite.originals(), *files.originals()]
    for seam in prepared.libraries:
        if seam.library in sys.modules:
            originals += seam.originals()
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
    filetimes.watch(_installed_roots, lambda: channel.request("reads_times", None))

    def outside(what: str, target: str, site: Site) -> None:
        if not audit.permits(*_allowable(target)):
            channel.misuse("outside", _outside_message(what, target), site)

    def told(provider: str, operation: str, arrival: str | None, what: str) -> None:
        # A server that is registered as a fake but none of ours may name arrivals as it likes.
        number = int(arrival) if arrival is not None and arrival.isdecimal() else None
        once.ledger.record_told(number, provider, operation, what)

    def hold(provider: str, operation: str, request: dict[str, Any]) -> None:
        once.ledger.hold(provider, operation, request)

    def tell_time(provider: str) -> None:
        if once.keeps_time(provider):
            once.ledger.set_now(time.now_s)

    def secret(value: str) -> None:
        if value not in secrets:
            secrets.add(value)
            channel.request("secret", value)

    secrets: set[str] = set()
    wiring = Wiring(prepared.early, _installed_roots, outside, told, hold, tell_time, secret)
    process.wire(process.Wired(wiring, channel.mint))
    when_imported([(seam.library, partial(seam.install, wiring)) for seam in prepared.libraries])

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


def _allowable(target: str) -> tuple[str, ...]:
    """How `allow=` would name a target: its kind, then its names."""
    kind, _, name = target.partition(":")
    if kind == "subprocess":
        return ("process", name)
    if kind in ("smtp", "redis"):
        return ("socket", name.lstrip("/").partition("/")[0])
    if kind == "postgresql":
        return ("socket", name)
    return ("http", *request_names(target))


def _outside_message(what: str, target: str) -> str:
    kind, _, name = target.partition(":")
    if kind in _DATABASES:
        return (
            f"{what} would change {name}, a {_DATABASES[kind]} that is not tracked: the change could be neither "
            "pictured nor undone, and would leak from one incarnation into another. Call url = once.track(url) at the "
            "beginning, and use the URL it returns"
        )
    if kind == "subprocess":
        return (
            f"the program {name} is run: what it does is neither counted nor undone, and exploring would run it "
            "many times. Wrap the function that runs it with once.tool(fn), which counts each call as an effect, or "
            "with once.tool(fn, counted=False) if what it does is counted elsewhere or changes nothing outside the "
            "tracked directories. A server that the test needs is started in a module or session fixture. If "
            f'nothing depends on what it does: allow=("process:{name}",)'
        )
    if kind == "smtp":
        return (
            f"{what} {target} would reach a server that no fake stands for: it would be neither counted nor undone, "
            "and exploring would send it many times. Let a fake server receive it, and register its address with "
            'pytest_once.boundaries.register_endpoint("smtp://HOST:PORT", name)'
        )
    return (
        f"{what} {target} would reach a server that no fake stands for: what it does there is neither counted "
        "nor undone, and exploring would send it many times. Point the client at once.provider(...).url, use its "
        f'router, or, if no effect depends on it, allow=("http:{request_names(target)[0]}",)'
    )


def watch_server(address: str) -> None:
    """In the child: one more database on a server belongs to the world."""
    servers.track(address)
    for host, port in servers.sockets(address):
        audit.allow_connection(host, port)


def watch_also(directory: Path) -> None:
    """In the child: one more directory belongs to the world."""
    if directory not in _installed_roots:
        _installed_roots.append(directory)
        sqlite.add_root(directory)
        files.add_root(directory)
