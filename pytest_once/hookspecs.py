"""Hooks for other plugins and conftest files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pluggy import HookspecMarker

if TYPE_CHECKING:
    from pytest_once.boundaries.seam import Seam
    from pytest_once.stores import Store

_hookspec = HookspecMarker("pytest")


@_hookspec
def pytest_once_boundaries() -> Iterable[Seam]:  # type: ignore[empty-body]
    """Seams for libraries that the built-in ones do not know; each announces what its library does to the world.

    Asked once for each marked test, in the parent process; nothing is installed there. See
    pytest_once.boundaries.seam.Seam for what is returned, pytest_once.boundaries.announce for what it calls.
    """


@_hookspec(firstresult=True)
def pytest_once_stores(target: str) -> Store | None:
    """A store for what `once.track(target)` names (a URL, usually), or None if it is not for this plugin.

    The first store that is not None is used. It is made in the parent process, once per exploration. Where the code
    under test must use another URL than `target`, that is the store's `address`; see `pytest_once.stores.Store`.
    """
