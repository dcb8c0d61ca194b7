"""What incarnations leave behind: nothing. And what they may do while they live."""

from __future__ import annotations

import os
import queue
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from pytest_once import Once, Report, Verdict, explore, replay
from pytest_once.events import Event
from pytest_once.world import memory_backed_directory
from tests.engine.bodies import careful, proven, put, state, tasks, told

ORDER = {"order": "order_1"}


def crashed(body: Callable[[Once], Any], **marker: Any) -> Report:
    """Explore crashes alone."""
    return explore(body, soft_faults=0, **marker)


def children() -> set[int]:
    """Processes whose parent is this one, zombies included."""
    found: set[int] = set()
    for thread in os.listdir("/proc/self/task"):
        found |= set(map(int, Path(f"/proc/self/task/{thread}/children").read_text().split()))
    return found


def scratch_directories() -> set[Path]:
    places = {Path("/tmp"), memory_backed_directory() or Path("/tmp"), Path(os.environ.get("TMPDIR", "/tmp"))}
    return {found for place in places for found in place.glob(f"pytest-once-{os.getpid()}-*")}


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


@pytest.fixture(autouse=True)
def _leaves_nothing_behind() -> Iterator[None]:
    """No child, no scratch directory, no descriptor, whatever the test does."""
    before, directories, opened = children(), scratch_directories(), len(descriptors())
    yield
    assert children() == before
    assert scratch_directories() == directories
    assert len(descriptors()) <= opened + 1  # certificate files and the like are opened once


# Endings


def passes(once: Once) -> None:
    careful(once).call("refund", ORDER, key="order_1")


def over_http(once: Once) -> None:
    httpx.post(f"{careful(once).url}/refunds", json=ORDER, headers={"Idempotency-Key": "order_1"}).raise_for_status()


def duplicates(once: Once) -> None:
    careful(once).call("refund", ORDER)


def hangs(once: Once) -> None:
    careful(once).call("refund", ORDER, key="order_1")
    threading.Event().wait()


def dies(once: Once) -> None:
    careful(once).call("refund", ORDER, key="order_1")
    os._exit(3)


def raises(once: Once) -> None:
    careful(once).call("refund", ORDER, key="order_1")
    raise RuntimeError("broken")


def exits(once: Once) -> None:
    careful(once).call("refund", ORDER, key="order_1")
    sys.exit(2)


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        (passes, Verdict.EXACTLY_ONCE),
        (over_http, Verdict.EXACTLY_ONCE),
        (duplicates, Verdict.DUPLICATE),
        (hangs, Verdict.INCONCLUSIVE),
        (dies, Verdict.INCONCLUSIVE),
        (raises, Verdict.INCONCLUSIVE),
        (exits, Verdict.INCONCLUSIVE),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_nothing_is_left_behind_however_it_ends(body: Callable[[Once], None], verdict: Verdict) -> None:
    """Orphans and directories in memory would add up over a test session; the fixture looks for them."""
    timeout_s = 0.6 if body is hangs else 10.0
    assert crashed(body, limits={"life_timeout_s": timeout_s}).verdict is verdict


def test_nothing_is_left_behind_by_a_replay() -> None:
    """With kills, a misfit, and an id that cannot be read."""
    schedule = str(crashed(duplicates).violations[0].schedule)
    assert not replay(duplicates, schedule).passed
    assert not replay(duplicates, "x@abcdef").passed


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, RuntimeError])
def test_nothing_is_left_behind_when_a_listener_raises(interrupt: type[BaseException]) -> None:
    """Ctrl-C arrives anywhere; it is passed on, and what was begun is cleared away."""
    heard: list[Event] = []

    def listener(event: Event) -> None:
        heard.append(event)
        if len(heard) == 2:
            raise interrupt

    with pytest.raises(interrupt):
        explore(over_http, soft_faults=0, listener=listener)
    assert len(heard) == 2


