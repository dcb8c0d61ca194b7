"""Control mutants: code that is known to be wrong must be convicted here, on this machine, and its twins acquitted.

A harness that acquits everything looks like a harness that has nothing to find. `pytest --once-selfcheck` explores
each control with the engine as it is installed, and fails if any verdict differs.
"""

from __future__ import annotations

import random
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_once.api import explore
from pytest_once.checks import Verdict

if TYPE_CHECKING:
    from pytest_once.once import Once

KEY = "order_1"
ORDER = {"order": KEY}


class GivenUp(Exception):
    """The control does not know, and says so."""


@dataclass(frozen=True, slots=True)
class Control:
    """One body whose verdict is known. marker: arguments of `explore`."""

    name: str
    body: Callable[[Once], object]
    verdict: Verdict
    marker: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Checked:
    """A control and what the engine said of it. why: the engine's reason, where it has one."""

    control: Control
    verdict: Verdict
    why: str

    @property
    def right(self) -> bool:
        return self.verdict is self.control.verdict


def run(controls: tuple[Control, ...] | None = None) -> Iterator[Checked]:
    """Explore each control in turn (all of them, unless some are given)."""
    for control in CONTROLS if controls is None else controls:
        report = explore(control.body, name=control.name, **{"key": KEY, "profile": "crash", **control.marker})
        why = report.problem or report.bound or "; ".join(violation.detail for violation in report.violations)
        yield Checked(control, report.verdict, why)


@contextmanager
def _table(once: Once) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(once.path / "control.db", isolation_level=None)) as db:
        db.execute("CREATE TABLE IF NOT EXISTS work(id TEXT PRIMARY KEY, state TEXT, key TEXT)")
        yield db


def _row(db: sqlite3.Connection) -> tuple[Any, ...]:
    found: tuple[Any, ...] | None = db.execute("SELECT state, key FROM work").fetchone()
    return found or (None, None)


def _put(db: sqlite3.Connection, state: str, key: str | None = None) -> None:
    db.execute("INSERT OR REPLACE INTO work VALUES (?, ?, ?)", (KEY, state, key))


def _mark_first(once: Once) -> None:
    with _table(once) as db:
        if _row(db)[0] is None:
            _put(db, "done")
            once.provider("pay", contract="client_key").call("refund", ORDER, key=KEY).raise_for_status()


def _act_then_mark(once: Once) -> None:
    with _table(once) as db:
        if _row(db)[0] is None:
            once.provider("pay").call("refund", ORDER).raise_for_status()
            _put(db, "done")


def _refunds_under(once: Once, make_key: Callable[[], str], contract: str = "client_key") -> None:
    with _table(once) as db:
        if _row(db)[0] is None:
            once.provider("pay", contract=contract).call("refund", ORDER, key=make_key()).raise_for_status()
            _put(db, "done")


def _key_per_attempt(once: Once) -> None:
    _refunds_under(once, lambda: f"{random.getrandbits(64):x}")


def _key_from_the_clock(once: Once) -> None:
    _refunds_under(once, lambda: f"{KEY}-{time.time():.0f}")


def _stored_key(once: Once) -> None:
    with _table(once) as db:
        if _row(db)[0] is None:
            _put(db, "pending", f"{random.getrandbits(64):x}")
        state, key = _row(db)
        if state == "pending":
            once.provider("pay", contract="client_key").call("refund", ORDER, key=key).raise_for_status()
            _put(db, "done", key)


def _a_lost_answer_is_a_failure(once: Once) -> None:
    try:
        once.provider("pay", contract="client_key").call("refund", ORDER, key=KEY).raise_for_status()
    except OSError as error:
        raise GivenUp from error


def _a_claim_nobody_releases(once: Once) -> None:
    with _table(once) as db:
        if _row(db)[0] == "claimed":
            raise GivenUp
        if _row(db)[0] is None:
            _put(db, "claimed")
            once.provider("pay", contract="client_key").call("refund", ORDER, key=KEY).raise_for_status()
            _put(db, "done")


def _one_key_for_two_intents(once: Once) -> None:
    from once_fakes import Contract

    provider = once.provider("pay", contract=Contract(name="replays", on_mismatch="replay"))
    wording = once.choose("wording", ["as ordered", "as reworded"])
    try:
        provider.call("refund", {"order": KEY, "note": wording}, key="the key")
    except TimeoutError:
        provider.call("refund", {"order": KEY, "note": "as reworded"}, key="the key")


def _asks_before_it_sends(once: Once) -> None:
    from once_fakes import Contract

    mail = once.provider("mail", contract=Contract(name="look-up", dedup="none", lookup="by_client_ref"))
    if mail.find(KEY).status == 404:
        mail.call("send", {"client_ref": KEY}).raise_for_status()


