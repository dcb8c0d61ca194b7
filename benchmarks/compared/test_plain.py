"""The test that everybody has: call it, look at what came of it."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from benchmarks.compared.refunds import WAYS, Way, live
from benchmarks.compared.stand_in import StandIn


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_it_is_refunded_once(way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = StandIn()
    monkeypatch.setattr(httpx, "post", provider.post)
    live(way, tmp_path / "refunds.db", "http://payments.test")
    assert provider.effects == 1
