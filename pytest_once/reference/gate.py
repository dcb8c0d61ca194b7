"""The gate: at most one execution for each intent, and one receipt that every later request gets.

A call is admitted in one transaction, acts outside of any, and is recorded in a second one. A process that dies in
between leaves IN_FLIGHT with a lease; when that has ended the intent is UNKNOWN, and nobody acts until a look-up or a
person has decided, unless the provider promises that a resend under the same key is harmless. If the gate's database
cannot be asked, the call is refused. Whatever retries around the gate gets the receipt; what retries inside it (an SDK
by itself) must be switched off.
"""

from __future__ import annotations

import functools
import inspect
import json
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

from pytest_once.reference import settlement, transitions
from pytest_once.reference.databases import AsyncDatabase, Database
from pytest_once.reference.flows import Call, Flow, Transact, drive, drive_async
from pytest_once.reference.outcomes import Certainty, Outcome, of_exception
from pytest_once.reference.promise import NOTHING, Promise
from pytest_once.reference.routing import GATED, Level, declare
from pytest_once.reference.settlement import Recorded
from pytest_once.reference.steps import Steps
from pytest_once.reference.transitions import Attempt, Request, State, Stored

P = ParamSpec("P")
D = TypeVar("D")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof that an intent was executed. result: what the tool returned, as JSON holds it; the same for everybody.

    replayed: stored by an earlier request; nothing was executed by this one.
    """

    intent_id: str
    result: Any
    replayed: bool


class NotExecuted(Exception):
    """The gate did not let this call through, or does not know what came of it. intent_id: which one."""

    def __init__(self, intent_id: str, message: str) -> None:
        super().__init__(message)
        self.intent_id = intent_id


class GateUnreachable(NotExecuted):
    """The gate's database did not answer. Nothing was executed: without the gate nobody acts. Try again later."""


class Conflict(NotExecuted):
    """The identity belongs to another payload, or another tool. Nothing was executed."""


class InProgress(NotExecuted):
    """Somebody else may be executing this intent now. Nothing was executed by this call."""


class Failed(NotExecuted):
    """Certainly no effect. The intent may be tried again."""


class Unknown(NotExecuted):
    """It may have been executed, or may be still. Not to be tried again: look it up, or ask a person."""


class Unrecorded(Unknown):
    """The tool was called, but what came of it could not be stored. outcome: what came of it."""

    def __init__(self, intent_id: str, message: str, outcome: Outcome) -> None:
        super().__init__(intent_id, message)
        self.outcome = outcome


