"""The plain test with a marker, and a fake provider's address."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.compared.refunds import WAYS, Way, live
from pytest_once import Once


@pytest.mark.once_effect
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_it_is_refunded_once(way: Way, once: Once, tmp_path: Path) -> None:
    live(way, tmp_path / "refunds.db", once.provider("payments", contract="client_key").url)
