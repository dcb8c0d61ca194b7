"""The loopback server is for every client there is, so it is tested over real sockets."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import once_fakes.server as server_module
from once_fakes import CLIENT_KEY, CLIENT_KEY_24H, NONE, Contract, Provider
from once_fakes.server import LoopbackServer
from pytest_once.boundaries import forget_endpoints
from pytest_once.ledger import Ledger, LedgerSnapshot


@pytest.fixture(scope="module")
def server() -> Iterator[LoopbackServer]:
    server = LoopbackServer()
    server.start()
    yield server
    server.close()


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "ledger.db")


@pytest.fixture
def pay(server: LoopbackServer, ledger: Ledger) -> Iterator[Provider]:
    yield Provider("pay", CLIENT_KEY, ledger, lambda: server.address("token", ledger.path))
    server.forget("token")
    forget_endpoints()


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def wait_until_silent(port: int) -> bool:
    deadline = time.monotonic() + 10
    while listens(port) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not listens(port)


def test_a_request_is_answered_by_the_contract(pay: Provider, ledger: Ledger) -> None:
    """Over the wire the provider must behave exactly as in process."""
    headers = {"Idempotency-Key": "k"}
    first = httpx.post(f"{pay.url}/v1/refunds?dry=1", json={"amount": 5}, headers=headers)
    second = httpx.post(f"{pay.url}/v1/refunds?dry=1", json={"amount": 5}, headers=headers)
    other = httpx.post(f"{pay.url}/v1/refunds?dry=1", json={"amount": 6}, headers=headers)

    assert first.json()["operation"] == "POST /v1/refunds"
    assert first.json()["payload"] == {"amount": 5, "?": {"dry": "1"}}
    assert second.content == first.content
    assert (second.headers["idempotent-replayed"], second.headers["once-arrival"]) == ("true", "2")
    assert (other.status_code, other.json()["error"]["type"]) == (422, "idempotency_mismatch")
    assert len(ledger.effects()) == 1


def test_other_bodies_and_refusals_cross_the_wire(pay: Provider, ledger: Ledger) -> None:
    """Clients differ in what they send; each error is a document they can read."""
    assert httpx.post(pay.url, data={"a": ["1", "2"]}).json()["payload"] == {"a": ["1", "2"]}
    assert httpx.post(pay.url, content=b"\x00").json()["payload"] == {"bytes": "00"}
    malformed = httpx.post(pay.url, content=b"{", headers={"content-type": "application/json"})
    assert (malformed.status_code, malformed.json()["error"]["type"]) == (400, "malformed_body")
    assert httpx.post(pay.url, content=b"x" * 3_000_000).status_code == 413
    get = httpx.get(pay.url)
    assert (get.status_code, get.headers["allow"]) == (405, "POST, PUT, PATCH, DELETE")
    assert httpx.head(pay.url).content == b""
    assert len(ledger.arrivals()) == 2


def test_one_connection_carries_many_requests(pay: Provider, ledger: Ledger) -> None:
    """A connection closed between two requests would be a fault that nobody ordered."""
    ports = set()
    with httpx.Client() as client:
        for number in range(200):
            response = client.post(f"{pay.url}/r", json=number)
            ports.add(response.extensions["network_stream"].get_extra_info("client_addr"))
            assert response.json()["id"] == f"pay_{number + 1}"
    assert len(ports) == 1


def test_fifty_requests_at_once_with_one_key_have_one_effect(pay: Provider, ledger: Ledger) -> None:
    """Concurrency is where fakes that check before they write give themselves away."""

    async def all_at_once(url: str) -> list[httpx.Response]:
        async with httpx.AsyncClient(timeout=30) as client:
            posts = (client.post(url, json=1, headers={"idempotency-key": "k"}) for _ in range(50))
            return await asyncio.gather(*posts)

    replies = asyncio.run(all_at_once(f"{pay.url}/r"))
    assert {reply.status_code for reply in replies} == {200}
    assert len({reply.content for reply in replies}) == 1
    assert len(ledger.effects()) == 1
    assert len(ledger.arrivals()) == 50


def test_half_a_request_never_arrives(pay: Provider, ledger: Ledger) -> None:
    """A client killed while it sends must not cause an effect with half its payload."""
    url = httpx.URL(pay.url)
    with socket.create_connection((url.host, url.port or 0)) as client:
        head = f"POST {url.path}/r HTTP/1.1\r\nhost: x\r\ncontent-type: text/plain\r\ncontent-length: 9"
        client.sendall(f"{head}\r\n\r\nhalf".encode())
    assert httpx.post(f"{pay.url}/r", json=1).json()["id"] == "pay_1"
    assert len(ledger.arrivals()) == 1


def test_a_restored_ledger_is_seen_at_once(pay: Provider, ledger: Ledger) -> None:
    """The world is restored beneath the running server, thousands of times."""
    url = pay.url
    picture = ledger.path.read_bytes()
    assert httpx.post(url, json=1).json()["id"] == "pay_1"
    ledger.path.write_bytes(picture)
    assert httpx.post(url, json=1).json()["id"] == "pay_1"


def test_another_file_in_the_ledgers_place_is_seen_at_once(pay: Provider, ledger: Ledger) -> None:
    """So the controller restores it, to pictures that may differ in nothing but their contents."""
    url = pay.url
    pictures = []
    for amount in (1, 2):
        httpx.post(url, json=amount, headers={"idempotency-key": f"k{amount}"})
        pictures.append(ledger.path.read_bytes())
        replace(ledger.path, pictures[0])
    for at in (0, 1, 0):
        replace(ledger.path, pictures[at])
        outcomes = [
            httpx.post(url, json=amount, headers={"idempotency-key": f"k{amount}"}).headers.get("idempotent-replayed")
            for amount in (1, 2)
        ]
        assert outcomes == ["true", "true" if at else None]


def test_the_ledger_is_whole_in_its_one_file_after_each_answer(pay: Provider, ledger: Ledger) -> None:
    """It is copied as bytes while the process under test is stopped, so nothing may wait in a journal or in memory."""
    url = pay.url
    for count in (1, 2, 3):
        httpx.post(url, json=1)
        assert [path.name for path in ledger.path.parent.iterdir()] == ["ledger.db"]
        assert len(LedgerSnapshot(ledger.path.read_bytes()).effects()) == count


def test_a_ledger_that_others_write_meanwhile_is_read_anew(pay: Provider, ledger: Ledger) -> None:
    """Plain calls of the process under test write the same file."""
    url = pay.url
    assert httpx.post(url, json=1).json()["id"] == "pay_1"
    assert pay.call("r", 1).body["id"] == "pay_2"
    assert httpx.post(url, json=1).json()["id"] == "pay_3"


def replace(path: Path, data: bytes) -> None:
    new = path.with_name("new")
    new.write_bytes(data)
    os.replace(new, path)


def test_unknown_addresses_are_a_404(server: LoopbackServer, pay: Provider, ledger: Ledger) -> None:
    """A wrong address must not reach another test's provider, and forgetting one must hold."""
    base = pay.url.removesuffix("/pay")
    for address in (f"{base}/mail/r", base, f"{base}x/pay", base.rsplit("/", 1)[0]):
        response = httpx.post(address, json=1)
        assert (response.status_code, response.json()["error"]["type"]) == (404, "no_such_provider")
    server.forget("token")
    assert httpx.post(pay.url, json=1).status_code == 404
    assert ledger.arrivals() == []


