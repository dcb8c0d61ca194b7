"""Libraries that the body imports late: each is hooked as soon as its own import has succeeded.

Nothing third-party is imported for somebody who does not use it, and whatever does use it finds it hooked.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


def when_imported(hooks: Sequence[tuple[str, Callable[[], None]]]) -> None:
    """Call each hook once its module is imported: now, if it is, else right after. For a forked child only."""
    waiting: dict[str, list[Callable[[], None]]] = {}
    for name, hook in hooks:
        if name in sys.modules:
            hook()
        else:
            waiting.setdefault(name, []).append(hook)
    if waiting:
        sys.meta_path.insert(0, _Finder(waiting))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds what the others find, and puts our loader around theirs."""

    def __init__(self, waiting: dict[str, list[Callable[[], None]]]) -> None:
        self._waiting = waiting

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        hooks = self._waiting.pop(fullname, None)
        if hooks is None:
            return None
        # Asks all finders again, this one too, which no longer waits for the module.
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            self._waiting[fullname] = hooks  # asked for, but not there; it may be installed or come into the path
        else:
            spec.loader = _Hooking(spec.loader, hooks)
        return spec


class _Hooking(importlib.abc.Loader):
    """Runs a module's own loader, then the hooks."""

    def __init__(self, loader: Any, hooks: list[Callable[[], None]]) -> None:
        self._loader = loader
        self._hooks = hooks

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        for hook in self._hooks:
            hook()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
