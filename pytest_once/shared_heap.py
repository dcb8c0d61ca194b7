"""The heap that forked children share with their parent: what stays untouched in it is not copied.

A fork copies the parent's page tables, so its price grows with the parent's memory: garbage is paid for in every life.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_GROWTH = 1.1
"""What survived the last full collection may have grown by this much before there is another one."""

_survived = 0


@contextmanager
def shared_heap() -> Iterator[None]:
    """While children are forked: a collection, here or in one of them, would touch what all share, so it is frozen.

    Freezing hides from the collector how much the heap has grown: it would hardly ever look at the oldest objects of a
    session that explores many tests. So they are collected here.
    """
    global _survived
    gc.freeze()
    if gc.get_freeze_count() > _GROWTH * _survived:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        _survived = gc.get_freeze_count()
    try:
        yield
    finally:
        gc.unfreeze()
