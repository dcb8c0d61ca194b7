"""A gate and its reconciler on whichever store, for tests that are written once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from pytest_once.reference import people, transitions
from pytest_once.reference.gate import AsyncGate, Gate, NotExecuted, Receipt
from pytest_once.reference.people import Question
from pytest_once.reference.promise import Promise
from pytest_once.reference.reconciler import AsyncReconciler, Lookup, Reconciler, Round
from pytest_once.reference.transitions import Attempt, Request, State, Stored
from tests.reference.conftest import Clock, OnALoop, Store

LEASE_S = 60.0
REFUND = Request("shop:order_1:refund:pay", "refund", {"order": "order_1", "amount": 500})

Act = Callable[[Attempt], Any]


class Door:
    """A gate on a store. A tool that is called on a loop runs in a thread, so that it may use another door."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        promise: Promise | None = None,
        *,
        patience_s: float = 3600.0,
        history: int = 20,
    ) -> None:
        self.store = store
        self.clock = clock
        self.promises = {} if promise is None else {"refund": promise}
        self.patience_s = patience_s
        self.history = history

    def call(self, act: Act, request: Request = REFUND, *, free_retries: int = 0) -> Receipt:
        options: Any = {
            "promises": self.promises,
            "lease_s": LEASE_S,
            "clock": self.clock,
            "history": self.history,
        }
        if isinstance(self.store, OnALoop):

            async def on_a_thread(attempt: Attempt) -> Any:
                return await asyncio.to_thread(act, attempt)

            gate = AsyncGate(self.store.database, **options)
            return self.store.run(gate.call(request, on_a_thread, free_retries=free_retries))
        return Gate(self.store, **options).call(request, act, free_retries=free_retries)

    def refused(self, act: Act, request: Request = REFUND, *, free_retries: int = 0) -> NotExecuted:
        """The refusal that the call must end with."""
        try:
            receipt = self.call(act, request, free_retries=free_retries)
        except NotExecuted as refused:
            return refused
        raise AssertionError(f"not refused, but {receipt}")

    def reconcile(self, lookups: Mapping[str, Lookup]) -> Round:
        options: Any = {"promises": self.promises, "patience_s": self.patience_s, "page": 2, "clock": self.clock}
        if isinstance(self.store, OnALoop):
            return self.store.run(AsyncReconciler(self.store.database, lookups, **options).run())
        return Reconciler(self.store, lookups, **options).run()

    def stored(self, request: Request = REFUND) -> Stored:
        found = self.store.transact(transitions.read(request.id))
        assert found is not None
        return found

    def state(self, request: Request = REFUND) -> State:
        return self.stored(request).state

    def questions(self) -> list[Question]:
        return self.store.transact(people.queue())


class Provider:
    """Counts what it has done, and raises what it is told to afterwards."""

    def __init__(self) -> None:
        self.effects: list[str] = []
        self.attempts: list[Attempt] = []

    def act(self, attempt: Attempt) -> Any:
        self.attempts.append(attempt)
        self.effects.append(attempt.key)
        return {"id": f"re_{len(self.effects)}"}

    def then(self, error: BaseException, *, acts: bool = True) -> Act:
        def failing(attempt: Attempt) -> Any:
            if acts:
                self.act(attempt)
            else:
                self.attempts.append(attempt)
            raise error

        return failing