def test_nothing_is_left_behind_when_interrupted_while_a_child_lives() -> None:
    """The usual moment for Ctrl-C: the parent waits for a child's next word."""

    def alarm(signum: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, 0.4)
    try:
        with pytest.raises(KeyboardInterrupt):
            crashed(hangs)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def alive(seconds: str) -> list[str]:
    """Processes that sleep for just so long."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if seconds.encode() in command:
            found.append(process.name)
    return found


@pytest.mark.parametrize(
    ("session", "ending"), [(False, "returns"), (False, "hangs"), (False, "dies"), (True, "returns"), (True, "hangs")]
)
def test_what_the_body_started_is_gone_too(session: bool, ending: str) -> None:
    """A worker that survives its incarnation would go on acting in the next one's world."""
    seconds = f"9{os.getpid()}.{int(session)}{len(ending)}"

    def start() -> None:
        subprocess.Popen(["sleep", seconds], start_new_session=session, stdin=subprocess.DEVNULL)

    def body(once: Once) -> None:
        once.tool(start, counted=False)()
        careful(once).call("refund", ORDER, key="order_1")
        if ending == "hangs":
            threading.Event().wait()
        if ending == "dies":
            os._exit(1)

    crashed(body, limits={"life_timeout_s": 0.6})
    deadline = time.monotonic() + 2
    while alive(seconds) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert alive(seconds) == []


def test_without_fork_the_message_says_where_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows, mainly: never an AttributeError, never a pass."""
    monkeypatch.delattr(os, "fork")
    report = crashed(passes)
    assert (report.verdict, report.passed, report.coverage) == (Verdict.INCONCLUSIVE, False, "none")
    assert "os.fork()" in report.problem
    assert "without --once-chaos" in report.problem


# What a life may do


def test_what_a_body_prints_is_in_the_report() -> None:
    """Not on the terminal, hundreds of times over; the last incarnation's output is kept for the reader."""

    def body(once: Once) -> None:
        print("refunding")
        print("a warning", file=sys.stderr)
        os.write(1, b"from below\n")
        once.tool(lambda: subprocess.run(["echo", "from a subprocess"], check=True), counted=False)()
        careful(once).call("refund", ORDER, key="order_1")

    output = crashed(body, allow="process:echo").output
    for text in ("refunding", "a warning", "from below", "from a subprocess"):
        assert output.count(text) == 1


def test_what_a_broken_body_printed_is_in_the_report_with_its_traceback() -> None:
    """The two things one needs to see why the fault-free run fails."""

    def body(once: Once) -> None:
        print("almost there")
        raises(once)

    report = crashed(body)
    assert report.output == "almost there\n"
    assert "raise RuntimeError" in report.traceback


def test_a_connection_opened_before_the_incarnation_is_refused_with_the_remedy(tmp_path: Path) -> None:
    """It shares locks and file offsets with the parent: nothing it does resembles a restarted process."""
    with closing(sqlite3.connect(tmp_path / "early.db")) as connection:

        def body(once: Once) -> None:
            connection.execute("CREATE TABLE IF NOT EXISTS t(x)")
            careful(once).call("refund", ORDER, key="order_1")

        report = crashed(body)
    assert (report.verdict, report.passed) == (Verdict.INCONCLUSIVE, False)
    assert "early.db" in report.problem
    assert "before the incarnation" in report.problem
    assert "function-scoped fixture" in report.problem
    assert "test_lives.py" in report.problem


def test_a_database_outside_the_tracked_world_is_refused_with_the_remedy(tmp_path: Path) -> None:
    """Its rows would leak from one explored life into another."""

    def body(once: Once) -> None:
        with closing(sqlite3.connect(tmp_path / "far.db")) as connection, connection:
            connection.execute("CREATE TABLE IF NOT EXISTS t(x)")
        careful(once).call("refund", ORDER, key="order_1")

    report = crashed(body)
    assert (report.verdict, report.passed) == (Verdict.ESCAPED_EFFECT, False)
    assert "far.db" in report.problem
    assert "once.track" in report.problem