def test_a_dialect_beside_the_tests_is_found(
    server: LoopbackServer, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the process of the tests knows where they are, and the server is another one."""
    (tmp_path / "dialect_of_a_test.py").write_text(
        "from once_fakes.dialect import Dialect\n"
        "class Ours(Dialect):\n"
        "    def status(self, contract, shown):\n"
        "        return 201\n"
        "OURS = Ours()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    contract = Contract(name="ours", dialect="dialect_of_a_test:OURS")
    provider = Provider("ours", contract, ledger, lambda: server.address("beside", ledger.path))
    assert httpx.post(provider.url, json=1).status_code == 201


def test_an_internal_error_is_a_500_and_goes_to_standard_error(tmp_path: Path) -> None:
    """The client gets a document; whoever looks for the reason finds the traceback with the server."""
    server = LoopbackServer()
    server.start()
    try:
        response = httpx.post(f"{server.address('t', tmp_path / 'gone.db')}/pay/r", json=1)
        assert (response.status_code, response.json()["error"]["type"]) == (500, "internal_error")
        assert "FileNotFoundError" in server.errors()
        assert "Traceback" not in response.text
    finally:
        server.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x16\x03\x01\x00\x00" + b"x" * 100,
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST / HTTP/9.9\r\nhost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\nhuge: " + b"x" * 200_000 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: \xff\xfe\r\ncontent-length: 0\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_bad_input_is_refused_without_a_traceback(
    server: LoopbackServer, pay: Provider, ledger: Ledger, sent: bytes
) -> None:
    """Whatever knocks: an error status or a closed connection, and the next client is served."""
    url = httpx.URL(pay.url)
    with socket.create_connection((url.host, url.port or 0), timeout=5) as client:
        try:
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: client.recv(65536), b""))
        except OSError:  # it was closed on us while we still sent
            answer = b""
    assert re.match(rb"$|HTTP/1\.1 4\d\d ", answer), answer
    assert b"Traceback" not in answer
    assert "Traceback" not in server.errors()
    assert ledger.arrivals() == []
    assert httpx.post(f"{pay.url}/r", json=1).status_code == 200


def test_a_slow_client_delays_nobody(pay: Provider, ledger: Ledger) -> None:
    """A request that comes byte by byte is answered in the end, and others meanwhile."""
    url = httpx.URL(pay.url)
    request = f"POST {url.path}/slow HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nab".encode()
    with (
        socket.create_connection((url.host, url.port or 0), timeout=5) as silent,
        socket.create_connection((url.host, url.port or 0), timeout=5) as slow,
        socket.create_connection((url.host, url.port or 0), timeout=5) as tunnel,
    ):
        silent.setblocking(False)
        tunnel.sendall(b"CONN")
        for at in range(len(request)):
            slow.sendall(request[at : at + 1])
            if at % 20 == 0:
                assert httpx.post(f"{pay.url}/quick", json=1).status_code == 200
        assert slow.recv(4096).startswith(b"HTTP/1.1 200 ")
        with pytest.raises(BlockingIOError):
            silent.recv(1)
    assert [arrival.operation for arrival in ledger.arrivals()][-1] == "POST /slow"


def test_it_listens_on_loopback_only(server: LoopbackServer, pay: Provider) -> None:
    """A fake that the network can reach is a hole in the machine."""
    port = httpx.URL(pay.url).port
    assert port is not None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: it asks which address we would have
        except OSError:
            pytest.skip("this machine has no other address")
        other = probe.getsockname()[0]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((other, port), timeout=5)


def test_a_wrong_token_is_refused(server: LoopbackServer, ledger: Ledger) -> None:
    """The token is a path segment."""
    with pytest.raises(ValueError, match="'a/b' is not"):
        server.address("a/b", ledger.path)


def test_closing_ends_the_process_and_may_be_repeated(ledger: Ledger) -> None:
    """A server left over would hold files of a finished session."""
    server = LoopbackServer()
    server.start()
    server.start()
    base = httpx.URL(server.address("t", ledger.path))
    with httpx.Client() as client:
        client.post(base)  # an idle connection must not hold it back
        began = time.monotonic()
        server.close()
        assert time.monotonic() - began < 2
    server.close()
    assert not listens(base.port or 0)
    with pytest.raises(RuntimeError, match=r"call start\(\) first"):
        server.address("t", ledger.path)


def test_closing_kills_a_server_that_does_not_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped or hung process must not hang the session's end."""
    monkeypatch.setattr(server_module, "_EXIT_TIMEOUT_S", 0.2)
    server = LoopbackServer()
    server.start()
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    server.close()
    assert server.pid is None


def test_a_forked_child_does_not_close_the_parents_server(server: LoopbackServer, pay: Provider) -> None:
    """Fixtures are torn down in children too; the server is the parent's."""
    pid = os.fork()
    if pid == 0:
        server.close()
        os._exit(0)
    os.waitpid(pid, 0)
    assert httpx.post(pay.url, json=1).status_code == 200


def test_a_server_that_died_is_reported(ledger: Ledger) -> None:
    """'Broken pipe' would not tell anybody what happened."""
    server = LoopbackServer()
    server.start()
    try:
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        with pytest.raises(RuntimeError, match="the loopback server ended"):
            server.address("t", ledger.path)
    finally:
        server.close()


def test_a_failed_start_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The reason is in the child's standard error and must not be lost."""
    (tmp_path / "uvicorn.py").write_text("raise SystemExit('uvicorn is broken today')")
    monkeypatch.setattr(server_module, "_environment", lambda: _with_first_on_path(tmp_path))
    server = LoopbackServer()
    with pytest.raises(RuntimeError, match="uvicorn is broken today"):
        server.start()
    assert server.pid is None


def _with_first_on_path(place: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(place), *sys.path])}


