"""The `once` fixture: what a test says to the explorer, and the world it may use.

In a process that nobody explores everything works too, plainly: no faults, no crashes, effects still counted.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from pytest_once import audit, boundaries
from pytest_once.boundaries import Boundary, Order, announce
from pytest_once.calls import MakeError, perform, perform_async
from pytest_once.faults import CALL_FAULTS
from pytest_once.ledger import Ledger, canonical_payload
from pytest_once.scenario import ScenarioError
from pytest_once.site import Site, call_site
from pytest_once.stores.opening import is_url

if TYPE_CHECKING:
    from subprocess import CompletedProcess

    from once_fakes import Contract, Provider
    from pytest_once.clock import Clock
    from pytest_once.incarnation import Channel

P = ParamSpec("P")
T = TypeVar("T")

CLAIMS = ("done", "failed", "unknown", "in_progress")


class Once:
    """What outlives the process (path, ledger, clock) and what the test declares.

    path: a directory of the world, memory-backed where the machine allows. ask_server: asks the loopback provider
    server, started when it is first asked, for what `Premises.ask_server` names. open_address: opens the store that a
    URL names and gives the URL to use instead.
    """

    def __init__(
        self, path: Path, ledger: Ledger, ask_server: Callable[..., Any], open_address: Callable[[str], str]
    ) -> None:
        self.path = path
        self.ledger = ledger
        self._ask_server = ask_server
        self._open_address = open_address
        self._channel: Channel | None = None
        self._clock: Clock | None = None
        self._number = 0
        self._claim: str | None = None
        self._providers: dict[str, Provider] = {}
        self.incarnation_was_read = False

    # -- providers and tools -------------------------------------------------------------------------

    def provider(
        self,
        name: str,
        *,
        contract: str | Contract = "none",
        base_url: str | None = None,
        key_field: str | None = None,
    ) -> Provider:
        """A fake provider whose ledger counts the effects.

        contract: a Contract or its name ("none", "client_key"). base_url: the address that `router` answers.
        key_field: dotted path of the payload field that holds the logical key ("metadata.order").
        Raises ValueError for an unknown contract, or if the name was declared with another one.
        """
        from once_fakes import Contract, Provider, contract_named

        _must_be_text("once.provider", name=name)
        if key_field is not None:
            _must_be_text("once.provider", key_field=key_field)
        if not isinstance(contract, (str, Contract)):
            raise ScenarioError(f"once.provider(contract={contract!r}): give a Contract or the name of one")

        promised = contract_named(contract) if isinstance(contract, str) else contract
        known = self._providers.get(name)
        if known is None or known.contract != promised:
            known = Provider(
                name,
                promised,
                self.ledger,
                lambda: str(self._ask_server("address")),
                base_url=base_url,
                key_field=key_field,
                ask_server=lambda what, argument: self._ask_server(what, argument),
            )
            self._providers[name] = known
        return known

    def tool(
        self,
        fn: Callable[P, T],
        *,
        name: str | None = None,
        key: str | Callable[..., str] | None = None,
        counted: bool = True,
        atomic: bool = False,
        timeout_error: MakeError = TimeoutError,
        reset_error: MakeError = ConnectionResetError,
        refused_error: MakeError = ConnectionRefusedError,
    ) -> Callable[P, T]:
        """Wrap a callable, sync or async, that acts on the outside world: crashes and soft faults happen around it.

        Each call that returns is one effect in the ledger under `key` (text, or a function of the call's
        arguments; without it, the arguments are the identity). A call that raises counts as no effect.
        counted=False: only a boundary; its effects are counted elsewhere (a provider inside, or `once.count`).
        A counted tool is one step. If it changes the world in more than one step inside, that is an error
        unless atomic=True says that nobody can see it half done.
        timeout_error, reset_error, refused_error: make the exceptions its caller sees when an answer is lost.
        """
        called = name or str(getattr(fn, "__name__", type(fn).__name__))
        if not callable(fn):
            raise ScenarioError(f"once.tool needs something callable, not {fn!r}")

        def begin() -> Order:
            return announce("tool", called, provider=called, faults=CALL_FAULTS)

        def record(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            logical: str | None = key(*args, **kwargs) if callable(key) else key
            self.ledger.record_call(called, "", logical, canonical_payload(_arguments(fn, args, kwargs)))

        errors: dict[str, MakeError] = {
            "timeout_error": timeout_error,
            "reset_error": reset_error,
            "refused_error": refused_error,
        }

        if inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__):

            @functools.wraps(fn)
            async def call_async(*args: P.args, **kwargs: P.kwargs) -> Any:
                async def act() -> Any:
                    if not counted:
                        with audit.announced():
                            return await fn(*args, **kwargs)  # type: ignore[misc]
                    with _OneStep(self, called, atomic), audit.announced():
                        result = await fn(*args, **kwargs)  # type: ignore[misc]
                        record(args, kwargs)
                        return result

                return await perform_async(begin(), act, **errors)

            return call_async  # type: ignore[return-value]

        @functools.wraps(fn)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            def act() -> T:
                if not counted:
                    with audit.announced():
                        return fn(*args, **kwargs)
                with _OneStep(self, called, atomic), audit.announced():
                    result = fn(*args, **kwargs)
                    record(args, kwargs)
                    return result

            return perform(begin(), act, **errors)

        return call

    def process(
        self,
        command: Sequence[str | PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
        timeout_s: float = 5.0,
        client_timeout_s: float | None = None,
        done: Sequence[int] = (0,),
        blocked: Sequence[int] = (),
        definite_failure: Sequence[int] = (),
    ) -> CompletedProcess[str]:
        """Run a program in any language to its end, as (a part of) what is explored; returns its status and outputs.

        It reaches fake providers through their `url`, in a variable or an argument, and keeps its state in files below
        tracked directories. env: variables besides those of this process. cwd: where it starts; `path` without it.
        timeout_s: how long it may neither ask a provider anything nor end. client_timeout_s: after how long its client
        gives up waiting for an answer (at least 2 s less); only then are answers lost without a broken connection.
        done, blocked, definite_failure: exit statuses that mean "it happened", "I do not know", "certainly not".

        Raises `pytest_once.ProcessFailed` for every status but those of done, and for one that hangs;
        ScenarioError if it cannot be started.
        """
        from pytest_once.process import ProcessFailed, Program, run

        place = self.path if cwd is None else Path(cwd).absolute()
        if isinstance(command, str):
            raise ScenarioError(f"once.process({command!r}): give the program and its arguments as a list")
        program = Program(tuple(command), dict(env or {}), place, timeout_s, client_timeout_s)
        ended = run(program, lambda code, message: self.misuse(code, message, call_site()))
        if ended.returncode in done:
            return ended
        for claim, statuses in (("unknown", blocked), ("failed", definite_failure)):
            if ended.returncode in statuses:
                self.claim(claim)
        how = f"exit status {ended.returncode}" if ended.returncode >= 0 else f"signal {-ended.returncode}"
        raise ProcessFailed(f"{program} ended with {how}", ended.returncode, ended.stderr)

    def boundary(self, name: str) -> None:
        """A named crash point."""
        _must_be_text("once.boundary", name=name)
        announce("point", name)

    def choose(self, name: str, options: Sequence[T]) -> T:
        """A choice the environment makes; every option is explored, at every place where the choice is met.

        The first option is what happens undisturbed: in the recording, in a plain run, and once the faults stop.
        Options are told apart by number; the report shows their repr. Raises ScenarioError if there is none.
        """
        _must_be_text("once.choose", name=name)
        given = tuple(options)
        if not given:
            raise ScenarioError(f"once.choose({name!r}): give at least one option")
        return given[
            announce(
                "choice", name, options=tuple(option if isinstance(option, str) else repr(option) for option in given)
            ).option
        ]

    def agent(
        self,
        tool: Callable[..., T],
        *,
        calls: int = 2,
        call_id: str | None = None,
        reworded: Mapping[str, Any] | None = None,
        gives_up: tuple[type[BaseException], ...] = (),
    ) -> Callable[..., T]:
        """Play a model around a tool, sync or async: it stops, repeats the call, alters it, or asks again.

        Returns a callable that takes the tool's arguments and explores every way to call it up to `calls` times in
        one incarnation; its answer is None where the model gave up. call_id: name of the tool's parameter that
        receives an id per call ("call_1", ...); with it, a repetition under the same id is tried as well. reworded:
        arguments that a rewording model changes, such as {"note": "as asked"}; the intent stays the same. gives_up:
        exceptions of the tool after which the model may end its turn as if nothing was wrong; any other exception
        that it does not answer with a repetition is raised. See `pytest_once.agent`.
        """
        from pytest_once.agent import played

        return played(self.choose, tool, calls=calls, call_id=call_id, reworded=reworded or {}, gives_up=gives_up)

    # -- what is intended ----------------------------------------------------------------------------

    def intend(self, key: str, count: int = 1, *, provider: str | None = None) -> None:
        """Say how many effects a logical key should end with: 1, or 0, or n, at each provider operation that names it.

        An effect belongs to the key when its payload or path contains it as a whole word, or when the tool or
        provider names it. provider: only effects of this provider are meant.
        """
        _must_be_text("once.intend", key=key)
        if type(count) is not int or count < 0:
            raise ScenarioError(f"once.intend({key!r}, {count!r}): the intended count is 0 or more")
        self.ledger.declare_intent(key, count, provider)

    def count(self, database: str | PathLike[str], sql: str, *, name: str | None = None) -> None:
        """Count effects in a SQLite file of the world that plays the provider: rows of (logical key, number).

        database: path of the file, below tmp_path, once.path or a tracked directory. sql: a SELECT with two
        columns, such as "SELECT intent, COUNT(*) FROM reservations GROUP BY intent".
        """
        path = Path(database)
        if not path.is_absolute():
            path = self.path / path
        self.ledger.declare_counter(name or path.stem, str(path), sql)

    def caller(self, key: str, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Call `fn` as an upstream caller does: until it was acknowledged once, then never again.

        Returns fn's answer, or None when an earlier incarnation got it; for a coroutine function, a coroutine that
        does. The caller's memory is part of the world.
        """
        _must_be_text("once.caller", key=key)
        if not callable(fn):
            raise ScenarioError(f"once.caller({key!r}, {fn!r}): the second argument is the function to call")
        memory = f"caller:{key}"

        def acknowledge() -> None:
            announce("caller", f"acknowledge {key}")
            self.ledger.remember(memory, True)

        if inspect.iscoroutinefunction(fn):

            async def call() -> Any:
                if self.ledger.recall(memory):
                    return None
                answer = await fn(*args, **kwargs)
                acknowledge()
                return answer

            return call()  # type: ignore[return-value]
        if self.ledger.recall(memory):
            return None
        answer = fn(*args, **kwargs)
        if inspect.isawaitable(answer):
            if inspect.iscoroutine(answer):
                answer.close()
            raise ScenarioError(
                f"once.caller({key!r}): the answer has to be awaited, so it is none yet; pass a coroutine function"
            )
        acknowledge()
        return answer

    def claim(self, claim: str) -> None:
        """Say what this incarnation's end means, for code that answers with values instead of exceptions.

        "done": it happened. "failed": certainly not. "unknown": it cannot tell. "in_progress": call again.
        """
        if claim not in CLAIMS:
            raise ScenarioError(f"once.claim({claim!r}): valid claims are {', '.join(CLAIMS)}")
        self._claim = claim

    # -- the world -----------------------------------------------------------------------------------

    @overload
    def track(self, target: PathLike[str]) -> Path: ...

    @overload
    def track(self, target: str) -> Any: ...

    def track(self, target: str | PathLike[str]) -> Any:
        """Make a directory or a database part of the world, before anything in it is used.

        A path: the directory, which is made if missing. Returns it as a Path.
        A URL ("postgresql://host/database", "redis://host:6379/9", or what a plugin knows): a database. Returns the
        URL, a text, that the code under test must use: a PostgreSQL database is copied, and the one that is named is
        never touched.
        Raises ScenarioError for a URL that nobody knows, StoreError for a database that cannot be used.
        """
        if isinstance(target, str) and is_url(target):
            return self._track_url(target)
        directory = Path(target).absolute()
        directory.mkdir(parents=True, exist_ok=True)
        if self._channel is not None:
            self._channel.request("track", str(directory))
            from pytest_once.seams import watch_also

            watch_also(directory)
        return directory

    def _track_url(self, target: str) -> str:
        if self._channel is None:
            return self._open_address(target)
        address = str(self._channel.request("track", (target, self.clock.now_s)))
        from pytest_once.seams import watch_server

        watch_server(address)
        return address

    @property
    def clock(self) -> Clock:
        """Virtual time of this incarnation. Raises ScenarioError in a plain run, where time is real."""
        if self._clock is None:
            raise ScenarioError("once.clock: time is real in a plain run; run with --once-chaos")
        return self._clock

    @property
    def incarnation(self) -> int:
        """Number of this incarnation, 0 for the first. For printing only: a body that reads it cannot be exhausted."""
        self.incarnation_was_read = True
        return self._number

    # -- the engine's side ---------------------------------------------------------------------------

    def begin(self, channel: Channel, clock: Clock, number: int) -> None:
        """An incarnation starts in this process; the engine calls it."""
        self._channel = channel
        self._clock = clock
        self._number = number
        self._claim = None
        self._ask_server = lambda *asked: channel.request("server", asked)

    def forget_providers(self) -> None:
        """Providers are declared anew: the ledger is another one."""
        self._providers.clear()

    def keeps_time(self, provider: str) -> bool:
        """Whether a provider's contract depends on the time."""
        known = self._providers.get(provider)
        return known is not None and known.contract.keeps_time

    @property
    def claimed(self) -> str | None:
        """The explicit claim of this incarnation, if it made one."""
        return self._claim

    def misuse(self, code: str, message: str, site: Site) -> None:
        """Report what cannot be explored (ends the incarnation), or raise ScenarioError in a plain run."""
        if self._channel is not None:
            self._channel.misuse(code, message, site)
        raise ScenarioError(message)