class _Gate(Generic[D]):
    """Arguments of both gates: database: migrated. promises: by tool; a tool without one promises nothing.

    lease_s: longer than a call ever takes; when it has passed, the intent is UNKNOWN. classify: what a tool's
    exception proves. history: attempts of an intent whose records are kept. clock: seconds since 1970.
    """

    def __init__(
        self,
        database: D,
        *,
        promises: Mapping[str, Promise] | None = None,
        lease_s: float = 300.0,
        classify: Callable[[BaseException], Outcome] = of_exception,
        history: int = 20,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not lease_s > 0 or history < 1:
            raise ValueError(f"lease_s={lease_s!r}, history={history!r}: both must be greater than 0")
        self.database = database
        self.promises = dict(promises or {})
        self.lease_s = lease_s
        self.classify = classify
        self.history = history
        self.clock = clock

    def _register_flow(self, request: Request) -> Flow[State]:
        def steps() -> Steps[Stored | None]:
            yield from transitions.register(request, self.clock())
            return (yield from transitions.read(request.id))

        found = yield from self._reach(request, steps())
        if found.fingerprint != request.fingerprint:
            raise _conflict(request, found)
        state: State = found.state
        return state

    def _reach(self, request: Request, steps: Steps[T]) -> Flow[Any]:
        try:
            return (yield Transact(steps))
        except Exception as error:
            raise GateUnreachable(
                request.id,
                f"{request.id} was not executed: the gate's database failed ({type(error).__name__}: {error}). Without "
                "the gate nobody knows whether it was executed before; try again when the database answers",
            ) from error

    def _call_flow(self, request: Request, act: Callable[[Attempt], Any], free_retries: int) -> Flow[Receipt]:
        promise = self.promises.get(request.tool, NOTHING)
        for left in range(free_retries, -1, -1):
            now = self.clock()
            admission = yield from self._reach(
                request, transitions.admit(request, promise, self.lease_s, self.history, now)
            )
            if not isinstance(admission, Attempt):
                return _answer(request, admission, now)
            receipt = yield from self._attempt(request, admission, act, again=left > 0)
            if receipt is not None:
                return receipt
        raise AssertionError("the last attempt returns or raises")

    def _attempt(
        self, request: Request, attempt: Attempt, act: Callable[[Attempt], Any], again: bool
    ) -> Flow[Receipt | None]:
        """The receipt; None if nothing arrived and `again` allows another attempt."""
        try:
            value = yield Call(functools.partial(act, attempt))
        except GeneratorExit:
            raise
        except BaseException as error:
            outcome = self.classify(error)
            if outcome.certainty is Certainty.SUCCEEDED:
                outcome = Outcome(Certainty.UNKNOWN, f"{outcome.reason}, but nothing was returned")
            recorded = yield from self._record(attempt, outcome, None, error)
            if not isinstance(error, Exception):
                raise
            state = recorded.stored.state
            if again and state is State.FAILED and outcome.certainty is Certainty.NEVER_ARRIVED:
                return None
            if state is State.SUCCEEDED:
                return _receipt(recorded.stored, replayed=True)
            raise _refusal(request, recorded.stored, self.clock()) from error
        text, trouble = _json(value)
        outcome = Outcome(Certainty.SUCCEEDED, trouble or "the tool returned")
        recorded = yield from self._record(attempt, outcome, text, None)
        if recorded.stored.state is not State.SUCCEEDED or recorded.contradiction:
            raise Unrecorded(
                request.id,
                f"{request.id} was executed, but after its lease had ended; the intent had become "
                f"{recorded.stored.state}. The late result is noted"
                + (", and a person is asked: the two contradict each other" if recorded.contradiction else ""),
                outcome,
            )
        if trouble:
            raise TypeError(
                f"{request.id} was executed and is recorded, but {trouble}: return JSON values from the tool"
            )
        return _receipt(recorded.stored, replayed=recorded.late)

    def _record(
        self, attempt: Attempt, outcome: Outcome, result: str | None, cause: BaseException | None
    ) -> Flow[Recorded]:
        """Store an outcome; twice if need be, since repeating it is harmless."""
        for last in (False, True):
            try:
                recorded: Recorded = yield Transact(settlement.record(attempt, outcome, result, self.clock()))
                return recorded
            except Exception as error:
                if not last:
                    continue
                if cause is not None and not isinstance(cause, Exception):
                    raise cause from error
                raise Unrecorded(
                    attempt.intent_id,
                    f"{attempt.intent_id}: {outcome.certainty} ({outcome.reason}), but that could not be stored "
                    f"({type(error).__name__}: {error}). When its lease ends it is UNKNOWN, to be looked up",
                    outcome,
                ) from error
        raise AssertionError("the loop returns or raises")


class Gate(_Gate[Database]):
    """The gate for synchronous callers. Safe in any number of threads and processes."""

    def register(self, request: Request) -> State:
        """Store an intent before anybody acts on it; its state. Raises Conflict, GateUnreachable.

        To commit it together with a task, run `transitions.register` in that transaction instead.
        """
        return drive(self.database, self._register_flow(request))

    def call(self, request: Request, act: Callable[[Attempt], Any], *, free_retries: int = 0) -> Receipt:
        """Let `act(attempt)` execute at most once for this intent, and return the receipt.

        act: returns a JSON value when the effect has happened, and raises otherwise. free_retries: further attempts, at
        once, as long as no request arrived at all.
        Raises Conflict, InProgress, Failed, Unknown, GateUnreachable; what `act` raised is their cause.
        """
        return drive(self.database, self._call_flow(request, act, free_retries))

    def protect(
        self,
        *,
        intent: str | Callable[..., str],
        tool: str | None = None,
        level: Level = Level.L3,
        binds: Sequence[str] | None = None,
        free_retries: int = 0,
    ) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """Put a tool function behind the gate; retries of a framework around it then get the receipt.

        intent: the parameter that holds the intent's id, or a function of the parameters' values by name. binds: the
        parameters that change the effect (default: all but the intent's). A parameter named `attempt` is filled by the
        gate, for `attempt.key`. The function returns what the receipt holds.
        """

        def wrap(function: Callable[P, T]) -> Callable[P, T]:
            guarded = _Guarded(function, intent, tool, binds)

            @functools.wraps(function)
            def protected(*args: P.args, **kwargs: P.kwargs) -> T:
                act = functools.partial(guarded.act, args, kwargs)
                result: T = self.call(guarded.intent(args, kwargs), act, free_retries=free_retries).result
                return result

            return guarded.mark(protected, level)

        return wrap


class AsyncGate(_Gate[AsyncDatabase]):
    """The gate for asynchronous callers; see Gate. A cancelled call is recorded as UNKNOWN."""

    async def register(self, request: Request) -> State:
        """As Gate.register."""
        return await drive_async(self.database, self._register_flow(request))

    async def call(
        self, request: Request, act: Callable[[Attempt], Awaitable[Any] | Any], *, free_retries: int = 0
    ) -> Receipt:
        """As Gate.call; `act` may be a coroutine function."""
        return await drive_async(self.database, self._call_flow(request, act, free_retries))

    def protect(
        self,
        *,
        intent: str | Callable[..., str],
        tool: str | None = None,
        level: Level = Level.L3,
        binds: Sequence[str] | None = None,
        free_retries: int = 0,
    ) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Coroutine[Any, Any, T]]]:
        """As Gate.protect, for coroutine functions."""

        def wrap(function: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
            guarded = _Guarded(function, intent, tool, binds)

            @functools.wraps(function)
            async def protected(*args: P.args, **kwargs: P.kwargs) -> T:
                act = functools.partial(guarded.act, args, kwargs)
                receipt = await self.call(guarded.intent(args, kwargs), act, free_retries=free_retries)
                result: T = receipt.result
                return result

            return guarded.mark(protected, level)

        return wrap


class _Guarded:
    """A tool function, and how to read an intent out of a call of it."""

    def __init__(
        self,
        function: Callable[..., Any],
        intent: str | Callable[..., str],
        tool: str | None,
        binds: Sequence[str] | None,
    ) -> None:
        self.function = function
        self.tool = tool or function.__name__
        signature = inspect.signature(function)
        self.takes_attempt = "attempt" in signature.parameters
        self.signature = signature.replace(
            parameters=[each for name, each in signature.parameters.items() if name != "attempt"]
        )
        known = list(self.signature.parameters)
        for name in [*([intent] if isinstance(intent, str) else []), *(binds or ())]:
            if name not in known:
                raise ValueError(f"{self.tool} has no parameter {name!r}; it has {', '.join(known) or 'none'}")
        self._id_of = intent
        self._binds = [name for name in known if name != intent] if binds is None else list(binds)

    def intent(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Request:
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        values = dict(bound.arguments)
        identity = values[self._id_of] if isinstance(self._id_of, str) else self._id_of(**values)
        if not isinstance(identity, str) or not identity:
            raise ValueError(f"{self.tool}: the intent's id must be a text that is not empty, not {identity!r}")
        return Request(identity, self.tool, {name: values[name] for name in self._binds})

    def act(self, args: tuple[Any, ...], kwargs: dict[str, Any], attempt: Attempt) -> Any:
        given = {**kwargs, "attempt": attempt} if self.takes_attempt else kwargs
        return self.function(*args, **given)

    def mark(self, protected: Callable[P, T], level: Level) -> Callable[P, T]:
        # Frameworks read a tool's parameters from here; the model must not be asked for the attempt.
        protected.__signature__ = self.signature  # type: ignore[attr-defined]
        protected.__annotations__ = {k: v for k, v in self.function.__annotations__.items() if k != "attempt"}
        setattr(protected, GATED, True)
        return declare(protected, level)


def _json(value: Any) -> tuple[str, str]:
    """(JSON text, trouble): what cannot be stored is no reason to doubt that the effect happened."""
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False), ""
    except (TypeError, ValueError):
        return "null", f"its result, a {type(value).__name__}, is no JSON value, so the receipt holds null"


def _receipt(found: Stored, replayed: bool) -> Receipt:
    return Receipt(found.intent_id, json.loads(found.result or "null"), replayed)


def _answer(request: Request, found: Stored, now: float) -> Receipt:
    """What a request gets that was not admitted."""
    if found.fingerprint != request.fingerprint:
        raise _conflict(request, found)
    if found.state is State.SUCCEEDED:
        return _receipt(found, replayed=True)
    raise _refusal(request, found, now)


def _conflict(request: Request, found: Stored) -> Conflict:
    return Conflict(
        request.id,
        f"{request.id} was not executed: this identity belongs to {found.tool} {found.payload}, and the request is for "
        f"{request.tool} {request.payload}. Another action needs an identity of its own; the same one must come with "
        "the same payload",
    )


def _refusal(request: Request, found: Stored, now: float) -> NotExecuted:
    if found.state is State.FAILED:
        return Failed(request.id, f"{request.id} certainly had no effect ({found.reason}); it may be tried again")
    if found.state is State.IN_FLIGHT:
        left = max(0.0, (found.lease_until or now) - now)
        return InProgress(
            request.id,
            f"{request.id} may be executed by somebody else, for {left:.0f} s at most; ask again then",
        )
    return Unknown(
        request.id,
        f"{request.id} may have been executed ({found.reason}), so it is not tried again. The reconciler looks it up "
        "or asks a person: python -m pytest_once.reference queue",
    )
