"""pytest's side: options, marker, fixture, and taking over a marked test. Everything else is imported when needed."""

from __future__ import annotations

import copy
import inspect
import json
import os
import re
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_once.once import Once
    from pytest_once.premises import Premises, ProviderServer
    from pytest_once.scenario import Expectations, Limits
    from pytest_once.stores import Store

MARKER = "once_effect"
PROFILES = ("crash", "standard", "deep")
PROPERTY = "once"
"""Name under which a test's result travels, as JSON, in its report's user_properties: to JUnit, and across xdist."""

_server: pytest.StashKey[ProviderServer] = pytest.StashKey()
_premises: pytest.StashKey[Premises] = pytest.StashKey()
_refused = pytest.StashKey[str]()
_taken_over = pytest.StashKey[bool]()

_HELP = {
    "chaos": "crash, restart and fault every test marked once_effect until no new state appears; "
    "profile: crash, standard (default) or deep",
    "replay": "repeat one schedule, by the id a report printed, and tell its story",
    "max-states": "states to explore at most, per test (default 5000)",
    "deadline": "time to explore at most, per test: 90s, 5m (default 5m)",
    "timeout": "how long an incarnation may be silent before it is killed: 2s, 1m (default 10s)",
    "selfcheck": "explore control mutants, code that is known to be wrong, and fail unless each is convicted; runs no "
    "tests",
    "isolation": "fork (default), or none: run marked tests once in this process, for a debugger; explores "
    "nothing, so no marked test passes",
    "inventory": "fail, beside what the tests say, if a tool in MODULE:TOOLS declares no level of side effects or "
    "bypasses the gate",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("once", "exactly-once exploration")
    group.addoption("--once-chaos", nargs="?", const="standard", default=None, metavar="PROFILE", help=_HELP["chaos"])
    for name in ("replay", "max-states", "deadline", "timeout", "isolation", "inventory"):
        group.addoption(f"--once-{name}", default=None, metavar=name.upper(), help=_HELP[name])
    group.addoption("--once-selfcheck", action="store_true", default=False, help=_HELP["selfcheck"])
    for name in ("chaos", "max-states", "deadline", "timeout", "isolation", "inventory"):
        parser.addini(f"once_{name.replace('-', '_')}", _HELP[name], default=None)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from pytest_once import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None, None, None]:
    # An optional value would swallow the path in `pytest --once-chaos tests`.
    if "--once-chaos" in args:
        while "--once-chaos" in args:
            at = args.index("--once-chaos")
            named = args[at + 1 : at + 2]
            if named and named[0] in PROFILES:
                args[at : at + 2] = [f"--once-chaos={named[0]}"]
            else:
                args[at] = "--once-chaos=standard"
        early_config.known_args_namespace = parser.parse_known_args(args, namespace=copy.copy(early_config.option))
    yield


def pytest_cmdline_main(config: pytest.Config) -> int | pytest.ExitCode | None:
    if not config.getoption("--once-selfcheck") or config.option.help or config.option.version:
        return None
    from pytest_once import selfcheck
    from pytest_once.reporting import terminal

    wrong = 0
    for checked in selfcheck.run():
        wrong += not checked.right
        lines = terminal.control(checked.control.name, checked.verdict, checked.control.verdict, checked.why)
        print("\n".join(lines), flush=True)
    print(f"{len(selfcheck.CONTROLS) - wrong} of {len(selfcheck.CONTROLS)} controls judged as they must be")
    return pytest.ExitCode.TESTS_FAILED if wrong else pytest.ExitCode.OK


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARKER}(key=None, *, keys=None, faults=None, soft_faults=None, redeliver=1, restart_after=('0s',), "
        "blocked=(), definite_failure=(), ignore=(), allow=(), workers=1, max_states=None, deadline=None, "
        "attempts=None, in_flight=None): the test performs a side effect that must happen exactly once; explored "
        "with --once-chaos",
    )
    _check_options(config)
    _watch_before_collection(config)
    if _explores(config) and not config.option.collectonly and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Summary(), "once-summary")
    target, written = _given(config, "inventory")
    wanted = not (config.option.help or config.option.version or hasattr(config, "workerinput"))
    if target is not None and wanted:
        config.pluginmanager.register(_Inventory(config, target, written), "once-inventory")