def _receipts_shorter_than_retries(once: Once) -> None:
    _refunds_under(once, lambda: KEY, "client_key_24h")


def _an_error_at_commit_means_not_recorded(once: Once) -> None:
    with _table(once) as db:
        provider = once.provider("pay", contract="client_key")
        if _row(db)[0] is None:
            try:
                _put(db, "pending", "first")
            except sqlite3.OperationalError:
                provider.call("refund", ORDER, key="second").raise_for_status()
        if _row(db)[0] == "pending":
            provider.call("refund", ORDER, key=_row(db)[1]).raise_for_status()
            _put(db, "done")


def _call_id_as_key(once: Once) -> None:
    def refund(call_id: str) -> None:
        once.provider("pay", contract="client_key").call("refund", ORDER, key=call_id).raise_for_status()

    once.agent(refund, call_id="call_id")()


def _a_file_past_every_boundary(once: Once) -> None:
    once.provider("pay", contract="client_key").call("refund", ORDER, key=KEY).raise_for_status()
    (Path(tempfile.gettempdir()) / "pytest-once-selfcheck.txt").write_text("stopped before it is written")


def _decides_by_chance(once: Once) -> None:
    for _ in range(random.randrange(1, 100)):
        once.boundary("again")
    once.provider("pay", contract="client_key").call("refund", ORDER, key=KEY).raise_for_status()


def _insists(once: Once) -> None:
    provider = once.provider("pay", contract="client_key")
    try:
        provider.call("refund", ORDER, key=KEY).raise_for_status()
    except TimeoutError:
        provider.call("refund", ORDER, key=KEY).raise_for_status()


def _counts_its_attempts(once: Once) -> None:
    with _table(once) as db:
        attempts = int(_row(db)[1] or 0) + 1
        _put(db, "trying", str(attempts))
        once.provider("pay", contract="client_key").call("refund", ORDER, key=KEY).raise_for_status()


def _gives_up_honestly(once: Once) -> None:
    with _table(once) as db:
        if _row(db)[0] == "begun":
            raise GivenUp
        if _row(db)[0] is None:
            _put(db, "begun")
            once.provider("mail").call("send", ORDER).raise_for_status()
            _put(db, "done")


_LOST = {"profile": "standard", "faults": ("lost-response",)}
_LATE = {"profile": "deep", "soft_faults": 1, "faults": ("late",)}

CONTROLS: tuple[Control, ...] = (
    Control("marked before it is done", _mark_first, Verdict.OMISSION),
    Control("done before it is marked, no key", _act_then_mark, Verdict.DUPLICATE),
    Control("a new key for each attempt", _key_per_attempt, Verdict.DUPLICATE),
    Control("a key from the clock", _key_from_the_clock, Verdict.DUPLICATE),
    Control("a call id as key, and a model that asks again", _call_id_as_key, Verdict.DUPLICATE),
    Control("a lost answer reported as failure", _a_lost_answer_is_a_failure, Verdict.FALSE_FAILURE,
            {**_LOST, "definite_failure": (GivenUp,)}),
    Control("a claim that nobody releases", _a_claim_nobody_releases, Verdict.STUCK),
    Control("one key for two payloads", _one_key_for_two_intents, Verdict.CONFLICT_MISSED, _LOST),
    Control("more attempts than are allowed", _insists, Verdict.TOO_MANY_ATTEMPTS, {**_LOST, "attempts": 1}),
    Control("a look-up while a request is on its way", _asks_before_it_sends, Verdict.DUPLICATE, _LATE),
    Control("receipts that expire before the last retry", _receipts_shorter_than_retries, Verdict.DUPLICATE,
            {"restart_after": ("0s", "25h")}),
    Control("an error at commit taken for no commit", _an_error_at_commit_means_not_recorded, Verdict.DUPLICATE,
            {"profile": "deep", "soft_faults": 1, "faults": ("commit-unknown",)}),
    Control("a file written past every boundary", _a_file_past_every_boundary, Verdict.ESCAPED_EFFECT),
    Control("a decision by chance", _decides_by_chance, Verdict.NONDETERMINISTIC),
    Control("states without end", _counts_its_attempts, Verdict.INCONCLUSIVE, {"max_states": 30}),
    Control("giving up without leave", _gives_up_honestly, Verdict.STUCK),
    Control("giving up, where that is allowed", _gives_up_honestly, Verdict.ESCALATED, {"blocked": (GivenUp,)}),
    Control("a stored key, sent with every attempt", _stored_key, Verdict.EXACTLY_ONCE,
            {"profile": "deep", "soft_faults": 1}),
)  # fmt: skip
"""What is checked: every verdict that can be wrong, and the two that can be right."""
