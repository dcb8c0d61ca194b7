"""Randomness of an incarnation: a function of its seed, so that a schedule replays exactly.

Another seed gives entirely other values; comparing two runs shows which stored values are random.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import sys
import tempfile
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from pytest_once import inherited
from pytest_once.boundaries.rebinding import Reference, rebind

_SHORTEST_MINTED = 4
"""Bytes below which a draw is too short to be recognised again in stored text."""


def originals() -> tuple[object, ...]:
    """What `install()` replaces: the parent looks for early references to these."""
    return tuple(dict.fromkeys((inherited.ORIGINAL_URANDOM, inherited.urandom())))


def install(seed: bytes, mint: Callable[[list[str]], None], early: Sequence[Reference] = ()) -> None:
    """Make randomness a function of `seed` from now on; for a forked child only.

    mint: told the text forms of each draw of at least 4 bytes from the operating system's source.
    """
    draws = itertools.count()  # next() on it is atomic: threads never share a number

    def stream(purpose: bytes, size: int) -> bytes:
        return hashlib.shake_256(purpose + next(draws).to_bytes(8, "big") + seed).digest(size)

    def urandom(size: int, /) -> bytes:
        if size < 0:
            raise ValueError("negative argument not allowed")
        drawn = stream(b"urandom", size)
        if size >= _SHORTEST_MINTED:
            mint(inherited.text_forms(drawn))
        return drawn

    for original in originals():
        rebind(early, original, urandom)
    os.urandom = urandom
    if hasattr(os, "getrandom"):
        os.getrandom = lambda size, flags=0: urandom(size)
    own_random: Any = random
    own_random._urandom = urandom

    seed_with = random.Random.seed

    def seeded(self: random.Random, a: Any = None, version: int = 2) -> None:
        # Unseeded generators ask the operating system below Python's os.urandom.
        seed_with(self, stream(b"seed", 32) if a is None else a, version)

    random_class: Any = random.Random
    random_class.seed = seeded
    random.seed(stream(b"global", 32))

    # Names of temporary files become recognisable: "_" keeps them apart from what they are glued to.
    own_tempfile: Any = tempfile
    random_name = own_tempfile._RandomNameSequence.__next__

    def temporary_name(self: Any) -> str:
        name: str = random_name(self)
        mint([name])
        return f"_{name}"

    own_tempfile._RandomNameSequence.__next__ = temporary_name
    own_tempfile._name_sequence = None

    # Without the C library's generator uuid1 takes time.time_ns and random.getrandbits.
    own_uuid: Any = uuid
    own_uuid._generate_time_safe = None
    own_uuid._last_timestamp = None
    if numpy_random := sys.modules.get("numpy.random"):
        numpy_random.seed(int.from_bytes(stream(b"numpy", 4), "big"))
    trio_run: Any = sys.modules.get("trio._core._run")
    if trio_run is not None:
        # trio shuffles the tasks of a batch on purpose.
        trio_run._ALLOW_DETERMINISTIC_SCHEDULING = True
        trio_run._r.seed(stream(b"trio", 32))
