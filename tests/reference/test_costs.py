"""The cost calculator, and the failure-mode matrix."""

from __future__ import annotations

import pytest

from pytest_once.reference import failure_modes
from pytest_once.reference.costs import Rates, costs, told
from pytest_once.reference.failure_modes import Mode


def test_the_worked_figures_are_reproduced() -> None:
    """S4.12: 90 duplicates, 7,200, 300 UNKNOWN, 270, about 6,900."""
    figures = costs(Rates())
    assert figures.duplicates == pytest.approx(90)
    assert figures.without_gate == pytest.approx(7200)
    assert figures.unknown == pytest.approx(300)
    assert figures.with_gate == pytest.approx(270)
    assert round(figures.saved, -2) == 6900


def test_ones_own_rates_are_taken() -> None:
    """S4.12: a gate may also cost more than it saves, and says so."""
    rates = Rates(calls=1000, ambiguous=0.1, acted=0.5, duplicate_cost=1, resolved=0, person_cost=2)
    figures = costs(rates)
    assert (figures.unknown, figures.duplicates, figures.without_gate) == (100, 50, 50)
    assert (figures.for_people, figures.with_gate, figures.saved) == (100, 200, -150)
    assert "7,200" in "\n".join(told(Rates()))
    assert "-150" in "\n".join(told(rates))


@pytest.mark.parametrize("wrong", [{"ambiguous": 1.5}, {"acted": -0.1}, {"calls": -1}, {"resolved": float("nan")}])
def test_rates_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    """A percentage typed as a number would multiply the figures by a hundred."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Rates(**wrong)


@pytest.fixture(scope="module")
def matrix() -> dict[str, Mode]:
    return {mode.name: mode for mode in failure_modes.run()}


def test_no_mode_acts_twice(matrix: dict[str, Mode]) -> None:
    """S4.13: whatever went wrong, and one more request after it."""
    assert len(matrix) == len(failure_modes.MODES) >= 20
    assert {mode.effects for mode in matrix.values()} == {0, 1}


@pytest.mark.parametrize(
    ("name", "known", "disposition"),
    [
        ("answered", "SUCCEEDED", "receipt replayed"),
        ("connection refused", "FAILED: ConnectionRefusedError", "executed now"),
        ("answer lost (time-out)", "UNKNOWN: TimeoutError", "blocked; to be looked up"),
        ("500 after acting", "UNKNOWN: status 500", "blocked; to be looked up"),
        ("killed before sending", "IN_FLIGHT", "refused until the lease ends"),
        ("the same, provider knows keys", "IN_FLIGHT", "executed now"),
        ("the same, look-up finds it", "SUCCEEDED: the look-up found it", "receipt replayed"),
        ("killed before sending, looked up early", "UNKNOWN", "blocked; to be looked up"),
        ("killed before sending, looked up in time", "FAILED: not found", "executed now"),
        ("answer lost, provider has no look-up", "UNKNOWN", "blocked; a person is asked"),
        ("the same, after a person denied it", "FAILED: ada decided", "blocked; a person is asked"),
        ("gate's database unreachable", "nothing", "refused, not bypassed"),
    ],
)
def test_what_is_known_and_what_is_done(matrix: dict[str, Mode], name: str, known: str, disposition: str) -> None:
    """S4.13: mode, what is known, disposition, as real runs ended."""
    assert matrix[name].known.startswith(known)
    assert matrix[name].disposition == disposition


def test_the_matrix_is_printed_in_columns(matrix: dict[str, Mode]) -> None:
    """S4.13: for people."""
    lines = failure_modes.told(list(matrix.values()))
    at = lines[0].index("the next request")
    assert lines[2][at:].startswith("receipt replayed") and len(lines) == len(matrix) + 2