def test_a_directory_that_the_body_tracks_is_part_of_the_world(tmp_path: Path) -> None:
    """Where code insists on a place of its own; both verdicts, with the state in that place."""

    def body(once: Once, first: bool) -> None:
        place = once.track(tmp_path / f"first-{first}")
        with closing(sqlite3.connect(place / "agent.db", isolation_level=None)) as db:
            db.execute("CREATE TABLE IF NOT EXISTS done(x)")
            if db.execute("SELECT count(*) FROM done").fetchone()[0]:
                return
            if first:
                db.execute("INSERT INTO done VALUES (1)")
            careful(once).call("refund", ORDER, key="order_1")
            if not first:
                db.execute("INSERT INTO done VALUES (1)")

    report = crashed(lambda once: body(once, first=True))
    assert report.verdict is Verdict.OMISSION
    assert report.violations[0].confirmed
    assert proven(crashed(lambda once: body(once, first=False)))


def test_a_directory_tracked_too_late_is_refused_with_the_remedy(tmp_path: Path) -> None:
    """What its first state was can no longer be known."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            if state(db) is not None:
                once.track(tmp_path / "late")
            put(db, "seen")
            careful(once).call("refund", ORDER, key="order_1")

    report = crashed(body)
    assert not report.passed
    assert "once.track" in told(report) + str(report.violations)


def test_a_body_that_reads_its_incarnation_cannot_be_exhausted() -> None:
    """Its behaviour depends on how often it was restarted, so no two states are the same."""

    def body(once: Once) -> None:
        print(once.incarnation)
        careful(once).call("refund", ORDER, key="order_1")

    report = crashed(body)
    assert (report.verdict, report.passed) == (Verdict.INCONCLUSIVE, False)
    assert "once.incarnation" in report.problem


def test_threads_that_are_waited_for_are_explored() -> None:
    """A pool of one is as deterministic as the code that fills it."""

    def body(once: Once, key: str | None) -> None:
        with ThreadPoolExecutor(1) as pool, tasks(once) as db:
            if state(db) == "done":
                return
            pool.submit(careful(once).call, "refund", ORDER, key=key).result()
            put(db, "done")

    assert proven(crashed(lambda once: body(once, "order_1")))
    assert crashed(lambda once: body(once, None)).verdict is Verdict.DUPLICATE


@pytest.mark.parametrize("daemon", [False, True])
def test_an_effect_left_to_a_thread_that_nobody_waits_for_never_passes(daemon: bool) -> None:
    """The body says "done" while its work has perhaps not begun; which comes first differs from run to run."""

    def body(once: Once) -> None:
        provider = careful(once)
        threading.Thread(
            target=lambda: provider.call("refund", ORDER, key="order_1"), daemon=daemon, name="sender"
        ).start()

    for _ in range(3):
        report = crashed(body)
        assert not report.passed
        assert "'sender' was still at work" in report.problem or "while the process under test" in report.problem


def test_a_worker_thread_that_waits_for_work_may_stay() -> None:
    """A pool, an event loop's helper, a consumer of a queue: idle when the body ends, and gone with the process."""

    def body(once: Once) -> None:
        provider = careful(once)
        jobs: queue.Queue[str] = queue.Queue()

        def consume() -> None:
            while True:
                provider.call("refund", ORDER, key=jobs.get())
                jobs.task_done()

        threading.Thread(target=consume, daemon=True).start()
        jobs.put("order_1")
        jobs.join()

    assert proven(crashed(body))


def test_replacing_a_file_around_a_named_boundary_is_explored() -> None:
    """Write beside, rename over: a crash at the named point finds the old file or the new one, never half of it."""

    def body(once: Once, rename: Callable[[Path, Path], object], careless: bool) -> None:
        receipt, draft = once.path / "receipt.txt", once.path / "receipt.tmp"
        if receipt.exists():
            assert receipt.read_text() == "complete"
            return
        if careless:
            receipt.write_text("complete")
        else:
            draft.write_text("complete")
            once.boundary("written")
            rename(draft, receipt)
        careful(once).call("refund", ORDER, key="order_1")

    def renamed(once: Once) -> None:
        body(once, lambda draft, receipt: draft.rename(receipt), careless=False)

    def replaced(once: Once) -> None:
        body(once, os.replace, careless=False)

    for careful_body in (renamed, replaced):
        report = crashed(careful_body)
        assert report.verdict is Verdict.OMISSION  # marked first
        assert any("written" in row.boundary.target for row in report.matrix if row.boundary is not None)
    torn = crashed(lambda once: body(once, os.replace, careless=True))
    assert {str(violation.verdict) for violation in torn.violations} == {"OMISSION", "STUCK"}  # empty for ever


