"""The worst moment, for any language: the effect is done, the caller dies, nobody has heard the answer."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import once_fakes.killing as killing
from once_fakes import CLIENT_KEY, Provider
from once_fakes.killing import CannotKill, kill_caller, owners_of
from once_fakes.server import LoopbackServer
from pytest_once.ledger import Ledger

linux = pytest.mark.skipif(sys.platform != "linux", reason="the caller is found by Linux's /proc")

_PYTHON = """
import sys, urllib.request
for number in range(int(sys.argv[2])):
    print("asks", flush=True)
    urllib.request.urlopen(urllib.request.Request(sys.argv[1], b"%d" % number)).read()
    print("was answered", flush=True)
"""

_NODE = """
(async () => {
  for (let number = 0; number < Number(process.argv[2]); number++) {
    console.log("asks");
    await (await fetch(process.argv[1], { method: "POST", body: String(number) })).text();
    console.log("was answered");
  }
})();
"""

CALLERS = [
    pytest.param([sys.executable, "-c", _PYTHON], id="python"),
    pytest.param(
        ["node", "-e", _NODE],
        id="node",
        marks=pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed"),
    ),
]


@pytest.fixture(scope="module")
def server() -> Iterator[LoopbackServer]:
    server = LoopbackServer()
    server.start()
    yield server
    server.close()


@pytest.fixture
def pay(server: LoopbackServer, ledger: Ledger) -> Iterator[Provider]:
    yield Provider("pay", CLIENT_KEY, ledger, lambda: server.address("token", ledger.path))
    server.forget("token")


def ask(
    caller: list[str], url: str, times: int, environment: dict[str, str] | None = None
) -> tuple[int, int, list[str]]:
    """The caller's process id, its return code, and what it printed."""
    with subprocess.Popen(
        [*caller, url, str(times)], stdout=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}
    ) as process:
        printed, _ = process.communicate(timeout=30)
    return process.pid, process.returncode, printed.splitlines()


@linux
@pytest.mark.parametrize("caller", CALLERS)
def test_the_caller_dies_after_the_effect_and_hears_nothing(
    server: LoopbackServer, pay: Provider, ledger: Ledger, caller: list[str]
) -> None:
    """S1's cut between effect and answer, which no seam inside the process is needed for."""
    url = f"{pay.url}/v1/refunds"
    server.kill_caller("token", effects=2)
    pid, code, printed = ask(caller, url, 5)
    assert (code, printed) == (-signal.SIGKILL, ["asks", "was answered", "asks"])
    assert (len(ledger.arrivals()), len(ledger.effects())) == (2, 2)
    assert server.killed("token") == [pid]
    # It happens once; the next life is spared.
    assert ask(caller, url, 1)[1:] == (0, ["asks", "was answered"])
    assert len(ledger.effects()) == 3


@linux
@pytest.mark.parametrize("caller", CALLERS)
def test_a_caller_behind_https_and_proxy_is_found_too(
    server: LoopbackServer, pay: Provider, ledger: Ledger, caller: list[str]
) -> None:
    """A tunnel must not hide who calls."""
    assert pay.url
    server.redirect("api.example.com", "token", "pay")
    server.kill_caller("token")
    pid, code, printed = ask(caller, "https://api.example.com/v1/refunds", 1, server.environment())
    assert (code, printed) == (-signal.SIGKILL, ["asks"])
    assert (server.killed("token"), len(ledger.effects())) == ([pid], 1)


@linux
def test_only_effects_count(server: LoopbackServer, pay: Provider, ledger: Ledger) -> None:
    """A replayed answer is no moment of danger, nor is a refusal."""
    headers = {"idempotency-key": "k"}
    httpx.post(f"{pay.url}/r", json=1, headers=headers)
    server.kill_caller("token")
    assert httpx.post(f"{pay.url}/r", json=1, headers=headers).status_code == 200
    assert httpx.post(f"{pay.url}/r", json=2, headers=headers).status_code == 422
    assert server.killed("token") == []


@linux
def test_the_servers_parent_is_spared_and_told(server: LoopbackServer, pay: Provider, ledger: Ledger) -> None:
    """Killing the test run would leave nobody to report. The effect stays, since it was done before."""
    url = f"{pay.url}/r"
    server.kill_caller("token")
    refusal = httpx.post(url, json=1)
    assert (refusal.status_code, refusal.json()["error"]["type"]) == (500, "caller_not_killed")
    assert f"the caller is process {os.getpid()}" in refusal.json()["error"]["message"]
    assert "was to be killed" in server.errors()
    assert (len(ledger.effects()), server.killed("token")) == (1, [])


def test_a_wrong_order_is_refused(server: LoopbackServer, pay: Provider) -> None:
    """A kill that can never happen would be taken for a test that passed."""
    assert pay.url
    with pytest.raises(ValueError, match="nothing is served under 'nobody'"):
        server.kill_caller("nobody")
    with pytest.raises(ValueError, match="counted from 1, not 0"):
        server.kill_caller("token", effects=0)


@linux
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=["ipv4", "ipv6-mapped"])
def test_the_owner_of_a_connection_is_found(family: socket.AddressFamily) -> None:
    """Java and others reach 127.0.0.1 by IPv6 sockets; and the server's own end is not the caller's."""
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket(family) as client:
        port = listening.getsockname()[1]
        try:
            client.connect(("127.0.0.1" if family == socket.AF_INET else "::ffff:127.0.0.1", port))
        except OSError:
            pytest.skip("no IPv6 here")
        taken, _ = listening.accept()
        with taken:
            caller = taken.getpeername()
            assert owners_of(caller, ("127.0.0.1", port)) == [os.getpid()]
            with pytest.raises(CannotKill, match="which started this server or is the server"):
                kill_caller(caller, ("127.0.0.1", port))
            assert owners_of((caller[0], 1), ("127.0.0.1", port)) == []
            with pytest.raises(CannotKill, match="no process of this user"):
                kill_caller((caller[0], 1), ("127.0.0.1", port))


@linux
def test_a_forked_caller_dies_and_its_parent_lives() -> None:
    """The engine's lives are forked children, which may have inherited the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = listening.getsockname()
        with socket.create_connection(address):
            taken, caller = listening.accept()
            child = os.fork()
            if child == 0:
                signal.pause()
            with taken:
                assert kill_caller(caller, address) == [child]
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_systems_without_proc_are_told_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On macOS the kill cannot be done, and must not seem to have been."""
    monkeypatch.setattr(killing, "_PROC", tmp_path)
    with pytest.raises(CannotKill, match="needs Linux's /proc"):
        kill_caller(("127.0.0.1", 1), ("127.0.0.1", 2))