def test_the_server_is_found_through_the_parents_path_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest's `pythonpath` setting reaches sys.path, but not a subprocess."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    server = LoopbackServer()
    server.start()
    server.close()


_PARENT = """
import sys, time
from once_fakes.server import LoopbackServer
server = LoopbackServer()
server.start()
print(server.address("t", sys.argv[1]), flush=True)
time.sleep(60)
"""


def test_the_server_dies_with_a_killed_parent(ledger: Ledger) -> None:
    """SIGKILL runs no handlers; what remained would answer for a session that is gone."""
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(ledger.path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with parent:
        assert parent.stdout is not None
        port = httpx.URL(parent.stdout.readline().decode().strip()).port
        assert port is not None
        assert listens(port)
        parent.kill()
    assert wait_until_silent(port)


def test_the_server_dies_even_if_a_forked_child_survives(ledger: Ledger) -> None:
    """A child holds the control pipe open, so the end of input alone would not do."""
    # One write each: where PYTHONUNBUFFERED is set, print writes text and line end apart, and the two would mix.
    script = _PARENT.replace("time.sleep(60)", "import os\nos.fork()\nos.write(1, b'forked\\n')\ntime.sleep(60)")
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(ledger.path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
    )
    assert parent.stdout is not None
    port = httpx.URL(parent.stdout.readline().decode().strip()).port
    assert port is not None
    for _ in range(2):
        assert parent.stdout.readline() == b"forked\n"
    parent.kill()
    parent.wait()
    assert wait_until_silent(port)
    os.killpg(parent.pid, signal.SIGKILL)
    parent.stdout.close()


def test_two_contracts_are_served_side_by_side(server: LoopbackServer, pay: Provider, ledger: Ledger) -> None:
    """The contract is the ledger's, read for each request."""
    mail = Provider("mail", NONE, ledger, lambda: server.address("token", ledger.path))
    for url, effects in ((pay.url, 1), (mail.url, 2)):
        for _ in range(2):
            httpx.post(url, json=1, headers={"idempotency-key": "k"})
        name = url.rsplit("/", 1)[1]
        assert len([effect for effect in ledger.effects() if effect.provider == name]) == effects


def test_questions_are_answered_over_the_wire(server: LoopbackServer, pay: Provider, ledger: Ledger) -> None:
    """Over the wire a look-up shows what it shows in process."""
    contract = Contract(name="l", dedup="none", lookup="by_client_ref", visibility_lag_s=60)
    url = Provider("lag", contract, ledger, lambda: pay.url.removesuffix("/pay")).url
    ledger.set_now(1930367167.0)
    made = httpx.post(f"{url}/v1/refunds", json={"client_ref": "a"})
    assert httpx.get(f"{url}/v1/refunds/a").status_code == 404
    ledger.set_now(1930367167.0 + 60)
    assert httpx.get(f"{url}/v1/refunds/a").content == made.content
    assert httpx.get(f"{url}/v1/refunds/a", headers={"once-order": "stale"}).status_code == 404
    assert len(httpx.get(f"{url}/v1/refunds").json()["data"]) == 1
    head = httpx.head(f"{url}/v1/refunds/a")
    assert (head.status_code, head.content) == (200, b"")


def test_the_servers_time_is_the_ledgers(server: LoopbackServer, pay: Provider, ledger: Ledger) -> None:
    """The server is a process of its own; its clock is not the one of the process under test."""
    url = Provider("day", CLIENT_KEY_24H, ledger, lambda: pay.url.removesuffix("/pay")).url
    ids = []
    for now_s in (1930367167.0, 1930367168.0, 1930367167.0 + 86400):
        ledger.set_now(now_s)
        ids.append(httpx.post(url, json=1, headers={"idempotency-key": "k"}).json()["id"])
    assert ids == ["day_1", "day_1", "day_2"]
