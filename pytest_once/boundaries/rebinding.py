"""Early imports: names that user code bound before a seam could replace what they name.

`from sqlite3 import connect` keeps the old function whatever happens to `sqlite3.connect` later. Finding
such names means looking at every loaded module, so the parent does it once per exploration, for all seams
together; each child only rebinds.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from types import FunctionType
from typing import Any, TypeAlias

Reference: TypeAlias = tuple[dict[str, Any], str]
"""A module's namespace and a name in it."""

_OWN = ("pytest_once", "once_fakes")
_NATIVE = frozenset({"posix", "nt", "_io", "time", "_sqlite3"})
"""Modules that define the originals: replacing them there would leave the seam nothing to call."""


def references(*objects: object, besides: Collection[str] = ()) -> list[Reference]:
    """Every module-level name that is bound to one of `objects` (by identity) in the modules loaded so far.

    besides: names of modules that were searched already. Modules of this project and the native ones that
    define the objects are left out.
    """
    wanted = {id(thing) for thing in objects}
    found: list[Reference] = []
    for name, module in list(sys.modules.items()):
        # The namespace itself, never getattr: a lazy module must not be made to load anything.
        namespace = getattr(module, "__dict__", None)
        if namespace is None or name in besides or name in _NATIVE or name.partition(".")[0] in _OWN:
            continue
        found += [(namespace, key) for key, value in list(namespace.items()) if id(value) in wanted]
    return found


def rebind(references: Sequence[Reference], original: object, replacement: object) -> None:
    """Bind each of the references that still names `original` to `replacement` instead, which takes its name too."""
    if isinstance(replacement, FunctionType):
        # Pickled by name, as multiprocessing does, it must be found where the original is.
        for name in ("__module__", "__name__", "__qualname__"):
            setattr(replacement, name, getattr(original, name, getattr(replacement, name)))
    for namespace, name in references:
        if namespace.get(name) is original:
            namespace[name] = replacement
