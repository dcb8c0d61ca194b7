"""The failure-mode matrix: each mode is carried out for real on a gate and a small provider, and told as it ended.

Processes are forked and killed, a connection is refused by the kernel, files hold what happened. Only time is set.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pytest_once.reference import people, transitions
from pytest_once.reference.databases import SQLite
from pytest_once.reference.gate import (
    Conflict,
    Failed,
    Gate,
    GateUnreachable,
    InProgress,
    NotExecuted,
    Receipt,
    Unknown,
)
from pytest_once.reference.outcomes import check
from pytest_once.reference.people import EXECUTED, NOT_EXECUTED
from pytest_once.reference.promise import NOTHING, Promise
from pytest_once.reference.reconciler import Found, Lookup, Reconciler, Sought
from pytest_once.reference.steps import Steps
from pytest_once.reference.transitions import Attempt, Request, State, Stored

T = TypeVar("T")

LEASE_S = 60.0
LIFETIME_S = 120.0
LAG_S = 60.0
PAY = Request("shop:order_1:refund:pay", "refund", {"order": "order_1", "amount": 500})

Act = Callable[[Attempt], Any]


@dataclass(frozen=True, slots=True)
class Mode:
    """One way to fail. known: the state and its reason; disposition: what the next request gets; effects: in all."""

    name: str
    known: str
    disposition: str
    effects: int


@dataclass(frozen=True, slots=True)
class _Response:
    status: int
    body: dict[str, Any]


class _Flaky(SQLite):
    """A database that can be made to fail."""

    broken = False

    def transact(self, steps: Steps[T]) -> T:
        if self.broken:
            steps.close()
            raise OSError("disk I/O error")
        return super().transact(steps)


class _Scene:
    """A gate, a provider and a clock for one mode."""

    def __init__(self, directory: Path, promise: Promise = NOTHING) -> None:
        self.now = 1_000_000.0
        self.database = _Flaky(directory / "gate.db")
        self.database.migrate()
        self.promise = promise
        self.gate = Gate(self.database, promises={"refund": promise}, lease_s=LEASE_S, clock=lambda: self.now)
        self._ledger = directory / "effects"
        self._keyed = promise.key_retention_s > 0

    # -- the provider

    def acts(self, attempt: Attempt) -> Any:
        """The provider acts; one that remembers keys does so once for each."""
        if not (self._keyed and attempt.key in self._keys()):
            with self._ledger.open("a") as ledger:
                print(attempt.key, file=ledger)
        return {"paid": PAY.id}

    def effects(self) -> int:
        return len(self._keys())

    def _keys(self) -> list[str]:
        return self._ledger.read_text().split() if self._ledger.exists() else []

    # -- what happens

    def request(self, act: Act, intent: Request = PAY) -> Receipt | NotExecuted:
        try:
            return self.gate.call(intent, act)
        except NotExecuted as refused:
            return refused

    def request_and_die(self, act: Act) -> None:
        """A process that is killed inside the tool."""
        child = os.fork()
        if child == 0:

            def killed(attempt: Attempt) -> None:
                act(attempt)
                os.kill(os.getpid(), signal.SIGKILL)

            try:
                self.gate.call(PAY, killed)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            raise RuntimeError("the process was to be killed inside the tool, and ended otherwise")

    def reconcile(self, *, looks: bool = True) -> None:
        def exact(sought: Sought) -> list[Found]:
            return [Found({"paid": key}) for key in self._keys() if key == sought.intent_id]

        lookup = Lookup(exact=exact) if looks else Lookup()
        promises = {"refund": self.promise}
        Reconciler(self.database, {"refund": lookup}, promises=promises, clock=lambda: self.now).run()

    def stored(self) -> Stored | None:
        return self.database.transact(transitions.read(PAY.id))

    def asked(self) -> int:
        return len(self.database.transact(people.queue()))


def _nothing(_: Attempt) -> None:
    """The request gets lost."""


def _then(act: Act, error: Exception) -> Act:
    def failing(attempt: Attempt) -> Any:
        act(attempt)
        raise error

    return failing


def _answers(act: Act, status: int, body: dict[str, Any]) -> Act:
    def answering(attempt: Attempt) -> Any:
        act(attempt)
        return check(_Response(status, body)).body

    return answering


def _refused_by_the_kernel(_: Attempt) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = unused.getsockname()
    socket.create_connection(address, timeout=5).close()


def _lost_answer(scene: _Scene) -> None:
    scene.request(_then(scene.acts, TimeoutError("no answer")))


def _lost_request(scene: _Scene) -> None:
    scene.request(_then(_nothing, TimeoutError("no answer")))


def _reset(scene: _Scene) -> None:
    scene.request(_then(scene.acts, ConnectionResetError("reset by peer")))


def _connection_refused(scene: _Scene) -> None:
    scene.request(_refused_by_the_kernel)


def _error_500(scene: _Scene) -> None:
    scene.request(_answers(scene.acts, 500, {}))


def _declined(scene: _Scene) -> None:
    scene.request(_answers(_nothing, 402, {"error": {"code": "card_declined"}}))


def _in_progress(scene: _Scene) -> None:
    scene.request(_answers(_nothing, 409, {"error": {"code": "key_in_use"}}))


def _accepted(scene: _Scene) -> None:
    scene.request(_answers(scene.acts, 202, {"job": 7}))


def _answered(scene: _Scene) -> None:
    scene.request(scene.acts)


def _killed_before(scene: _Scene) -> None:
    scene.request_and_die(_nothing)


def _killed_after(scene: _Scene) -> None:
    scene.request_and_die(scene.acts)


def _killed_after_and_lease_ended(scene: _Scene) -> None:
    scene.request_and_die(scene.acts)
    scene.now += LEASE_S


def _killed_after_and_found(scene: _Scene) -> None:
    _killed_after_and_lease_ended(scene)
    scene.reconcile()


def _killed_before_and_looked_up_early(scene: _Scene) -> None:
    scene.request_and_die(_nothing)
    scene.now += LEASE_S
    scene.reconcile()


def _killed_before_and_looked_up_late(scene: _Scene) -> None:
    scene.request_and_die(_nothing)
    scene.now += LEASE_S + LIFETIME_S + LAG_S
    scene.reconcile()


def _no_lookup(scene: _Scene) -> None:
    _lost_answer(scene)
    scene.reconcile(looks=False)


def _person_says_executed(scene: _Scene) -> None:
    _no_lookup(scene)
    decision = people.resolve(PAY.id, EXECUTED, "ada", "seen in the bank's list", scene.now, json.dumps({"paid": 1}))
    scene.database.transact(decision)


def _receipt_not_stored(scene: _Scene) -> None:
    def act(attempt: Attempt) -> Any:
        scene.acts(attempt)
        scene.database.broken = True
        return {}

    scene.request(act)
    scene.database.broken = False
    scene.now += LEASE_S


def _gate_unreachable(scene: _Scene) -> None:
    scene.database.broken = True


def _late_answer(scene: _Scene) -> None:
    def slow(attempt: Attempt) -> Any:
        scene.now += LEASE_S
        scene.request(scene.acts)  # somebody asks meanwhile, and makes it UNKNOWN
        return scene.acts(attempt)

    scene.request(slow)


def _late_answer_denies(scene: _Scene) -> None:
    def slow(attempt: Attempt) -> Any:
        scene.now += LEASE_S
        scene.reconcile(looks=False)
        denied = people.resolve(PAY.id, NOT_EXECUTED, "ada", "not in the list", scene.now)
        scene.database.transact(denied)
        return scene.acts(attempt)

    scene.request(slow)


KEYS = Promise(key_retention_s=86400.0, request_lifetime_s=LIFETIME_S)
LOOKS = Promise(request_lifetime_s=LIFETIME_S, visibility_lag_s=LAG_S)
OTHER = Request(PAY.id, PAY.tool, {"order": "order_1", "amount": 900})

MODES: tuple[tuple[str, Promise, Callable[[_Scene], None], Request], ...] = (
    ("answered", NOTHING, _answered, PAY),
    ("answered, then asked with another amount", NOTHING, _answered, OTHER),
    ("connection refused", NOTHING, _connection_refused, PAY),
    ("declined with a code (402)", NOTHING, _declined, PAY),
    ("request lost (time-out)", NOTHING, _lost_request, PAY),
    ("answer lost (time-out)", NOTHING, _lost_answer, PAY),
    ("answer lost (reset)", NOTHING, _reset, PAY),
    ("500 after acting", NOTHING, _error_500, PAY),
    ("409, key in use", NOTHING, _in_progress, PAY),
    ("202, accepted only", NOTHING, _accepted, PAY),
    ("killed before sending", NOTHING, _killed_before, PAY),
    ("killed after acting", NOTHING, _killed_after, PAY),
    ("killed after acting, lease ended", NOTHING, _killed_after_and_lease_ended, PAY),
    ("the same, provider knows keys", KEYS, _killed_after_and_lease_ended, PAY),
    ("the same, look-up finds it", LOOKS, _killed_after_and_found, PAY),
    ("killed before sending, looked up early", LOOKS, _killed_before_and_looked_up_early, PAY),
    ("killed before sending, looked up in time", LOOKS, _killed_before_and_looked_up_late, PAY),
    ("answer lost, provider has no look-up", NOTHING, _no_lookup, PAY),
    ("the same, a person has found it", NOTHING, _person_says_executed, PAY),
    ("receipt could not be stored", NOTHING, _receipt_not_stored, PAY),
    ("answer after the lease ended", NOTHING, _late_answer, PAY),
    ("the same, after a person denied it", NOTHING, _late_answer_denies, PAY),
    ("gate's database unreachable", NOTHING, _gate_unreachable, PAY),
)
"""Name, the provider's promise, what happens, and what the next request asks for."""


