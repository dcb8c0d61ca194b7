"""pytest's side: options, marker, fixture, and taking over a marked test. Everything else is imported when needed."""

from __future__ import annotations

import copy
import difflib
import inspect
import re
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_once.once import Once
    from pytest_once.report import Report
    from pytest_once.scenario import Expectations, Limits

MARKER = "once_effect"
PROFILES = ("crash", "standard", "deep")
PROPERTY = "once"
"""Name under which a test's result travels in its report's user_properties, across xdist too."""

_server = pytest.StashKey["ProviderServer"]()
_premises = pytest.StashKey["Premises"]()
_unmarked = pytest.StashKey[list[str]]()
_taken_over = pytest.StashKey[bool]()

_HELP = {
    "chaos": "crash, restart and fault every test marked once_effect until no new state appears; "
    "profile: crash, standard (default) or deep",
    "replay": "repeat one schedule, by the id a report printed, and tell its story",
    "max-states": "states to explore at most, per test (default 5000)",
    "deadline": "time to explore at most, per test: 90s, 5m (default 5m)",
    "timeout": "how long an incarnation may be silent before it is killed: 2s, 1m (default 10s)",
    "isolation": "fork (default), or none: run marked tests once in this process, for a debugger; explores nothing",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("once", "exactly-once exploration")
    group.addoption("--once-chaos", nargs="?", const="standard", default=None, metavar="PROFILE", help=_HELP["chaos"])
    for name in ("replay", "max-states", "deadline", "timeout", "isolation"):
        group.addoption(f"--once-{name}", default=None, metavar=name.upper(), help=_HELP[name])
    for name in ("chaos", "max-states", "deadline", "timeout", "isolation"):
        parser.addini(f"once_{name.replace('-', '_')}", _HELP[name], default=None)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None, None, None]:
    # An optional value would swallow the path in `pytest --once-chaos tests`.
    if "--once-chaos" in args:
        at = args.index("--once-chaos")
        named = args[at + 1 : at + 2]
        if named and named[0] in PROFILES:
            args[at : at + 2] = [f"--once-chaos={named[0]}"]
        else:
            args[at] = "--once-chaos=standard"
        early_config.known_args_namespace = parser.parse_known_args(args, namespace=copy.copy(early_config.option))
    yield


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARKER}(key=None, *, keys=None, faults=None, soft_faults=None, redeliver=1, restart_after=('0s',), "
        "blocked=(), definite_failure=(), ignore=(), workers=1, max_states=None, deadline=None): the test performs a "
        "side effect that must happen exactly once; explored with --once-chaos",
    )
    _check_options(config)


def pytest_unconfigure(config: pytest.Config) -> None:
    if _server in config.stash:
        config.stash[_server].close()


def _option(config: pytest.Config, name: str) -> str | None:
    value = config.getoption(f"--once-{name}", default=None)
    if value is None and name != "replay":
        value = config.getini(f"once_{name.replace('-', '_')}") or None
    return None if value is None else str(value)


def _check_options(config: pytest.Config) -> None:
    profile = _option(config, "chaos")
    if profile is not None and profile not in PROFILES:
        raise pytest.UsageError(f"--once-chaos={profile}: valid profiles are {', '.join(PROFILES)}")
    isolation = _option(config, "isolation")
    if isolation not in (None, "fork", "none"):
        raise pytest.UsageError(f"--once-isolation={isolation}: valid values are fork, none")
    states = _option(config, "max-states")
    if states is not None and not (states.isdecimal() and int(states) > 0):
        raise pytest.UsageError(f"--once-max-states={states}: give a whole number greater than 0")
    for name in ("deadline", "timeout"):
        if (text := _option(config, name)) is not None and not _DURATION.fullmatch(text):
            raise pytest.UsageError(f"--once-{name}={text}: give a duration such as 90s, 5m or a number of seconds")
    if (replayed := _option(config, "replay")) is not None:
        from pytest_once.faults import Schedule, ScheduleError

        try:
            Schedule.parse(replayed)
        except ScheduleError as error:
            raise pytest.UsageError(f"--once-replay: {error}") from None


_DURATION = re.compile(r"(?!0+(\.0+)?(ms|s|m|h)?$)\d+(\.\d+)?(ms|s|m|h)?")


def _explores(config: pytest.Config) -> bool:
    return _option(config, "chaos") is not None or _option(config, "replay") is not None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    marked = []
    for item in items:
        for marker in item.own_markers:
            if marker.name == MARKER:
                continue
            if "once" in marker.name and difflib.SequenceMatcher(None, marker.name, MARKER).ratio() > 0.75:
                raise pytest.UsageError(
                    f"{item.nodeid} is marked {marker.name!r}, which nothing knows; did you mean {MARKER!r}? The test "
                    "would run unexplored"
                )
        if item.get_closest_marker(MARKER) is not None:
            marked.append(item)
        elif "once" in getattr(item, "fixturenames", ()):
            config.stash.setdefault(_unmarked, []).append(item.nodeid)
    if _option(config, "replay") is not None and len(marked) != 1:
        raise pytest.UsageError(
            f"--once-replay repeats one schedule of one test, but {len(marked)} marked tests were selected; copy the "
            "whole command from the report, with the test's name"
        )


@pytest.fixture
def once(request: pytest.FixtureRequest) -> Iterator[Once]:
    """What a once_effect test says to the explorer, and the world it may use."""
    from pytest_once import boundaries
    from pytest_once.premises import Premises, ProviderServer

    stash = request.config.stash
    if _server not in stash:
        stash[_server] = ProviderServer()
    with Premises(stash[_server]) as premises:
        request.node.stash[_premises] = premises
        yield premises.once
        boundaries.forget_endpoints()


