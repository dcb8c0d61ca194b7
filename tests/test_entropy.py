from __future__ import annotations

import os
import random
import secrets
import subprocess
import sys
import tempfile
import uuid
from os import urandom as early_urandom
from typing import Any

from pytest_once import entropy
from pytest_once.boundaries import rebinding
from tests.boundaries.recording import recorded


def drawn(seed: bytes) -> Any:
    minted: list[list[str]] = []
    early = rebinding.references(*entropy.originals())

    def body() -> dict[str, Any]:
        values = {
            "uuid4": str(uuid.uuid4()),
            "uuid1": [str(uuid.uuid1()), str(uuid.uuid1())],
            "token_hex": secrets.token_hex(8),
            "token_urlsafe": secrets.token_urlsafe(24),
            "random": random.random(),
            "own": random.Random().random(),
            "system": random.SystemRandom().random(),
            "urandom": os.urandom(16).hex(),
            "early": early_urandom(8).hex(),
            "temporary": os.path.basename(tempfile.mktemp()),
        }
        return {"values": values, "minted": [form for forms in minted for form in forms]}

    return recorded(body, install=lambda: entropy.install(seed, minted.append, early)).result


def test_the_same_seed_draws_the_same_everywhere() -> None:
    """A schedule must replay, whatever its code draws."""
    first, second = drawn(b"a"), drawn(b"a")
    # uuid1 also contains the time, which stands still only under the virtual clock.
    del first["values"]["uuid1"], second["values"]["uuid1"]

    assert first == second


def test_another_seed_draws_other_values_everywhere() -> None:
    """Comparing two runs is how random values are found in what was stored."""
    first, second = drawn(b"a")["values"], drawn(b"b")["values"]

    assert [name for name in first if first[name] == second[name]] == []


def test_draws_are_reported_in_the_forms_code_stores_them_in() -> None:
    """The canonical form of a state renames them."""
    result = drawn(b"a")
    values, minted = result["values"], result["minted"]

    assert values["uuid4"] in minted
    assert values["uuid4"].replace("-", "") in minted
    for name in ("token_hex", "token_urlsafe", "urandom", "early"):
        assert values[name] in minted


def test_seeding_by_hand_still_works() -> None:
    """A test's own seed is the user's choice."""

    def body() -> list[float]:
        return [random.Random(7).random(), random.SystemRandom(3).random()]

    result = recorded(body, install=lambda: entropy.install(b"a", lambda forms: None)).result

    assert result[0] == random.Random(7).random()


def test_a_negative_size_is_refused_as_always() -> None:
    """The replacement keeps the original's errors."""
    recording = recorded(lambda: os.urandom(-1), install=lambda: entropy.install(b"a", lambda forms: None))

    assert recording.error == "ValueError: negative argument not allowed"


NUMPY_DRAWS = """
import sys
import numpy
from pytest_once import entropy
entropy.install(sys.argv[1].encode(), lambda forms: None)
print(numpy.random.random(), numpy.random.default_rng().random())
"""


def drawn_by_numpy(seed: str) -> str:
    """In a fresh interpreter: NumPy refuses to be loaded twice, and pytester forgets what its runs have loaded."""
    return subprocess.run([sys.executable, "-c", NUMPY_DRAWS, seed], capture_output=True, text=True, check=True).stdout


def test_numpy_follows_the_seed_if_it_is_loaded() -> None:
    """Only then: importing it would take longer than the incarnation."""
    first = drawn_by_numpy("a")

    assert drawn_by_numpy("a") == first
    assert drawn_by_numpy("b") != first
