"""pytest's side: options, marker, fixture, and taking over a marked test. Everything else is imported when needed."""

from __future__ import annotations

import copy
import inspect
import json
import os
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import pytest

if TYPE_CHECKING:
    from pytest_once.exploration import Exploration
    from pytest_once.given import Outcome
    from pytest_once.once import Once
    from pytest_once.premises import Premises, ProviderServer
    from pytest_once.report import Report
    from pytest_once.scenario import Expectations, Limits
    from pytest_once.stores import Store

MARKER = "once_effect"
PROFILES = ("crash", "standard", "deep")

_server: pytest.StashKey[ProviderServer] = pytest.StashKey()
_premises: pytest.StashKey[Premises] = pytest.StashKey()
_refused = pytest.StashKey[str]()
_taken_over = pytest.StashKey[bool]()
_headline = pytest.StashKey[str]()

_HELP = {
    "chaos": "crash, restart and fault every test marked once_effect until no new state appears; "
    "profile: crash, standard (default) or deep",
    "replay": "repeat one schedule, by the id a report printed, and tell its story",
    "example": "with --once-replay, for a test that Hypothesis draws examples for: the example, as a report printed it",
    "max-states": "states to explore at most, per test (default 5000)",
    "deadline": "time to explore at most, per test: 90s, 5m (default 5m)",
    "timeout": "how long an incarnation may be silent before it is killed: 2s, 1m (default 10s)",
    "selfcheck": "explore control mutants, code that is known to be wrong, and fail unless each is convicted; runs no "
    "tests",
    "report": "write a report when the run ends: .html, .json, .xml (JUnit) or .txt by ending; may be repeated",
    "database": "directory that keeps failing schedules, which are tried first in the next run (default: in pytest's "
    "cache); off: keep none",
    "isolation": "fork (default), or none: run marked tests once in this process, for a debugger; explores "
    "nothing, so no marked test passes",
    "inventory": "fail, beside what the tests say, if a tool in MODULE:TOOLS declares no level of side effects or "
    "bypasses the gate",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("once", "exactly-once exploration")
    group.addoption("--once-chaos", nargs="?", const="standard", default=None, metavar="PROFILE", help=_HELP["chaos"])
    for name in ("replay", "example", "max-states", "deadline", "timeout", "isolation", "database", "inventory"):
        group.addoption(f"--once-{name}", default=None, metavar=name.upper(), help=_HELP[name])
    group.addoption("--once-report", action="append", default=[], metavar="PATH", help=_HELP["report"])
    group.addoption("--once-selfcheck", action="store_true", default=False, help=_HELP["selfcheck"])
    for name in ("chaos", "max-states", "deadline", "timeout", "isolation", "database", "inventory"):
        parser.addini(f"once_{name.replace('-', '_')}", _HELP[name], default=None)
    parser.addini("once_report", _HELP["report"], type="args", default=[])
    hidden = "payload fields that no report may show, by name or dotted path: password card.number"
    parser.addini("once_secret_fields", hidden, type="args", default=[])


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
        from pytest_once.session import Results, check_reports

        check_reports(config)
        config.pluginmanager.register(Results(config, MARKER), "once-results")
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
    value = config.getini(ini) if name not in ("replay", "example") else None
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
    if config.getoption("--once-report") and not _explores(config):
        raise pytest.UsageError("--once-report needs --once-chaos or --once-replay: without them nothing is explored")
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
    from pytest_once.secrets import Secrets

    def open_store(target: str) -> Store | None:
        store: Store | None = request.node.ihook.pytest_once_stores(target=target)
        return store

    stash = request.config.stash
    if _server not in stash:
        stash[_server] = ProviderServer()
    secrets = Secrets(request.config.getini("once_secret_fields"))
    with Premises(stash[_server], open_store, secrets) as premises:
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
            item.user_properties.append(("once", json.dumps({"test": item.nodeid, "unmarked": True})))
        return
    if not uses_once:
        pytest.fail(
            f"INCONCLUSIVE  {item.nodeid} is marked {MARKER} but has no `once` fixture, so no effect of it can be "
            "counted. Take `once` as an argument (in a class without arguments: from an autouse fixture), and point "
            "the client at once.provider(...).url, or wrap the acting function with once.tool(...)",
            pytrace=False,
        )
    _expectations(item)
    explores = _explores(item.config) and _option(item.config, "isolation") != "none"
    if _draws_examples(item):
        from pytest_once import given

        problem = given.prepare(item.obj, explored=explores, shared=() if explores else _shared_fixtures(item))
        if problem:
            pytest.fail(f"{item.nodeid}: {problem}", pytrace=False)
    if not explores:
        return
    if item.config.getoption("trace"):
        pytest.fail(
            "INCONCLUSIVE  --trace has nobody to trace: the test runs in incarnations, of which none has a terminal. "
            "Add --once-isolation=none to run it once, in this process",
            pytrace=False,
        )
    if not isinstance(item, pytest.Function):
        pytest.fail(f"{item.nodeid} is no test function; {MARKER} cannot explore it", pytrace=False)
    item.stash[_taken_over] = True
    item.setup = _setup_in_parent.__get__(item)  # type: ignore[method-assign]
    item.runtest = _explore.__get__(item)  # type: ignore[method-assign]
    item.repr_failure = _in_one_line.__get__(item)  # type: ignore[method-assign]
    item.teardown = _nothing_to_tear_down  # type: ignore[method-assign]


def _draws_examples(item: pytest.Item) -> TypeGuard[pytest.Function]:
    """Whether it is a `@given` test (the test case of a state machine has no inner test)."""
    test = getattr(item, "obj", None)
    return bool(getattr(test, "is_hypothesis_test", False)) and hasattr(test, "hypothesis")


def _shared_fixtures(item: pytest.Function) -> list[str]:
    """Arguments from function-scoped fixtures that a plain run does not renew for each example."""
    defined = {
        name: item.session._fixturemanager.getfixturedefs(name, item)
        for name in item._fixtureinfo.argnames
        if name not in ("once", "tmp_path")
    }
    return [name for name, found in defined.items() if found and found[-1].scope == "function"]


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

    from pytest_once.reporting import document, terminal
    from pytest_once.session import note

    _, limits = _expectations(item)
    command = f"pytest {shlex.quote(_as_argument(item))} "
    said: tuple[str, ...] = ()
    exploration: Exploration | None = None
    if _draws_examples(item):
        outcome = _explore_examples(item, limits)
        report, said = outcome.report, outcome.said
        if outcome.blob:
            command += f"--once-example={shlex.quote(outcome.blob)} "
    else:
        exploration = _exploration(item, limits, lambda: _live(item))
        report = _explored(item, exploration, remembers=True)
    prefix = f"{command}--once-replay="
    text = "\n".join((terminal.render(report, replay_prefix=prefix), *terminal.example(said)))
    file, line = os.path.relpath(item.path, item.config.invocation_params.dir), (item.location[1] or 0) + 1
    note(item, document.of_test(report, file=file, line=line, replay_prefix=prefix, text=text))
    if not report.passed:
        item.stash[_headline] = terminal.headline(report)
        if report.output.strip():
            item.add_report_section("call", "output of the last incarnation", report.output)
        if item.config.getoption("usepdb") and exploration is not None:
            from pytest_once.debugging import open_debugger

            violation = report.violations[0] if report.violations else None
            open_debugger(item, violation, text, exploration.rewind, lambda: _live_here(item))
        pytest.fail(text, pytrace=False)


@contextmanager
def _stopped_by_nobody(limits: Limits) -> Iterator[None]:
    """The test's code runs in children; a failure raised here comes from a plugin that limits the time of a test."""
    try:
        yield
    except pytest.fail.Exception as stop:
        reason = str(stop).rstrip(". ")
    else:
        return
    raise pytest.fail.Exception(
        f"INCONCLUSIVE  {reason}. That stopped the exploration, which runs the test many times; its incarnations are "
        "gone. Give this test more time (@pytest.mark.timeout), or let the exploration end before that and tell what "
        f"it has found: deadline= of the marker or --once-deadline, now {limits.deadline_s:g}s. An incarnation that "
        f"hangs is noticed when it was silent for --once-timeout, now {limits.life_timeout_s:g}s",
        pytrace=False,
    ) from None


def _database(config: pytest.Config) -> Path | None:
    """The directory that keeps failing schedules, or None."""
    value, written = _given(config, "database")
    if value == "off":
        return None
    if value is not None:
        ini = config.inipath if written.startswith("once_") else None
        return (ini.parent if ini is not None else config.invocation_params.dir) / value
    try:
        return config.cache.mkdir("once") if getattr(config, "cache", None) is not None else None
    except OSError:
        return None


def _in_one_line(item: pytest.Function, excinfo: pytest.ExceptionInfo[BaseException]) -> object:
    """The failure as pytest shows it, but in one line where it lists it: with CI=true it would show all there too."""
    shown = type(item).repr_failure(item, excinfo)
    crash = getattr(shown, "reprcrash", None)
    if crash is not None and _headline in item.stash:
        crash.message = item.stash[_headline]
    return shown


def _exploration(item: pytest.Function, limits: Limits, live: Callable[[], None]) -> Exploration:
    import unittest

    from pytest_once.exploration import Exploration
    from pytest_once.recording import FrontEnd

    return Exploration(
        name=item.nodeid,
        premises=item.stash[_premises],
        front=FrontEnd(
            act=lambda _: live(),
            skips=(pytest.skip.Exception, unittest.SkipTest),
            explain=lambda error: str(type(item).repr_failure(item, pytest.ExceptionInfo.from_exception(error))),
        ),
        expectations=_expectations(item)[0],
        limits=limits,
        tracked=(item._request.getfixturevalue("tmp_path"),),
        seams=[seam for seams in item.ihook.pytest_once_boundaries() for seam in seams],
    )


def _explored(item: pytest.Function, exploration: Exploration, *, remembers: bool = False) -> Report:
    """remembers: the failing schedules of the last run are tried first, and those of this one kept."""
    from pytest_once.database import Failures, terms
    from pytest_once.faults import Schedule
    from pytest_once.session import progress

    limits = exploration.limits
    replayed = _option(item.config, "replay")
    failures = Failures(_database(item.config), item.nodeid, terms(exploration.expectations, limits))
    with _stopped_by_nobody(limits), progress(item.config) as exploration.listener:
        if replayed is not None:
            report = exploration.replay(Schedule.parse(replayed))
        elif remembers:
            exploration.known = failures.fetch()
            report = exploration.run()
            failures.learn(report)
        else:
            report = exploration.run()
    if exploration.skipped is not None:
        raise pytest.skip.Exception(exploration.skipped, _use_item_location=True)
    return report


def _explore_examples(item: pytest.Function, limits: Limits) -> Outcome:
    """Each example that Hypothesis draws is explored on the world as it was before the first."""
    from dataclasses import replace

    from pytest_once import given

    beginning = given.Beginning(item.stash[_premises], item._request.getfixturevalue("tmp_path"))
    known = getattr(getattr(item, "callspec", None), "params", {})
    fixtures = {name: known.get(name, given.Fixture(name)) for name in item._fixtureinfo.argnames}

    def explore(drawn: Mapping[str, Any], limits: Limits) -> Report:
        beginning.restore()
        exploration = _exploration(item, limits, lambda: _live(item, drawn))
        exploration.front = replace(exploration.front, skips=(*exploration.front.skips, given.Rejected))
        try:
            return _explored(item, exploration)
        except pytest.skip.Exception as skip:
            if skip.msg == str(given.Rejected()):
                raise given.Rejected from None
            raise

    if _option(item.config, "replay") is None:
        return given.explore_each(item.obj, fixtures, explore, limits)
    return given.replay_example(item.obj, fixtures, explore, limits, _option(item.config, "example") or "")


def _as_argument(item: pytest.Item) -> str:
    """The test as one would name it on a command line in this directory (node ids begin at the root directory)."""
    _, separator, name = item.nodeid.partition("::")
    return f"{os.path.relpath(item.path, item.config.invocation_params.dir)}{separator}{name}"


def _live(item: pytest.Function, drawn: Mapping[str, Any] | None = None) -> None:
    """One incarnation, in a child: set up what a restarted process builds anew, run, tear that down.

    drawn: the values of one example, for a test that Hypothesis draws them for.
    """
    del item.setup, item.runtest, item.teardown, item.repr_failure
    finalizers = item.session._setupstate.stack[item][0]
    lasting = len(finalizers)
    errors: list[BaseException] = []
    try:
        item.setup()
        if drawn is not None:
            from pytest_once import given

            item.obj = given.one_example(item.obj, drawn)
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


def _live_here(item: pytest.Function) -> None:
    """One life in this process, after which nothing more will be explored."""
    shown = item.repr_failure
    try:
        _live(item)
    finally:
        item.repr_failure = shown  # type: ignore[method-assign]


def _collecting(errors: list[BaseException], step: Callable[[], object]) -> None:
    try:
        step()
    except BaseException as error:
        errors.append(error)


# -- a marked test that is run plainly -------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    if item.get_closest_marker(MARKER) is None or item.stash.get(_taken_over, False):
        return (yield)
    if _draws_examples(item):
        result = yield from _each_example_plainly(item)
    else:
        result = yield
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


def _each_example_plainly(item: pytest.Function) -> Generator[None, object, object]:
    from pytest_once import given
    from pytest_once.reporting import terminal

    beginning = given.Beginning(item.stash[_premises], getattr(item, "funcargs", {}).get("tmp_path"))
    with given.each_plainly(item.obj, beginning.restore, lambda: _count_plainly(item)):
        try:
            return (yield)
        except pytest.fail.Exception as failure:
            said = terminal.example(getattr(failure, "__notes__", ()))
            if failure.pytrace or not said:
                raise
            text = "\n".join((str(failure.msg), *said))
    pytest.fail(text, pytrace=False)


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
    if pyfuncitem.get_closest_marker(MARKER) is None:
        return None
    if _draws_examples(pyfuncitem) and not pyfuncitem.stash.get(_taken_over, False):
        from pytest_once import given

        given.run_by_asyncio(pyfuncitem.obj)
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    import asyncio

    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True


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
