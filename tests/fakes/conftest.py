"""What the tests of the fakes have in common: a ledger whose clock stands, and no traces of other tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_once.boundaries import connect, forget_endpoints
from pytest_once.clock import EPOCH_S
from pytest_once.ledger import Ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger.create(tmp_path / "ledger.db")
    made.set_now(EPOCH_S)
    return made


@pytest.fixture(autouse=True)
def _no_traces() -> Iterator[None]:
    yield
    connect(None)
    forget_endpoints()
