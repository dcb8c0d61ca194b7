"""Exceptions at random places, drawn by Hypothesis: up to three lives end at a place before or after a call or commit.

All places are wrapped by hand, which is more than most tests do.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st

from benchmarks.compared.refunds import WAYS, Way, live
from benchmarks.compared.stand_in import StandIn


class Died(BaseException):
    """Stands for the end of the process."""


class Places:
    """Counts the places that a life passes, and raises at the one that is named."""

    def __init__(self) -> None:
        self.dies_at: int | None = None
        self.passed = 0

    def __call__(self) -> None:
        self.passed += 1
        if self.dies_at == self.passed:
            self.dies_at = None
            raise Died


def survives(one_life: Callable[[], None]) -> bool:
    try:
        one_life()
    except (Died, sqlite3.Error, httpx.HTTPError):
        return False
    return True


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_it_is_refunded_once(way: Way, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    places = Places()

    class Connection(sqlite3.Connection):
        def commit(self) -> None:
            places()
            super().commit()
            places()

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path: connect(path, factory=Connection))

    @seed(number)
    @settings(max_examples=100, deadline=None, database=None, phases=(Phase.generate,))
    @given(st.lists(st.integers(1, 10), max_size=3))
    def attempt(dies_at: list[int]) -> None:
        provider = StandIn()

        def post(url: str, **arguments: Any) -> httpx.Response:
            places()
            answer = provider.post(url, **arguments)
            places()
            return answer

        monkeypatch.setattr(httpx, "post", post)
        with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory:

            def one_life() -> None:
                live(way, Path(directory) / "refunds.db", "http://payments.test")

            for place in dies_at:
                places.passed, places.dies_at = 0, place
                survives(one_life)
            places.dies_at = None
            assert any(survives(one_life) for _ in range(3)), "it never completes"
            assert provider.effects == 1

    attempt()
