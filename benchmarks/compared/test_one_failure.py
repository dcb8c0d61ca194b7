"""The test of somebody who thinks of failures: the call raises once, and the worker is called again."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from benchmarks.compared.refunds import WAYS, Way, live
from benchmarks.compared.stand_in import StandIn


@pytest.mark.parametrize("fails", ["before", "after"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_it_is_refunded_once(way: Way, fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = StandIn(fails)
    monkeypatch.setattr(httpx, "post", provider.post)
    with pytest.raises(httpx.ReadTimeout):
        live(way, tmp_path / "refunds.db", "http://payments.test")
    live(way, tmp_path / "refunds.db", "http://payments.test")
    assert provider.effects == 1
