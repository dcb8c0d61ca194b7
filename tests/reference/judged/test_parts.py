"""Each part of the reference on each store, judged as a user's tests are: `pytest --once-chaos tests/reference/judged`.

Without --once-chaos they run once, undisturbed. The faults are those of the profile `deep`, given here so that every
profile but `crash` explores them. Where two soft faults in a life, and two requests on their way, make the search last
about a minute or longer, there is one of each (`SMALLER`).
"""

from __future__ import annotations

import pytest

from pytest_once import Once
from pytest_once.faults import DUPLICATE, KINDS, LATE, LATE_COPY, LATE_TWICE, STALE_READ, STORE_FULL, STORE_READONLY
from tests.reference import workers
from tests.reference.conftest import Store
from tests.reference.workers import DOUBTED, KEYS, LOOK_UP, LOOK_UP_AND_KEYS, NEITHER

DEEP = {"faults": tuple(KINDS), "soft_faults": 2, "in_flight": 2}
SMALLER = {"soft_faults": 1, "in_flight": 1}

NOT_DOUBLED = tuple(kind for kind in KINDS if kind not in (DUPLICATE, LATE_COPY, LATE_TWICE))
"""Without keys, what the network doubles acts twice, whoever has sent it once: docs/what-it-cannot-promise.md."""

PROMPT = tuple(kind for kind in NOT_DOUBLED if kind not in (LATE, STALE_READ))
"""What the promise `ARRIVES_AT_ONCE` excludes as well; the same page shows what becomes of it otherwise."""

NO_STORE_TWICE = tuple(kind for kind in KINDS if kind not in (STORE_FULL, STORE_READONLY))
"""A full and a read-only store leave just what a busy one leaves: nothing."""

ATTEMPTS_OF_A_MESSAGE = ("outbox.attempts", "outbox.reason")
"""With any number of attempts, the number grows for ever and decides nothing; the reason is for people."""

ATTEMPTS_OF_AN_INTENT = ("gate_intents.attempts", "*.attempt", "*.reason", "gate_*.*_at")
"""The fencing token grows for ever, and any number will do; reasons and instants are for people, leases apart."""

GATED = {"key": "order_1", "ignore": ATTEMPTS_OF_AN_INTENT, "restart_after": ("31s",)}
"""A worker is started again after the lease has ended; before that it is only told to wait."""


@pytest.mark.answer("EXACTLY_ONCE")
@pytest.mark.once_effect(**DEEP)
def test_planning(once: Once, database: Store) -> None:
    """S4.1, S4.10: a random id is made once, stored with the task, and is the provider's key."""
    workers.plan_and_pay(database, once.provider("pay", contract="client_key"), stored=True)


@pytest.mark.answer("EXACTLY_ONCE")
@pytest.mark.once_effect(**DEEP)
def test_outbox(once: Once, database: Store) -> None:
    """S2.1, S2.3: the change and its news commit together; the event id is the provider's key."""
    workers.publish_change(database, once.provider("site", contract="client_key"))


@pytest.mark.answer("EXACTLY_ONCE")
@pytest.mark.once_effect(**DEEP)
def test_inbox(once: Once, database: Store) -> None:
    """S2.4: a delivery that comes again after every restart changes the dashboard once."""
    workers.take_and_publish(database, workers.taken, once.provider("site", contract="client_key"))


# One round in a life, and one soft fault: another round multiplies the states, and the next life makes it anyway.
@pytest.mark.answer("EXACTLY_ONCE")
@pytest.mark.once_effect(**{**DEEP, **SMALLER}, ignore=ATTEMPTS_OF_A_MESSAGE)
def test_relay_with_keys(once: Once, database: Store) -> None:
    """S2.11: lost, late and doubled answers cost a repetition, not an effect."""
    workers.relay_to(database, once, "client_key", rounds=1)


@pytest.mark.answer("ESCALATED")
@pytest.mark.once_effect(**{**DEEP, "faults": NOT_DOUBLED}, blocked=("unknown",))
def test_relay_without(once: Once, database: Store) -> None:
    """S2.7, S4.5: a single attempt is allowed; a dead letter, whether it was done or not, asks for a person."""
    workers.relay_to(database, once, "none", rounds=1, allowed=1)


# One soft fault, one request on its way: a second request alone doubles the time.
@pytest.mark.answer("EXACTLY_ONCE")
@pytest.mark.once_effect(**{**DEEP, **SMALLER}, **GATED)
def test_gate_with_keys(once: Once, database: Store) -> None:
    """S4.2: sent again under the same key until it is known."""
    workers.refund_on(database, once, KEYS, reconciles=False)


@pytest.mark.answer("ESCALATED")
@pytest.mark.once_effect(**{**DEEP, "faults": NOT_DOUBLED}, **GATED, blocked=("unknown",))
def test_gate_without(once: Once, database: Store) -> None:
    """S4.5, S3.9: neither key nor look-up: never a second effect, and a person decides."""
    workers.refund_on(database, once, NEITHER, reconciles=False)


# As the gate with keys, and a store that commits nothing only says that it is busy.
@pytest.mark.answer("EXACTLY_ONCE")
@pytest.mark.once_effect(**{**DEEP, **SMALLER, "faults": NO_STORE_TWICE}, **GATED)
def test_reconciler_with_keys(once: Once, database: Store) -> None:
    """S4.2, S4.4: whether the look-up finds it in time or not."""
    workers.refund_on(database, once, LOOK_UP_AND_KEYS)


@pytest.mark.answer("EXACTLY_ONCE")
@pytest.mark.once_effect(**{**DEEP, **SMALLER, "faults": PROMPT}, **GATED)
def test_reconciler_with_a_lookup(once: Once, database: Store) -> None:
    """S4.4: what a prompt look-up finds is done, and what it does not find is not."""
    workers.refund_on(database, once, LOOK_UP)


@pytest.mark.answer("ESCALATED")
@pytest.mark.once_effect(**{**DEEP, **SMALLER, "faults": NOT_DOUBLED}, **GATED, blocked=("unknown",))
def test_reconciler_with_a_doubted_lookup(once: Once, database: Store) -> None:
    """S3.5, S4.8: nothing is promised of the look-up, so its "not found" proves nothing; what it finds is done."""
    workers.refund_on(database, once, DOUBTED)