def test_a_file_replaced_after_the_call_is_exactly_once() -> None:
    """The corrected twin."""

    def body(once: Once) -> None:
        receipt, draft = once.path / "receipt.txt", once.path / "receipt.tmp"
        if not receipt.exists():
            careful(once).call("refund", ORDER, key="order_1")
            draft.write_text("complete")
            once.boundary("written")
            os.replace(draft, receipt)

    assert proven(crashed(body))


def test_module_state_does_not_survive_a_restart() -> None:
    """A cache in memory makes the first life look careful; the restart begins without it."""
    sent: set[str] = set()

    def body(once: Once) -> None:
        if "order_1" not in sent:
            careful(once).call("refund", ORDER)
            sent.add("order_1")

    report = crashed(body)
    assert report.verdict is Verdict.DUPLICATE
    assert sent == set()


def test_coroutines_are_explored_like_functions() -> None:
    """Both verdicts for an async body with an async client."""

    async def body(once: Once, key: str) -> None:
        async with httpx.AsyncClient(base_url=careful(once).url) as client:
            response = await client.post("/refunds", json=ORDER, headers={"Idempotency-Key": key} if key else {})
            response.raise_for_status()

    async def keyed(once: Once) -> None:
        await body(once, "order_1")

    async def keyless(once: Once) -> None:
        await body(once, "")

    assert proven(crashed(keyed))
    assert crashed(keyless).verdict is Verdict.DUPLICATE


def test_a_caller_of_a_coroutine_is_answered_when_it_was_awaited() -> None:
    """A coroutine that was only made has done nothing that could be acknowledged."""

    async def body(once: Once) -> None:
        async def refund() -> None:
            careful(once).call("refund", ORDER, key="order_1")

        calling: Any = once.caller("refund", refund)
        await calling

    async def careless(once: Once) -> None:
        once.caller("refund", lambda: body(once))

    assert proven(crashed(body))
    report = crashed(careless)
    assert not report.passed
    assert "coroutine function" in report.problem


def test_a_write_ahead_log_survives_the_crash_it_was_written_for() -> None:
    """In WAL mode the newest rows are in another file; a picture without it would lose commits."""

    def body(once: Once, first: bool) -> None:
        with tasks(once) as db:
            db.execute("PRAGMA journal_mode=WAL")
            if state(db) == "done":
                return
            if first:
                put(db, "done")
            careful(once).call("refund", ORDER, key="order_1")
            if not first:
                put(db, "done")

    assert proven(crashed(lambda once: body(once, first=False)))
    assert crashed(lambda once: body(once, first=True)).verdict is Verdict.OMISSION


def test_a_transaction_that_was_not_committed_is_gone_after_the_crash() -> None:
    """Two rows in one transaction: a crash leaves both or neither."""

    def body(once: Once, atomic: bool) -> None:
        with tasks(once) as db:
            if state(db, "ticket") is None:
                if atomic:
                    db.execute("BEGIN IMMEDIATE")
                put(db, "issued", "ticket")
                put(db, "planned", "refund")
                if atomic:
                    db.execute("COMMIT")
            if state(db, "refund") == "planned":
                careful(once).call("refund", ORDER, key="order_1")
                put(db, "done", "refund")

    assert proven(crashed(lambda once: body(once, atomic=True)))
    assert crashed(lambda once: body(once, atomic=False)).verdict is Verdict.OMISSION


def test_two_explorations_in_one_process_do_not_know_each_other() -> None:
    """Ledgers, providers and endpoints belong to one exploration; a session has hundreds."""
    assert crashed(duplicates).verdict is Verdict.DUPLICATE
    assert proven(crashed(over_http))
    assert proven(crashed(over_http))
    assert crashed(duplicates).verdict is Verdict.DUPLICATE
