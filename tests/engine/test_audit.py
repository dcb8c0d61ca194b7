"""Nothing escapes: what changes or reaches something outside the world is told with its place, and nothing else is."""

from __future__ import annotations

import asyncio
import ctypes.util
import importlib
import logging
import mmap
import multiprocessing
import os
import platform
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import urllib.request
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from pytest_once import Once, Report, Verdict, audit, explore
from pytest_once.allowance import Allowance, AllowanceError, request_names
from pytest_once.scenario import ScenarioError
from tests.engine.bodies import careful, proven, put, state, tasks, told

Act = Callable[[Once], object]

HERE = Path(__file__).name


def explored(act: Act, **marker: Any) -> Report:
    """A careful refund after whatever `act` does; redelivered never, to be quick."""

    def body(once: Once) -> None:
        act(once)
        careful(once).call("refund", {"order": "o1"}, key="o1")

    return explore(body, soft_faults=0, redeliver=0, **marker)


def escaped(report: Report, *texts: str) -> None:
    """Stopped as an escaped effect, at a line of this file."""
    assert (report.verdict, report.passed) == (Verdict.ESCAPED_EFFECT, False), told(report)
    assert HERE in report.problem
    for text in texts:
        assert text in report.problem


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory that is no part of the world, with a file in it."""
    (tmp_path / "there.txt").write_text("there")
    return tmp_path


# Files


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("log.txt was about to be opened", lambda at: (at / "log.txt").open("a").close()),
        ("there.txt was about to be opened", lambda at: (at / "there.txt").write_text("here")),
        ("there.txt was about to be opened", lambda at: os.close(os.open(at / "there.txt", os.O_RDWR))),
        ("there.txt was about to be removed", lambda at: (at / "there.txt").unlink()),
        ("there.txt was about to be renamed", lambda at: (at / "there.txt").rename(at / "gone.txt")),
        ("new was about to be created", lambda at: (at / "new").mkdir()),
        ("link was about to be created", lambda at: (at / "link").symlink_to("there.txt")),
        ("hard was about to be created", lambda at: os.link(at / "there.txt", at / "hard")),
        ("there.txt was about to be changed", lambda at: os.truncate(at / "there.txt", 0)),
        ("there.txt was about to be changed", lambda at: (at / "there.txt").chmod(0o600)),
        ("copy.txt was about to be opened", lambda at: shutil.copy(at / "there.txt", at / "copy.txt")),
        ("app.log was about to be opened", lambda at: logging.FileHandler(at / "app.log").close()),
    ],
)
def test_a_change_of_a_file_outside_is_stopped_before_it_happens(
    what: str, change: Callable[[Path], object], outside: Path
) -> None:
    """It would be made anew by every life, on what the last one left, which is no restart."""
    report = explored(lambda once: change(outside))
    escaped(report, what, str(outside), "once.track", 'allow=("file:')
    assert [path.name for path in outside.iterdir()] == ["there.txt"]
    assert (outside / "there.txt").read_text() == "there"


def test_a_file_moved_out_of_the_world_is_stopped(outside: Path) -> None:
    """The seam announces the move; what lies outside afterwards is seen by nobody."""

    def act(once: Once) -> None:
        (once.path / "out.txt").write_text("x")
        shutil.move(once.path / "out.txt", outside / "out.txt")

    escaped(explored(act), "out.txt was about to be replaced by a rename")


def test_a_write_through_a_link_in_the_world_is_stopped(outside: Path) -> None:
    """Where a path leads counts, not where it begins."""

    def act(once: Once) -> None:
        link = once.path / "link"
        if not link.is_symlink():
            link.symlink_to(outside)
        (link / "log.txt").write_text("x")

    escaped(explored(act), str(outside / "log.txt"))


def test_a_file_with_a_fixed_name_in_the_temporary_directory_is_stopped() -> None:
    """A lock that a crash leaves behind is found by the next process, and must not be by the next explored one."""
    lock = Path(tempfile.gettempdir()) / f"once-{uuid.uuid4()}.lock"
    escaped(explored(lambda once: lock.touch()), str(lock))
    assert not lock.exists()


def test_a_temporary_file_that_stays_is_told_with_the_line_that_made_it() -> None:
    """One for each of a thousand lives, and a name that a database may have kept."""
    made: list[str] = []

    def act(once: Once) -> None:
        descriptor, path = tempfile.mkstemp(prefix="once-left-")
        os.close(descriptor)
        made.append(path)

    escaped(explored(act), "once-left-", "is still there when the body has ended")
    for path in Path(tempfile.gettempdir()).glob("once-left-*"):
        path.unlink()


def passing_files(once: Once) -> None:
    """Every kind of temporary file, used as it is meant."""
    tempfile.TemporaryFile().close()
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("x")
        once.boundary("in between")
    with tempfile.TemporaryDirectory() as directory:
        inner = Path(directory) / "deep" / "down"
        inner.mkdir(parents=True)
        (inner / "a").write_text("a")
        (inner / "a").rename(inner / "b")
        once.boundary("in between")
    descriptor, path = tempfile.mkstemp()
    os.close(descriptor)
    Path(path).write_text("again")
    shutil.move(path, once.path / "kept")
    with tempfile.SpooledTemporaryFile(max_size=1) as spooled:
        spooled.write(b"long enough")


def harmless_files(once: Once, outside: Path) -> None:
    """What opens for writing, or removes, and changes nothing that lasts."""
    (outside / "there.txt").read_text()
    (outside / "not there").unlink(missing_ok=True)
    outside.mkdir(exist_ok=True)
    (outside).mkdir(parents=True, exist_ok=True)
    for device in ("/dev/null", "/dev/stdout", "/dev/fd/2"):
        with open(device, "a") as file:
            file.write("out\n")
    Path("/proc/self/comm").write_text("life")
    sys.stdout.write("printed\n")
    logging.getLogger("once").warning("logged to stderr")
    with open(os.dup(1), "w") as file:
        file.write("out\n")


def world_files(once: Once) -> None:
    """Changes of the world, by all the ways to write its paths."""
    here = os.getcwd()
    os.chdir(once.path)
    try:
        os.makedirs("a/b", exist_ok=True)
        Path("a/b/c.txt").write_text("x")
        shutil.copytree("a", "copy", dirs_exist_ok=True)
        shutil.rmtree("copy")
    finally:
        os.chdir(here)


def test_temporary_files_of_the_life_itself_are_no_effect() -> None:
    """Nobody else can find them: their names are random and they go with the life, or into the world."""
    assert proven(explored(passing_files))


def test_reading_devices_output_and_what_is_not_there_are_no_effect(outside: Path) -> None:
    """Near misses: an alarm here would make the audit something to switch off."""
    assert proven(explored(lambda once: harmless_files(once, outside)))


def test_changes_of_the_world_are_no_escape() -> None:
    """They are announced, or compared."""
    assert proven(explored(world_files))


def test_an_import_may_write_its_byte_code(outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every first import does, and nothing depends on it."""
    (outside / "freshly_imported.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(outside)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert proven(explored(lambda once: importlib.import_module("freshly_imported")))
    assert list(outside.glob("__pycache__/freshly_imported*"))


def test_what_an_imported_module_writes_itself_is_stopped(outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The near miss of byte code: a module that does something when it is imported."""
    (outside / "acting_module.py").write_text(f"open({str(outside / 'cache.txt')!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(outside)
    report = explored(lambda once: importlib.import_module("acting_module"))
    assert report.verdict is Verdict.ESCAPED_EFFECT
    assert "acting_module.py:1" in report.problem


# Databases


def test_a_connection_made_past_the_seam_is_stopped() -> None:
    """Its commits would be announced by nobody."""
    escaped(
        explored(lambda once: sqlite3.Connection(str(once.path / "agent.db")).close()), "agent.db", "sqlite3.connect"
    )


def test_connections_that_the_seam_watches_or_that_hold_nothing_are_no_escape() -> None:
    """Near misses: factories of both kinds, memory, and a database that is only read."""

    class Users(sqlite3.Connection):
        pass

    def act(once: Once) -> None:
        path = once.path / "agent.db"
        with closing(sqlite3.connect(path, factory=Users)) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS t(x)")
        made: Any = lambda *arguments, **named: sqlite3.Connection(*arguments, **named)  # noqa: E731
        sqlite3.connect(path, factory=made).close()
        sqlite3.Connection(":memory:").close()
        sqlite3.Connection(f"file:{path}?mode=ro", uri=True).close()

    assert proven(explored(act))


# Connections


class Listener:
    """Somebody else's server."""

    def __enter__(self) -> Listener:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.address = self.socket.getsockname()
        self.name = f"127.0.0.1:{self.address[1]}"
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.socket.close()

    def arrived(self) -> bool:
        self.socket.settimeout(0.05)
        try:
            self.socket.accept()[0].close()
        except TimeoutError:
            return False
        return True


@pytest.fixture
def other_process_server() -> Any:
    """A server that the parent opened: bound before the life, so no part of it."""
    with Listener() as listener:
        yield listener


@pytest.mark.parametrize(
    "talk",
    [
        lambda address: socket.create_connection(address).close(),
        lambda address: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", address),
        lambda address: asyncio.run(asyncio.open_connection(*address)),
        lambda address: ThreadPoolExecutor(1).submit(socket.create_connection, address).result(),
    ],
    ids=["socket", "datagram", "asyncio", "thread"],
)
def test_a_connection_that_no_seam_announces_is_stopped(
    talk: Callable[[Any], object], other_process_server: Listener
) -> None:
    """Whatever is said over it happens as often as there are crash points."""
    escaped(explored(lambda once: talk(other_process_server.address)), other_process_server.name, "once.tool")
    assert not other_process_server.arrived()


def test_a_socket_in_the_file_system_is_a_connection_too(outside: Path) -> None:
    """That is how one talks to a local daemon."""

    def act(once: Once) -> None:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(outside / "daemon.sock"))

    escaped(explored(act), "daemon.sock", "a connection to")


def own_server(once: Once) -> None:
    """A server in a thread of the life itself, and its client."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(204)
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/").close()
        thread.join()


async def own_async_server(once: Once) -> None:
    """The same in an event loop, whose own pipe is a pair of sockets."""
    served = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        served.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    await served.wait()
    writer.close()
    server.close()


@pytest.mark.parametrize(
    "serve", [own_server, lambda once: asyncio.run(own_async_server(once))], ids=["thread", "loop"]
)
def test_a_server_inside_the_life_may_be_talked_to(serve: Act) -> None:
    """It dies with the life: nothing of it is outside."""
    assert proven(explored(serve))


def test_pairs_of_sockets_names_and_listening_are_no_effect() -> None:
    """Near misses: nothing is said to anybody."""

    def act(once: Once) -> None:
        one, other = socket.socketpair()
        one.sendall(b"x")
        other.close()
        one.close()
        socket.getaddrinfo("127.0.0.1", 80)
        socket.create_server(("127.0.0.1", 0)).close()

    assert proven(explored(act))


def test_the_fake_provider_is_reached_by_every_client() -> None:
    """The sync and the async client of httpx, and one in a thread: announced, and to the loopback server."""

    async def ask(url: str) -> None:
        async with httpx.AsyncClient() as client:
            await client.post(f"{url}/refunds", json={"order": "o1"}, headers={"Idempotency-Key": "o1"})

    def body(once: Once) -> None:
        url = careful(once).url
        httpx.post(f"{url}/refunds", json={"order": "o1"}, headers={"Idempotency-Key": "o1"})
        asyncio.run(ask(url))

    assert proven(explore(body, soft_faults=0, redeliver=0))


def test_a_read_that_the_seam_announces_may_go_elsewhere(other_process_server: Listener) -> None:
    """A GET is a boundary of its own; only what it is about to change would be an effect."""

    def answer() -> None:
        while True:
            try:
                connection, _ = other_process_server.socket.accept()
            except OSError:
                return
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
            connection.close()

    threading.Thread(target=answer, daemon=True).start()
    assert proven(explored(lambda once: httpx.get(f"http://{other_process_server.name}/rates")))


def test_a_registered_address_may_be_talked_to_past_httpx(
    other_process_server: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database that a store tracks: its seam announces what is said there, not that one connects."""
    monkeypatch.setattr(audit, "_connectable", set())
    audit.allow_connection(*other_process_server.address)
    assert proven(explored(lambda once: socket.create_connection(other_process_server.address).close()))


# Processes


@pytest.mark.parametrize(
    ("what", "start"),
    [
        ("the program git is run", lambda: subprocess.run(["git", "status"], check=False)),
        ('allow=("process:echo",)', lambda: subprocess.run("echo hello", shell=True, check=False)),
        ('allow=("process:true",)', lambda: os.system("true now")),
        ("the program true is run", lambda: os.posix_spawn("/bin/true", ["true"], {})),
        ("/bin/true", lambda: os.execv("/bin/true", ["/bin/true"])),
        ("a copy of this process", lambda: os.fork() or os._exit(0)),
        ("a copy of this process", lambda: multiprocessing.get_context("fork").Process(target=print).start()),
        ("a fresh interpreter", lambda: multiprocessing.get_context("spawn").Process(target=print).start()),
    ],
    ids=["run", "shell", "system", "posix_spawn", "exec", "fork", "multiprocessing", "spawn"],
)
def test_a_process_is_stopped_before_it_starts(what: str, start: Callable[[], object]) -> None:
    """What another program does is seen by nobody, crash or no crash."""
    escaped(explored(lambda once: start()), what)


def test_questions_about_the_machine_are_no_effect() -> None:
    """Parts of the standard library run a program to find out where they are."""

    def act(once: Once) -> None:
        platform.uname().processor  # noqa: B018
        ctypes.util.find_library("c")
        uuid.getnode()

    assert proven(explored(act))


# Remedies


def test_a_tool_may_do_all_of_it(outside: Path, other_process_server: Listener) -> None:
    """The remedy that every message names: then there is a boundary around it."""

    def act(once: Once) -> None:
        def everything() -> None:
            (outside / "log.txt").write_text("x")
            subprocess.run(["true"], check=True)
            with ThreadPoolExecutor(1) as pool:
                pool.submit(socket.create_connection, other_process_server.address).result().close()

        once.tool(everything, counted=False)()

        async def later() -> None:
            (outside / "later.txt").write_text("x")

        asyncio.run(once.tool(later, counted=False)())

    assert proven(explored(act))


def test_what_is_allowed_is_done_and_named_in_the_report(outside: Path, other_process_server: Listener) -> None:
    """An exception that a reader of the report does not see would be a hole."""

    def act(once: Once) -> None:
        (outside / "app1.log").write_text("x")
        subprocess.run(["true"], check=True)
        socket.create_connection(other_process_server.address).close()
        with closing(sqlite3.connect(outside / "cache.db")) as connection, connection:
            connection.execute("CREATE TABLE IF NOT EXISTS t(x)")

    port = other_process_server.address[1]
    allow = [f"file:{outside}/app*.log", "process:true", f"socket:localhost:{port}", "file:*/cache.db", "process:never"]
    report = explored(act, allow=allow)
    assert proven(report), told(report)
    (said,) = [said for said in report.assumptions if said.startswith("allowed and not explored: ")]
    for target in (f"file:{outside}/app1.log", f"file:{outside}/cache.db", "process:true", f"socket:127.0.0.1:{port}"):
        assert target in said
    assert "never" not in said


def test_another_target_than_the_allowed_one_is_stopped(outside: Path) -> None:
    """One exception is not a switch."""
    escaped(explored(lambda once: (outside / "b.log").touch(), allow=f"file:{outside}/a*.log"), "b.log")


def test_an_allowed_request_is_sent_and_any_other_is_stopped() -> None:
    """The seam of httpx asks the same list."""
    arrived: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            arrived.append(self.path)
            self.send_response(204)
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        allow = f"http:127.0.0.1:{server.server_port}/metrics*"
        passed = explored(lambda once: httpx.post(f"{url}/metrics?n=1"), allow=allow)
        stopped = explored(lambda once: httpx.post(f"{url}/refunds"), allow=allow)
        server.shutdown()
    assert proven(passed), told(passed)
    assert f"allowed and not explored: http:127.0.0.1:{server.server_port}/metrics" in passed.assumptions
    escaped(stopped, "would reach a server that no fake stands for", 'allow=("http:')
    assert set(arrived) == {"/metrics?n=1"}


@pytest.mark.parametrize("text", ["", "file", "file:", "files:/tmp/x", "/tmp/x", "file:*", "socket: "])
def test_an_allowance_that_names_no_target_is_refused_with_examples(text: str) -> None:
    """A misspelt one would allow nothing; one for everything would switch the audit off."""
    with pytest.raises(AllowanceError, match="names no target"):
        Allowance.parse(text)
    with pytest.raises(ScenarioError, match=r"allow: .*process:git"):
        explore(lambda once: None, allow=text)


@pytest.mark.parametrize(
    ("allowance", "kind", "names"),
    [
        ("file:~/.cache/*", "file", [os.path.expanduser("~/.cache/fonts/list.json")]),
        ("file:build/*.log", "file", [os.path.abspath("build/a.log")]),
        ("http:https://api.example.com/v1/*", "http", request_names("https://api.example.com/v1/x?y=1")),
        ("http:api.example.com", "http", request_names("https://api.example.com/v1/x")),
        ("process:git rev-parse*", "process", ["git", "/usr/bin/git", "git rev-parse HEAD"]),
        ("socket:[[]::1]:80", "socket", ["[::1]:80"]),
        ("socket:/run/*.sock", "socket", ["/run/docker.sock"]),
        ("socket:localhost:5432", "socket", ["127.0.0.1:5432"]),
    ],
)
def test_an_allowance_matches_what_it_looks_like(allowance: str, kind: str, names: list[str]) -> None:
    """Paths from here and from home, addresses with and without scheme, whole commands, names of hosts."""
    assert Allowance.parse(allowance).matches(kind, names)
    assert not Allowance.parse(allowance).matches("other", names)
    assert not Allowance.parse(allowance).matches(kind, ["something else:1"])


# Changes that nobody announced


def mapped(once: Once) -> None:
    """Writes through a memory map, between two boundaries."""
    path = once.path / "state.bin"
    if not path.exists() or path.stat().st_size == 0:
        path.write_bytes(b"0" * 100)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as view:
        once.boundary("before")
        view[0:1] = b"1"
        once.boundary("after")


def test_a_change_between_two_boundaries_is_told_with_both() -> None:
    """A crash before it and one after it would leave different worlds, and neither was looked at."""
    report = explored(mapped)
    assert (report.verdict, report.passed) == (Verdict.ESCAPED_EFFECT, False), told(report)
    assert f"once.path/state.bin changed after before at {'tests/engine/' + HERE}" in report.problem
    assert "and before after at" in report.problem
    assert "without a boundary of its own" in report.problem


def test_a_change_before_the_first_boundary_is_told_too(outside: Path) -> None:
    """Bytes through a descriptor that Python did not open."""

    def act(once: Once) -> None:
        libc = ctypes.CDLL(None)
        descriptor = libc.open(os.fsencode(once.path / "raw.bin"), os.O_CREAT | os.O_WRONLY, 0o600)
        libc.close(descriptor)

    report = explored(act)
    assert report.verdict is Verdict.ESCAPED_EFFECT
    assert "once.path/raw.bin changed before the first boundary and before" in report.problem


def test_a_tool_may_change_files_as_it_likes() -> None:
    """The remedy."""

    def act(once: Once) -> None:
        path = once.path / "state.bin"
        if not path.exists() or path.stat().st_size == 0:
            path.write_bytes(b"0" * 100)

        def flip() -> None:
            with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as view:
                view[0:1] = b"1"

        once.tool(flip, counted=False)()

    assert proven(explored(act))


def database_work(once: Once) -> None:
    """Journals, logs, attached databases, a file moved with what belongs to it: all announced, some not by name."""
    with closing(sqlite3.connect(once.path / "one.db")) as one:
        one.execute("PRAGMA journal_mode=WAL")
        one.execute("CREATE TABLE IF NOT EXISTS t(x)")
        one.execute("ATTACH ? AS two", (str(once.path / "two.db"),))
        one.execute("CREATE TABLE IF NOT EXISTS two.u(x)")
        one.commit()
        one.execute("INSERT INTO t VALUES (1)")
        once.boundary("in a transaction")
        one.execute("INSERT INTO two.u VALUES (1)")
        one.commit()
        one.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        once.boundary("checkpointed")
        one.execute("DELETE FROM t")
        one.execute("DELETE FROM u")
        one.commit()
    once.boundary("closed")
    sqlite3.connect(once.path / "empty.db").execute("SELECT 1").close()


def file_work(once: Once) -> None:
    """Large files, renamed directories, links: announced call by call."""
    os.makedirs(once.path / "d" / "e", exist_ok=True)
    with (once.path / "d" / "e" / "large.txt").open("w") as file:
        for number in range(400):
            file.write(f"{number:064}\n")
    if not (once.path / "hard").exists():
        os.link(once.path / "d" / "e" / "large.txt", once.path / "hard")
    (once.path / "hard").write_text("through the other name")
    (once.path / "d").rename(once.path / f"moved-{uuid.uuid4()}")
    for left in once.path.glob("moved-*"):
        shutil.rmtree(left)


@pytest.mark.parametrize("work", [database_work, file_work])
def test_work_through_the_seams_is_announced_change_by_change(work: Act) -> None:
    """Near misses of the comparison: SQLite's own files, and everything `os` can do to a tree."""
    report = explored(work, limits={"max_states": 3})  # the rest of the search is not the point
    assert "max-states" in report.bound, told(report)


def test_the_engines_own_files_are_no_escape() -> None:
    """The ledger, the output, and what a body prints are none of its effects."""

    def body(once: Once) -> None:
        once.intend("o1")
        print("said")
        with tasks(once) as db:
            if state(db) is None:
                careful(once).call("refund", {"order": "o1"}, key="o1")
                put(db, "done")

    assert proven(explore(body, soft_faults=0))