def _watch_before_collection(config: pytest.Config) -> None:
    # Test modules are imported soon; what they draw at import is the same in every forked child.
    if _explores(config):
        from pytest_once import inherited

        inherited.watch()


def pytest_unconfigure(config: pytest.Config) -> None:
    if _server in config.stash:
        config.stash[_server].close()


def _option(config: pytest.Config, name: str) -> str | None:
    return _given(config, name)[0]


def _given(config: pytest.Config, name: str) -> tuple[str | None, str]:
    """An option's value, and how a person has written it: on the command line, or in the ini file."""
    value = config.getoption(f"--once-{name}", default=None)
    if value is not None:
        return str(value), f"--once-{name}={value}"
    ini = f"once_{name.replace('-', '_')}"
    value = config.getini(ini) if name != "replay" else None
    return (str(value), f"{ini} = {value}") if value else (None, "")


def _check_options(config: pytest.Config) -> None:
    for name, valid in (("chaos", PROFILES), ("isolation", ("fork", "none"))):
        value, written = _given(config, name)
        if value is not None and value not in valid:
            raise pytest.UsageError(f"{written}: valid values are {', '.join(valid)}")
    states, written = _given(config, "max-states")
    if states is not None and not (states.isdecimal() and int(states) > 0):
        raise pytest.UsageError(f"{written}: give a whole number greater than 0")
    for name in ("deadline", "timeout"):
        duration, written = _given(config, name)
        if duration is not None and not _seconds(duration):
            raise pytest.UsageError(
                f"{written}: give a duration greater than 0, such as 500ms, 90s, 5m or 1h; a mere number is seconds"
            )
    replayed, written = _given(config, "replay")
    if replayed is not None:
        from pytest_once.faults import Schedule, ScheduleError

        try:
            Schedule.parse(replayed)
        except ScheduleError as error:
            raise pytest.UsageError(f"--once-replay: {error}. Copy the command of a report's line 'replay:'") from None


def _seconds(duration: str) -> float | None:
    from pytest_once.scenario import ScenarioError, seconds

    try:
        return seconds(duration if duration[-1:].isalpha() else f"{duration}s")
    except ScenarioError:
        return None


def _explores(config: pytest.Config) -> bool:
    return _option(config, "chaos") is not None or _option(config, "replay") is not None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    known = {MARKER, *(re.split(r"[:(]", line)[0].strip() for line in config.getini("markers"))}
    seen: set[str] = set()
    for item in items:
        for marker in item.iter_markers():
            if marker.name not in known | seen and _looks_like_ours(marker.name):
                _refuse(
                    config,
                    f"{item.nodeid} is marked {marker.name!r}, which nothing knows; did you mean {MARKER!r}? "
                    "As it is, the test would run unexplored",
                )
            seen.add(marker.name)
    marked = sum(item.get_closest_marker(MARKER) is not None for item in items)
    if _option(config, "replay") is not None and marked != 1 and items:
        _refuse(
            config,
            f"--once-replay repeats one schedule of one test, but {marked} tests marked {MARKER} were selected; copy "
            "the whole command from the report's line 'replay:', with the test's name",
        )


def _refuse(config: pytest.Config, message: str) -> None:
    """End the session with a usage error; an xdist worker, whose error nobody would see, fails its tests with it."""
    if not hasattr(config, "workerinput"):
        raise pytest.UsageError(message)
    config.stash[_refused] = message


def _looks_like_ours(name: str) -> bool:
    import difflib

    return difflib.SequenceMatcher(None, name.lower(), MARKER).ratio() > 0.75


@pytest.fixture
def once(request: pytest.FixtureRequest) -> Iterator[Once]:
    """What a once_effect test says to the explorer, and the world it may use."""
    from pytest_once import boundaries
    from pytest_once.premises import Premises, ProviderServer

    def open_store(target: str) -> Store | None:
        store: Store | None = request.node.ihook.pytest_once_stores(target=target)
        return store

    stash = request.config.stash
    if _server not in stash:
        stash[_server] = ProviderServer()
    with Premises(stash[_server], open_store) as premises:
        request.node.stash[_premises] = premises
        yield premises.once
        boundaries.forget_endpoints()


# -- a marked test --------------------------------------------------------------------------------------