# -- a marked test --------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    marker = item.get_closest_marker(MARKER)
    if marker is None:
        return
    _expectations(item)
    if not _explores(item.config) or _option(item.config, "isolation") == "none":
        return
    if not isinstance(item, pytest.Function):
        pytest.fail(f"{item.nodeid} is no test function; {MARKER} cannot explore it", pytrace=False)
    item.stash[_taken_over] = True
    item.setup = _setup_in_parent.__get__(item)  # type: ignore[method-assign]
    item.runtest = _explore.__get__(item)  # type: ignore[method-assign]


def _expectations(item: pytest.Item) -> tuple[Expectations, Limits]:
    from pytest_once.scenario import PROFILES as SOFT_FAULTS
    from pytest_once.scenario import Limits, ScenarioError, from_marker, seconds

    marker = item.get_closest_marker(MARKER)
    assert marker is not None
    profile = _option(item.config, "chaos") or "standard"
    given: dict[str, Any] = {}
    if (states := _option(item.config, "max-states")) is not None:
        given["max_states"] = int(states)
    for option, field in (("deadline", "deadline_s"), ("timeout", "life_timeout_s")):
        if (text := _option(item.config, option)) is not None:
            given[field] = seconds(text if text[-1].isalpha() else f"{text}s")
    try:
        return from_marker(
            marker.args, marker.kwargs, Limits(profile=profile, soft_faults=SOFT_FAULTS[profile], **given)
        )
    except ScenarioError as error:
        pytest.fail(f"@pytest.mark.{MARKER}: {error}", pytrace=False)


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
    from pytest_once.exploration import Exploration
    from pytest_once.faults import Schedule
    from pytest_once.recording import FrontEnd
    from pytest_once.reporting import terminal

    expectations, limits = _expectations(item)
    premises = item.stash[_premises]
    finalizers = item.session._setupstate.stack[item][0]
    lasting = len(finalizers)

    def act(once: Once) -> None:
        del item.setup, item.runtest
        try:
            item.setup()
            item.runtest()
        finally:
            while len(finalizers) > lasting:
                finalizers.pop()()

    exploration = Exploration(
        name=item.nodeid,
        premises=premises,
        front=FrontEnd(
            act=act,
            skips=(pytest.skip.Exception,),
            explain=lambda error: str(item.repr_failure(pytest.ExceptionInfo.from_exception(error))),
        ),
        expectations=expectations,
        limits=limits,
        tracked=(item._request.getfixturevalue("tmp_path"),),
    )
    replayed = _option(item.config, "replay")
    report = exploration.run() if replayed is None else exploration.replay(Schedule.parse(replayed))
    if exploration.skipped is not None:
        pytest.skip(exploration.skipped)
    _note(item, report)
    if report.passed:
        if report.coverage == "replay":
            item.add_report_section("call", "once-replay", terminal.render(report))
        return
    if report.output.strip():
        item.add_report_section("call", "output of the last incarnation", report.output)
    command = _replay_prefix(item)
    pytest.fail(terminal.render(report, replay_prefix=command), pytrace=False)


def _replay_prefix(item: pytest.Item) -> str:
    import shlex

    chaos = _option(item.config, "chaos")
    profile = f" --once-chaos={chaos}" if chaos not in (None, "standard") else ""
    return f"pytest {shlex.quote(item.nodeid)}{profile} --once-replay="


def _note(item: pytest.Item, report: Report) -> None:
    from pytest_once.reporting import terminal

    item.user_properties.append(
        (
            PROPERTY,
            {
                "test": report.name,
                "verdict": str(report.verdict),
                "coverage": report.coverage,
                "passed": report.passed,
                "line": terminal.one_line(report) if not report.problem else report.problem,
                "story": terminal.render(report) if report.coverage == "replay" else "",
            },
        )
    )


# -- a marked test that is run plainly -------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    result = yield
    if item.get_closest_marker(MARKER) is not None and not item.stash.get(_taken_over, False):
        _count_plainly(item)
        if _explores(item.config):
            pytest.fail(
                "INCONCLUSIVE  with --once-isolation=none the test ran once, in this process; nothing was explored. Use "
                "--once-isolation=fork to explore",
                pytrace=False,
            )
    return result


def _count_plainly(item: pytest.Item) -> None:
    from pytest_once.plain import count

    expectations, _ = _expectations(item)
    tmp_path = getattr(item, "funcargs", {}).get("tmp_path")
    problem = count(item.stash.get(_premises, None), tmp_path, expectations)
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


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when != "call":
        return
    for name, value in report.user_properties:
        if name == PROPERTY and isinstance(value, dict):
            _seen.append(value)


_seen: list[dict[str, Any]] = []


def pytest_sessionstart(session: pytest.Session) -> None:
    _seen.clear()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if not _explores(config):
        return
    _write_summary(terminalreporter, _seen, config.stash.get(_unmarked, []))


def _write_summary(terminalreporter: Any, results: Sequence[dict[str, Any]], unmarked: Sequence[str]) -> None:
    import textwrap

    terminalreporter.section("once-chaos")
    for result in results:
        if result["story"] and result["passed"]:
            terminalreporter.line(f"{result['test']}\n{result['story']}")
        elif result["passed"]:
            for line in textwrap.wrap(f"{result['test']}  {result['line']}", 80, subsequent_indent="    "):
                terminalreporter.line(line)
    if not results:
        terminalreporter.line(f"no test marked {MARKER} was explored")
    for nodeid in unmarked:
        terminalreporter.line(f"not explored: {nodeid} uses `once` but is not marked @pytest.mark.{MARKER}")
    exhausted = sum(result["passed"] and result["coverage"] == "exhausted" for result in results)
    failed = sum(not result["passed"] for result in results)
    terminalreporter.line(f"{exhausted} exhausted, {failed} not")
