"""An SDK that sends again by itself: below the user's code, and without a key unless it is told one."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from pytest_once import Once, Verdict, explore, replay
from pytest_once.ledger import Ledger


def ask(once: Once) -> None:
    """One call of the user's. Imported late: the five hundred modules would be in every fork of the session."""
    import openai

    models = once.provider("models", contract="client_key")
    with openai.OpenAI(base_url=models.url, api_key="none") as client:
        client.post("/responses", body={"input": "pay order_1"}, cast_to=object)


@pytest.mark.slow
def test_what_the_sdk_sends_again_is_an_attempt_of_its_own(tmp_path: Path) -> None:
    """Three arrivals for one call whose answers are lost, each of them an effect."""
    importlib.import_module("openai")  # here, once, and not in every life
    report = explore(ask, faults=("lost-response",), key="order_1", redeliver=0)
    assert report.verdict is Verdict.DUPLICATE
    schedules = [str(schedule) for schedule in (report.violations[0].schedule, *report.violations[0].variants)]
    lasting = next(schedule for schedule in schedules if schedule.startswith("LR@"))
    replayed = replay(ask, lasting, keep=tmp_path, key="order_1", redeliver=0)
    assert [boundary.target for boundary in replayed.boundaries] == ["models POST /responses"]
    arrivals = [one for one in Ledger(tmp_path / "ledger.db").arrivals() if one.incarnation == 1]
    assert [one.outcome for one in arrivals] == ["executed"] * 3
    assert {one.key for one in arrivals} == {None}