def pytest_runtest_setup(item: pytest.Item) -> None:
    if _refused in item.config.stash:
        pytest.fail(item.config.stash[_refused], pytrace=False)
    uses_once = "once" in getattr(item, "fixturenames", ())
    if item.get_closest_marker(MARKER) is None:
        if uses_once and _explores(item.config):
            item.user_properties.append((PROPERTY, json.dumps({"test": item.nodeid, "unmarked": True})))
        return
    if not uses_once:
        pytest.fail(
            f"INCONCLUSIVE  {item.nodeid} is marked {MARKER} but has no `once` fixture, so no effect of it can be "
            "counted. Take `once` as an argument (in a class without arguments: from an autouse fixture), and point "
            "the client at once.provider(...).url, or wrap the acting function with once.tool(...)",
            pytrace=False,
        )
    _expectations(item)
    if not _explores(item.config) or _option(item.config, "isolation") == "none":
        return
    if not isinstance(item, pytest.Function):
        pytest.fail(f"{item.nodeid} is no test function; {MARKER} cannot explore it", pytrace=False)
    item.stash[_taken_over] = True
    item.setup = _setup_in_parent.__get__(item)  # type: ignore[method-assign]
    item.runtest = _explore.__get__(item)  # type: ignore[method-assign]
    item.teardown = _nothing_to_tear_down  # type: ignore[method-assign]


def _nothing_to_tear_down() -> None:
    """Each incarnation has torn down, or not, what it set up."""


def _expectations(item: pytest.Item) -> tuple[Expectations, Limits]:
    from pytest_once.scenario import ScenarioError, from_marker, profile_limits

    marker = item.get_closest_marker(MARKER)
    assert marker is not None
    profile = _option(item.config, "chaos") or "standard"
    given: dict[str, Any] = {}
    if (states := _option(item.config, "max-states")) is not None:
        given["max_states"] = int(states)
    for option, field in (("deadline", "deadline_s"), ("timeout", "life_timeout_s")):
        if (text := _option(item.config, option)) is not None:
            given[field] = _seconds(text)
    try:
        return from_marker(marker.args, marker.kwargs, profile_limits(profile, given))
    except ScenarioError as error:
        wrong = str(error)
    pytest.fail(f"@pytest.mark.{MARKER}: {wrong}", pytrace=False)


_LOOP_FIXTURE = re.compile(r"_(function|class|module|package|session)_scoped_runner|event_loop")


def _setup_in_parent(item: pytest.Function) -> None:
    """Set up what outlives an incarnation: wider fixtures, and the world (tmp_path, once)."""
    request = item._request
    definitions = item._fixtureinfo.name2fixturedefs
    for name in item.fixturenames:
        known = definitions.get(name)
        # An event loop of the parent is of no use in a child; each makes its own.
        if known and known[-1].scope != "function" and not _LOOP_FIXTURE.fullmatch(name):
            request.getfixturevalue(name)
    request.getfixturevalue("tmp_path")
    request.getfixturevalue("once")


def _explore(item: pytest.Function) -> None:
    """Stands in for runtest: the body runs in children, again and again."""
    import shlex
    import unittest

    from pytest_once.exploration import Exploration
    from pytest_once.faults import Schedule
    from pytest_once.recording import FrontEnd
    from pytest_once.reporting import terminal

    expectations, limits = _expectations(item)
    exploration = Exploration(
        name=item.nodeid,
        premises=item.stash[_premises],
        front=FrontEnd(
            act=lambda _: _live(item),
            skips=(pytest.skip.Exception, unittest.SkipTest),
            explain=lambda error: str(item.repr_failure(pytest.ExceptionInfo.from_exception(error))),
        ),
        expectations=expectations,
        limits=limits,
        tracked=(item._request.getfixturevalue("tmp_path"),),
        seams=[seam for seams in item.ihook.pytest_once_boundaries() for seam in seams],
    )
    replayed = _option(item.config, "replay")
    report = exploration.run() if replayed is None else exploration.replay(Schedule.parse(replayed))
    if exploration.skipped is not None:
        raise pytest.skip.Exception(exploration.skipped, _use_item_location=True)
    command = f"pytest {shlex.quote(_as_argument(item))} --once-replay="
    text = terminal.render(report, replay_prefix=command)
    _note(item, terminal.in_summary(report, text))
    if not report.passed:
        if report.output.strip():
            item.add_report_section("call", "output of the last incarnation", report.output)
        pytest.fail(text, pytrace=False)


