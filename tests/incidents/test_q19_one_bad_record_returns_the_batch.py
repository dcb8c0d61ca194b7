"""Q19: two records of a batch are done, the third fails, and the platform delivers all three again.

No crash: a handled error on a sibling. Report: LeanerCloud/CUDly#1574.
"""

from __future__ import annotations

from pytest_once import Once, Verdict, explore
from tests.incidents.models import cell, convicted, exactly_once

BATCH = ("record_a", "record_b", "record_c")
FEW = {"max_boundaries": 12}


def platform(once: Once, *, keyed: bool) -> None:
    """Delivers the batch until the handler returns without an error."""
    shop = once.provider("shop", contract="client_key")

    def handler() -> None:
        for record in BATCH:
            shop.call(f"buy {record}", {"record": record}, key=record if keyed else None).raise_for_status()

    while True:
        try:
            handler()
            return
        except Exception as error:
            if "503" not in str(error):
                raise


def test_a_failing_sibling_repeats_the_records_that_were_done() -> None:
    report = explore(lambda once: platform(once, keyed=False), faults=("error-before",), keys=BATCH, limits=FEW)
    convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="record_a")
    assert cell(report, "error-before", "buy record_c") == "2x"
    assert cell(report, "error-before", "buy record_a") == "once"


def test_one_key_a_record_lets_the_batch_come_again() -> None:
    exactly_once(
        explore(
            lambda once: platform(once, keyed=True),
            faults=("error-before",),
            keys=BATCH,
            limits=FEW,
        )
    )
