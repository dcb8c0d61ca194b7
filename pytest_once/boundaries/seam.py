"""What a seam is: the adapter of one library, built in or a third party's (hook `pytest_once_boundaries`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pytest_once.boundaries.rebinding import Reference
from pytest_once.site import Site


class Told(Protocol):
    """Told the ledger: what the caller of `operation` learned.

    arrival: the provider's id of the (first) arrival, None if none is known. what: "status 200", or the
    name of the exception.
    """

    def __call__(self, provider: str, operation: str, arrival: str | None, what: str) -> None: ...


class Hold(Protocol):
    """Keep a request on its way to a provider; it arrives later or never. request: what a transport would send.

    request holds "method", "path" (below the provider's address, percent-encoded, with its query), "headers"
    (name to value) and "body" (bytes).
    """

    def __call__(self, provider: str, operation: str, request: dict[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class Wiring:
    """What a seam may use in a child.

    early: names bound to originals before the fork (see rebinding). roots: tracked directories; grows.
    outside(what, target, site): reports a change of something that no fake stands for and no store tracks, and does
    not return unless the test allows the target. told, hold: see there. tell_time(provider): lets a fake whose
    contract depends on time know the virtual one; before a request is sent to it. secret(value): no report may show it.
    """

    early: list[Reference]
    roots: list[Path]
    outside: Callable[[str, str, Site], None]
    told: Told
    hold: Hold
    tell_time: Callable[[str], None] = lambda provider: None
    secret: Callable[[str], None] = lambda value: None


class Seam(Protocol):
    """Announces what one library does to the world, attempt by attempt.

    name: for messages ("aiohttp"). library: the module that must be imported before install() is called; if the body
    imports it later, install() is called then.
    """

    @property
    def name(self) -> str: ...

    @property
    def library(self) -> str: ...

    def originals(self) -> tuple[object, ...]:
        """In the parent, library imported: module-level objects that install() replaces and others may hold by name."""
        ...

    def install(self, wiring: Wiring) -> None:
        """In a forked child, library imported: hook the library. It is never undone; the child ends.

        Find the library as sys.modules[library]: if it is being imported right now and is part of a package, that
        package has no attribute for it yet.
        """
        ...