@contextmanager
def _scene(promise: Promise) -> Iterator[_Scene]:
    with tempfile.TemporaryDirectory() as directory:
        scene = _Scene(Path(directory), promise)
        try:
            yield scene
        finally:
            scene.database.close()


def run() -> list[Mode]:
    """Carry out every mode. Needs fork (POSIX)."""
    return [_run(*mode) for mode in MODES]


def _run(name: str, promise: Promise, happen: Callable[[_Scene], None], then: Request) -> Mode:
    with _scene(promise) as scene:
        happen(scene)
        unreachable = scene.database.broken
        known = "nothing: it cannot be asked" if unreachable else _known(scene.stored())
        asked = 0 if unreachable else scene.asked()
        answer = scene.request(scene.acts, then)
        return Mode(name, known, _disposition(answer, asked), scene.effects())


def _known(found: Stored | None) -> str:
    if found is None:
        return "not registered"
    return found.state if found.state is State.IN_FLIGHT else f"{found.state}: {found.reason}"


_SAID: tuple[tuple[type[NotExecuted], str], ...] = (
    (GateUnreachable, "refused, not bypassed"),
    (Conflict, "refused as a conflict"),
    (InProgress, "refused until the lease ends"),
    (Unknown, "blocked; to be looked up"),
    (Failed, "failed again, without effect"),
)


def _disposition(answer: Receipt | NotExecuted, asked: int) -> str:
    if isinstance(answer, Receipt):
        return "receipt replayed" if answer.replayed else "executed now"
    said = next(text for kind, text in _SAID if isinstance(answer, kind))
    return "blocked; a person is asked" if asked else said


def told(modes: list[Mode]) -> list[str]:
    """The matrix as lines of text."""
    rows = [("failure mode", "what is known", "the next request", "effects")]
    rows += [(mode.name, mode.known, mode.disposition, str(mode.effects)) for mode in modes]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = ["  ".join(map(str.ljust, row, [*widths, 0])) for row in rows]
    return [lines[0], "-" * len(lines[0]), *lines[1:]]
