"""The five-cut protocols under the explorer: the published table is what it finds by itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from examples.five_cuts.protocols import ProtocolName
from examples.five_cuts.table import ACTED, PROTOCOLS, RESERVE, crash_points, process
from examples.five_cuts.warehouse import WarehouseWithReceipts
from pytest_once import Once, Report, Verdict, explore
from pytest_once.faults import END, mark_of


def crashed(report: Report, mark: str) -> str:
    """What becomes of the fault-free run when it is killed at that crash point."""
    for row in report.matrix:
        if (END if row.boundary is None else mark_of(row.boundary)) == mark:
            return row.outcomes["crash"]
    raise AssertionError(f"no crash point {mark}")


@pytest.mark.parametrize(
    ("protocol", "at_cuts", "verdict"),
    [
        ("mark-first", ["once", "0x", "once", "once", "once"], Verdict.OMISSION),
        ("outbox-no-dedup", ["once", "once", "2x", "2x", "once"], Verdict.DUPLICATE),
        ("outbox-dedup", ["once", "once", "once", "once", "once"], Verdict.EXACTLY_ONCE),
    ],
)
def test_the_matrix_of_a_protocol_contains_its_row_of_the_published_table(
    protocol: ProtocolName, at_cuts: list[str], verdict: Verdict
) -> None:
    """S1.2, S1.3: the five cuts are five of the crash points, found without being listed."""
    report = explore(process(protocol), profile="crash")
    assert [crashed(report, mark) for mark in crash_points(report.boundaries)] == at_cuts
    assert (report.verdict, report.coverage) == (verdict, "exhausted")
    assert report.passed is (verdict is Verdict.EXACTLY_ONCE)
    assert all(violation.confirmed for violation in report.violations)


@pytest.mark.parametrize(
    ("protocol", "outcome"), [("mark-first", "once"), ("outbox-no-dedup", "2x"), ("outbox-dedup", "once")]
)
def test_a_lost_response_is_cut_two_without_a_crash(protocol: ProtocolName, outcome: str) -> None:
    """S1.2: the process that sees a time-out knows as little as the one that died."""
    report = explore(process(protocol), faults=("lost-response",))
    [call] = [row for row in report.matrix if row.boundary is not None and row.boundary.kind == "tool"]
    assert call.outcomes["lost-response"] == outcome


@pytest.mark.parametrize(
    ("protocol", "verdict", "between"),
    [
        ("receipt-after-effect", Verdict.DUPLICATE, ("(reservations)", "(receipts)")),
        ("receipt-before-effect", Verdict.OMISSION, ("(receipts)", "(reservations)")),
    ],
)
def test_a_receipt_in_another_transaction_is_convicted_for_the_crash_in_between(
    protocol: ProtocolName, verdict: Verdict, between: tuple[str, str]
) -> None:
    """S1.5: in either order, and for no other reason."""
    report = explore(process(protocol), profile="crash")
    assert report.verdict is verdict
    [violation] = report.violations
    first, second = violation.story[0].steps[-2:]
    assert violation.story[0].killed
    assert (first.boundary.target, second.boundary.target) == tuple(f"warehouse.db COMMIT {table}" for table in between)
    wrong = [row.boundary for row in report.matrix if row.outcomes["crash"] != "once"]
    assert wrong == [second.boundary]


def warehouse_that(forgets: bool) -> Callable[[Once], None]:
    def body(once: Once) -> None:
        once.count(once.path / "warehouse.db", "SELECT key, COUNT(*) FROM reservations GROUP BY key")
        with WarehouseWithReceipts(once.path) as warehouse:
            warehouse.reserve(RESERVE)
            if forgets:
                warehouse.forget_receipt(RESERVE.key)

    return body


def test_a_forgotten_receipt_is_convicted_by_redelivery_alone() -> None:
    """S1.8: no crash is needed, only a message that comes again after the receipt has gone."""
    forgetful = explore(warehouse_that(forgets=True))
    assert forgetful.verdict is Verdict.DUPLICATE
    assert forgetful.violations[0].schedule.lives[0].crash in (None, END)
    assert forgetful.violations[0].story[0].ending == "returned: done"
    assert explore(warehouse_that(forgets=False)).passed


@pytest.mark.slow
def test_every_protocol_passes_the_points_that_name_the_cuts() -> None:
    """S1.2: cuts 2 and 3 lie on either side of the response, so they must be two crash points."""
    for protocol in PROTOCOLS:
        boundaries = explore(process(protocol), profile="crash").boundaries
        assert ACTED in [boundary.target for boundary in boundaries]
        assert len(set(crash_points(boundaries))) == 5