class _OneStep:
    """A stretch in which boundaries are collected instead of announced, because it must count as one."""

    def __init__(self, once: Once, tool: str, atomic: bool) -> None:
        self._once = once
        self._tool = tool
        self._atomic = atomic

    def __enter__(self) -> None:
        announcer = boundaries.connected()
        self._inside: list[Boundary] = [] if announcer is None else announcer.enter_atomic()

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        announcer = boundaries.connected()
        if announcer is not None:
            announcer.leave_atomic()
        for boundary in self._inside:
            if boundary.provider is not None:
                self._once.misuse(
                    "tool-calls-provider",
                    f"the counted tool {self._tool!r} calls the provider {boundary.provider!r} inside, so its "
                    "effect would be counted twice and the call could not be faulted: pass counted=False to once.tool",
                    boundary.site,
                )
        if len(self._inside) > 1 and not self._atomic:
            steps = ", then ".join(f"{boundary.target} ({boundary.site})" for boundary in self._inside)
            self._once.misuse(
                "tool-not-atomic",
                f"the counted tool {self._tool!r} changes the world in {len(self._inside)} steps ({steps}), so it is "
                "not known at which one its effect happens. Pass counted=False and count with once.count(...) or a "
                "provider, or atomic=True if nobody can see it half done",
                self._inside[0].site,
            )


def _must_be_text(where: str, **arguments: object) -> None:
    for name, value in arguments.items():
        if not isinstance(value, str) or not value:
            raise ScenarioError(f"{where}({name}={value!r}): {name} is a text that is not empty")


def _arguments(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by parameter name, so that positional and keyword calls are the same call."""
    try:
        bound = inspect.signature(fn).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return {"args": list(args), "kwargs": kwargs}
    bound.apply_defaults()
    return dict(bound.arguments)
