"""The protocols of the five-cut experiment, cut everywhere, in every life, any number of times.

Run with `pytest --once-chaos examples/five_cuts`. A test marked `convicted` holds code that is broken on purpose.
"""

from __future__ import annotations

import pytest

from examples.five_cuts.intent import ConflictingArguments, Intent
from examples.five_cuts.protocols import ProtocolName, Reserve, run
from examples.five_cuts.warehouse import WarehouseWithReceipts
from pytest_once import Once

RESERVE = Intent("tenantA", "reserve42", "bearing", 2)

# Lost on the way there, or on the way back. A message delivered twice is another experiment, which mark-first
# fails as well.
CUTS = ("lost-request", "lost-response")


def count_reservations(once: Once) -> None:
    """The effects are rows in the warehouse, whatever the orchestrator believes."""
    once.count(once.path / "warehouse.db", "SELECT key, COUNT(*) FROM reservations GROUP BY key")


def reserve_by(protocol: ProtocolName, once: Once, intent: Intent = RESERVE) -> None:
    def through(reserve: Reserve) -> Reserve:
        return once.tool(reserve, name="warehouse", counted=False)

    run(protocol, once.path, intent, through=through)


@pytest.mark.once_effect(faults=CUTS)
@pytest.mark.convicted("OMISSION", because="'done' was committed before the call, so nobody calls after a crash")
def test_mark_first_loses_the_reservation(once: Once) -> None:
    """S1.1, S1.3: zero effects at cut 1, between the mark and the call."""
    count_reservations(once)
    reserve_by("mark-first", once)


@pytest.mark.once_effect(faults=CUTS)
@pytest.mark.convicted("DUPLICATE", because="a resent intent looks new to a warehouse that remembers no key")
def test_an_outbox_alone_reserves_twice(once: Once) -> None:
    """S1.1, S1.3: two effects at cuts 2 and 3, between the effect and the done mark."""
    count_reservations(once)
    reserve_by("outbox-no-dedup", once)


@pytest.mark.once_effect
def test_an_outbox_with_receipts_reserves_once(once: Once) -> None:
    """S1.1, S1.3, S1.7: one effect at every cut, and at any number of them; also when messages arrive twice."""
    count_reservations(once)
    reserve_by("outbox-dedup", once)


@pytest.mark.once_effect
@pytest.mark.convicted("DUPLICATE", because="a crash between the two transactions leaves an effect without receipt")
def test_a_receipt_committed_after_the_effect_comes_too_late(once: Once) -> None:
    """S1.5: the hole has moved to the receiver."""
    count_reservations(once)
    reserve_by("receipt-after-effect", once)


@pytest.mark.once_effect
@pytest.mark.convicted("OMISSION", because="a crash between the two transactions leaves a receipt for nothing")
def test_a_receipt_committed_before_the_effect_promises_too_much(once: Once) -> None:
    """S1.5: the other order, the other hole."""
    count_reservations(once)
    reserve_by("receipt-before-effect", once)


@pytest.mark.once_effect
@pytest.mark.convicted("DUPLICATE", because="the receipt is deleted while the message can still be delivered again")
def test_a_receipt_forgotten_too_soon_lets_an_old_attempt_act_again(once: Once) -> None:
    """S1.8: here the process is the warehouse, and its clean-up job does not wait for the queue."""
    count_reservations(once)
    with WarehouseWithReceipts(once.path) as warehouse:
        warehouse.reserve(RESERVE)
        warehouse.forget_receipt(RESERVE.key)


@pytest.mark.once_effect
def test_a_receipt_that_is_kept_answers_an_old_attempt(once: Once) -> None:
    """S1.8: the same warehouse without the clean-up job."""
    count_reservations(once)
    with WarehouseWithReceipts(once.path) as warehouse:
        warehouse.reserve(RESERVE)


@pytest.mark.once_effect(keys=("tenantA:reserve42", "tenantB:reserve42"), faults=CUTS)
def test_tenants_are_apart_and_a_key_cannot_change_its_arguments(once: Once) -> None:
    """S1.4: the tenant is part of the identity, and another quantity under a known key is refused by either side."""
    count_reservations(once)
    changed = Intent(RESERVE.tenant, RESERVE.action, RESERVE.part, RESERVE.quantity + 1)
    for tenant in ("tenantA", "tenantB"):
        reserve_by("outbox-dedup", once, Intent(tenant, RESERVE.action, RESERVE.part, RESERVE.quantity))
    with pytest.raises(ConflictingArguments):
        reserve_by("outbox-dedup", once, changed)
    with WarehouseWithReceipts(once.path) as warehouse, pytest.raises(ConflictingArguments):
        warehouse.reserve(changed)
