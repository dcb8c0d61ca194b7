"""report.json: described by a schema, the same wherever the tests ran, and true to what the terminal says."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from pytest_once.faults import Schedule
from pytest_once.reporting import document
from tests.plugin.conftest import ROOT
from tests.reporting.conftest import Run, run_in
from tests.reporting.samples import SUITE, VERDICTS, violated

SCHEMA = json.loads((ROOT / "docs" / "report.schema.json").read_text("utf-8"))


def check(found: dict[str, Any]) -> None:
    jsonschema.validate(found, SCHEMA, jsonschema.Draft202012Validator)


def test_the_schema_is_one_and_describes_the_version_that_is_written() -> None:
    """Issue 6: documented and versioned."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"]["schema"] == {"const": document.VERSION} | {
        "description": SCHEMA["properties"]["schema"]["description"]
    }


def test_a_report_is_as_described(run: Run) -> None:
    """Every kind of result: proven, refuted with and without a crash, bounded, without an answer, never begun."""
    check(run.document)
    assert {test["test"].partition("::")[2]: test["verdict"] for test in run.document["tests"]} == VERDICTS
    assert run.document["totals"] == {"exhausted": 1, "replayed": 0, "violated": 4, "without_answer": 3}
    assert run.document["unmarked"] == ["test_it.py::test_forgotten"]
    assert run.document["ended"] == "finished"


def test_what_is_made_by_hand_in_these_tests_is_as_described_too() -> None:
    """Otherwise the renderers would be tested on documents that nobody writes."""
    check(document.whole([violated("test_it.py::test_one")], ended="interrupted", unfinished=["test_it.py::test_two"]))


def test_a_wrong_report_is_not_as_described(run: Run) -> None:
    """A schema that accepts anything describes nothing."""
    found = run.document
    del found["tests"][0]["verdict"]
    with pytest.raises(jsonschema.ValidationError):
        check(found)
    with pytest.raises(jsonschema.ValidationError):
        check({**run.document, "more": 1})


def test_it_reads_back_as_it_was_written(run: Run) -> None:
    """Other reports may be made from it later."""
    assert document.written(run.document) == run.text("json")
    tests = run.document["tests"]
    again = document.whole(reversed(tests), unmarked=run.document["unmarked"])
    assert document.written(again) == run.text("json")


def test_a_violation_is_told_in_full(run: Run) -> None:
    """Issue 6: story, ledger at its end, replay; the numbers are those of the terminal."""
    test = run.test("test_act_then_mark")
    (violation,) = test["violations"]
    assert violation["confirmed"]
    assert (violation["expected"], violation["actual"]) == (1, 2)
    assert [life["killed"] for life in violation["story"]] == [True, False]
    assert [effect["number"] for effect in violation["ledger"]["effects"]] == [1, 2]
    assert [arrival["incarnation"] for arrival in violation["ledger"]["arrivals"]] == [1, 2]
    assert len(test["recorded"]["effects"]) == 1
    assert Schedule.parse(violation["schedule"]).crashes == violation["crashes"] == 1
    assert violation["replay"].endswith(f"--once-replay={violation['schedule']}")
    assert f"replay: {violation['replay']}" in run.output
    assert test["headline"] == "DUPLICATE pay refund: 2 effects, 1 intended"
    assert test["recorded"]["providers"][0]["contract"]["dedup"] == "none"


def test_the_graph_holds_together(run: Run) -> None:
    """Every state is reached from the beginning, and a violation hangs on the state from which it was found."""
    for test in run.document["tests"]:
        graph = test["graph"]
        numbers = {state["number"] for state in graph["states"]}
        assert len(numbers) == test["states"]
        assert {way["target"] for way in graph["ways"] if way["shortest"]} == numbers - {0}
        assert all(way["source"] in numbers for way in graph["ways"])
        assert {wrong["source"] for wrong in graph["wrong"]} <= numbers
    graph = run.test("test_act_then_mark")["graph"]
    (wrong,) = graph["wrong"]
    source = next(state for state in graph["states"] if state["number"] == wrong["source"])
    assert source["onward"] == "violation"
    (violation,) = run.test("test_act_then_mark")["violations"]
    assert violation["schedule"] == f"{source['schedule']}/{wrong['step']}"


def test_a_large_graph_is_listed_in_part() -> None:
    """Issue 6: bounded, and says so; what leads to a violation is never left out."""
    from pytest_once.checks import Verdict
    from pytest_once.report import Explored, Report, State, Way, Wrong

    count = document.LISTED_STATES + 500
    states = tuple(State(n, n, 0, 0, "", ()) for n in range(count))
    ways = tuple(Way(0 if n < count - 1 else 5, n, ".", "undisturbed", True) for n in range(1, count))
    explored = Explored(states, ways, (Wrong(count - 1, Verdict.DUPLICATE, None, ".", "undisturbed", 1),))
    report = Report(name="test", verdict=Verdict.DUPLICATE, coverage="exhausted", explored=explored)
    graph = document.of_test(report, file="test_it.py", line=1, replay_prefix="", text="")["graph"]
    assert graph["states_unlisted"] == 500
    assert [state["number"] for state in graph["states"]][-1] == count - 1
    assert {way["target"] for way in graph["ways"]} == {state["number"] for state in graph["states"]} - {0}


@pytest.mark.slow
def test_two_workers_write_the_same_report(run: Run) -> None:
    """Only how long it took may differ: it is evidence about the run, not about the code."""
    run_in(run.path, SUITE, "--once-chaos=crash", "-n", "2", "--once-report=shared.json")

    def timeless(found: dict[str, Any]) -> dict[str, Any]:
        return {**found, "tests": [{**test, "seconds": 0} for test in found["tests"]]}

    shared = json.loads((run.path / "shared.json").read_text("utf-8"))
    assert timeless(shared) == timeless(run.document)