def _as_argument(item: pytest.Item) -> str:
    """The test as one would name it on a command line in this directory (node ids begin at the root directory)."""
    _, separator, name = item.nodeid.partition("::")
    return f"{os.path.relpath(item.path, item.config.invocation_params.dir)}{separator}{name}"


def _live(item: pytest.Function) -> None:
    """One incarnation, in a child: set up what a restarted process builds anew, run, tear that down."""
    del item.setup, item.runtest, item.teardown
    finalizers = item.session._setupstate.stack[item][0]
    lasting = len(finalizers)
    errors: list[BaseException] = []
    try:
        item.setup()
        item.runtest()
        # unittest keeps its errors to itself until the report is made.
        for noted in getattr(item, "_excinfo", None) or ():
            raise noted.value
    except BaseException as error:
        errors.append(error)
    while len(finalizers) > lasting:
        _collecting(errors, finalizers.pop())
    _collecting(errors, item.teardown)
    if errors:
        raise errors[0]


def _collecting(errors: list[BaseException], step: Callable[[], object]) -> None:
    try:
        step()
    except BaseException as error:
        errors.append(error)


def _note(item: pytest.Item, result: dict[str, Any]) -> None:
    item.user_properties.append((PROPERTY, json.dumps(result)))


# -- a marked test that is run plainly -------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    result = yield
    if item.get_closest_marker(MARKER) is None or item.stash.get(_taken_over, False):
        return result
    if getattr(item, "_excinfo", None):
        return result  # a unittest.TestCase failed; pytest reports it
    _count_plainly(item)
    if _explores(item.config):
        pytest.fail(
            "INCONCLUSIVE  with --once-isolation=none the test ran once, in this process, and its effects were right; "
            "but nothing was explored. Use --once-isolation=fork to explore, or leave out --once-chaos",
            pytrace=False,
        )
    return result


def _count_plainly(item: pytest.Item) -> None:
    from pytest_once.plain import count

    expectations, _ = _expectations(item)
    tmp_path = getattr(item, "funcargs", {}).get("tmp_path")
    problem = count(item.stash[_premises], tmp_path, expectations)
    if problem:
        pytest.fail(problem, pytrace=False)


@pytest.hookimpl
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    # Without an async plugin a marked coroutine test still runs; with one, the plugin comes first.
    if pyfuncitem.get_closest_marker(MARKER) is None or not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    import asyncio

    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True


# -- the summary -----------------------------------------------------------------------------------------


class _Summary:
    """Gathers the results of all tests, from all xdist workers, and tells them once at the end."""

    def __init__(self) -> None:
        self._results: list[dict[str, Any]] = []
        self._unmarked: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        found = [json.loads(str(value)) for name, value in report.user_properties if name == PROPERTY]
        if report.when == "call":
            self._results += [result for result in found if "unmarked" not in result]
            self._unmarked += [result["test"] for result in found if "unmarked" in result]
        if MARKER in report.keywords and report.failed and not any("verdict" in result for result in found):
            self._results.append({"test": report.nodeid, "verdict": "INCONCLUSIVE"})

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        from pytest_once.reporting.terminal import summary

        terminalreporter.section("once-chaos")
        for line in summary(self._results, self._unmarked):
            terminalreporter.line(line)


# -- the inventory ---------------------------------------------------------------------------------------


class _Inventory:
    """Checks a program's tools once, and fails the session with what is wrong, whatever its tests say."""

    def __init__(self, config: pytest.Config, target: str, written: str) -> None:
        from pytest_once.reference import inventory

        try:
            tools = inventory.tools(inventory.load(target, config.invocation_params.dir), target)
        except inventory.InventoryError as error:
            raise pytest.UsageError(f"{written}: {error}") from None
        findings = inventory.check(tools)
        self._lines = inventory.summary(tools, findings)
        self._wrong = bool(findings)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int | pytest.ExitCode) -> None:
        if self._wrong and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        elif exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("once-inventory")
        for line in self._lines:
            terminalreporter.line(line)
