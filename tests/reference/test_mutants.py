"""Every mistake is convicted with its verdict, and the same code without it is acquitted, to the end."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from pytest_once import Report, Verdict
from pytest_once.reporting import terminal
from tests.reference.mutants import MUTANTS
from tests.reference.mutants.scenes import Mutant
from tests.reference.mutants.telling import HEAD, acquitted, convicted, row

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "mutants.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.slow

TWINS = {(mutant.right, repr(sorted(mutant.how.items(), key=str))): mutant for mutant in reversed(MUTANTS)}
"""Several mutants share the code without the mistake, and how it is explored."""


def told(report: Report) -> str:
    return terminal.render(report)


@functools.cache
def conviction(mutant_name: str) -> Report:
    (mutant,) = (one for one in MUTANTS if one.name == mutant_name)
    return convicted(mutant)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_mistake_is_convicted(mutant: Mutant) -> None:
    """S1.5, S2.4, S3, S4: a harness that acquits a known mistake would acquit the reader's as well; the page tells it
    as it really went (python -m tests.reference.mutants prints the table)."""
    report = conviction(mutant.name)
    assert report.verdict is mutant.verdict, told(report)
    assert all(violation.confirmed for violation in report.violations), told(report)
    assert row(mutant, report) in PAGE, f"docs/mutants.md tells another story than:\n{row(mutant, report)}"


@pytest.mark.parametrize("mutant", TWINS.values(), ids=lambda mutant: mutant.name)
def test_the_twin_without_the_mistake_is_acquitted(mutant: Mutant) -> None:
    """A harness that convicts everything has found nothing. Escalated is right where no code could do better."""
    report = acquitted(mutant)
    assert report.verdict is mutant.right_verdict, told(report)
    assert report.coverage == "exhausted", told(report)
    assert report.passed, told(report)


def test_the_page_lists_these_mutants_and_no_others() -> None:
    """A row of a mutant that is gone would be believed."""
    names = [line.split("`")[1] for line in PAGE.splitlines() if line.startswith("| `")]
    assert names == [mutant.name for mutant in MUTANTS]
    assert HEAD in PAGE
    assert len(names) >= 25
    assert {mutant.verdict for mutant in MUTANTS} >= {
        Verdict.DUPLICATE, Verdict.OMISSION, Verdict.FALSE_FAILURE, Verdict.STUCK, Verdict.CONFLICT_MISSED,
        Verdict.TOO_MANY_ATTEMPTS,
    }  # fmt: skip
