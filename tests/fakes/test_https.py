"""HTTPS on loopback: for clients that refuse plain HTTP, trusting one authority that dies with its server."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import once_fakes.certificates as certificates
from once_fakes import CLIENT_KEY, Provider
from once_fakes.server import LoopbackServer
from pytest_once.ledger import Ledger


@pytest.fixture(scope="module")
def server() -> Iterator[LoopbackServer]:
    server = LoopbackServer()
    server.start()
    yield server
    server.close()


@pytest.fixture
def pay(server: LoopbackServer, ledger: Ledger) -> Iterator[Provider]:
    yield Provider("pay", CLIENT_KEY, ledger, lambda: server.address("token", ledger.path, https=True))
    server.forget("token")


def trusting(server: LoopbackServer) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=server.ca_file())


def test_https_is_answered_as_http_is(server: LoopbackServer, pay: Provider, ledger: Ledger) -> None:
    """One ledger, one port, whichever way a request comes."""
    plain = server.address("token", ledger.path)
    assert pay.url.startswith("https://127.0.0.1:")
    with httpx.Client(verify=trusting(server)) as client:
        first = client.post(f"{pay.url}/r", json=1, headers={"idempotency-key": "k"})
        again = client.post(f"{plain}/pay/r", json=1, headers={"idempotency-key": "k"})
        named = client.post(pay.url.replace("127.0.0.1", "localhost") + "/r", json=1, headers={"idempotency-key": "k"})
    assert first.status_code == 200
    assert first.content == again.content == named.content
    assert (len(ledger.arrivals()), len(ledger.effects())) == (3, 1)


def test_a_client_that_does_not_trust_the_authority_is_safe_from_it(
    server: LoopbackServer, pay: Provider, ledger: Ledger
) -> None:
    """The authority is nobody's but the test's; its refusal must not disturb others."""
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.post(f"{pay.url}/r", json=1)
    with httpx.Client(verify=trusting(server)) as client:
        assert client.post(f"{pay.url}/r", json=1).status_code == 200
    assert len(ledger.arrivals()) == 1


def test_nothing_but_the_public_certificate_is_in_a_file(server: LoopbackServer) -> None:
    """Whoever reads the authority's key could pose as any host to who trusts it."""
    ca_file = Path(server.ca_file())
    assert [path.name for path in ca_file.parent.iterdir()] == ["ca.pem"]
    assert "PRIVATE" not in ca_file.read_text()
    assert stat.S_IMODE(ca_file.parent.stat().st_mode) == 0o700


def test_without_memory_files_a_key_is_private_and_gone_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """macOS has no files in memory; there a key is on disk while it is loaded."""
    seen: list[tuple[str, int]] = []

    class Watched(ssl.SSLContext):
        def load_cert_chain(self, certfile: str, *rest: object) -> None:  # type: ignore[override]
            seen.append((certfile, stat.S_IMODE(os.stat(certfile).st_mode)))
            super().load_cert_chain(certfile)

    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr(ssl, "SSLContext", Watched)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    authority = certificates.Authority()
    authority.close()
    assert [mode for _, mode in seen] == [0o600]
    assert list(tmp_path.iterdir()) == []


def test_the_certificate_goes_when_the_server_ends(tmp_path: Path) -> None:
    """Also when it was killed, or its parent was."""
    for end in ("close", "kill the server", "kill the parent"):
        if end == "kill the parent":
            script = (
                "import time; from once_fakes.server import LoopbackServer; server = LoopbackServer();"
                " server.start(); print(server.ca_file(), flush=True); time.sleep(60)"
            )
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
            with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment) as parent:
                assert parent.stdout is not None
                folder = Path(parent.stdout.readline().decode().strip()).parent
                assert folder.exists()
                parent.kill()
        else:
            server = LoopbackServer()
            server.start()
            folder = Path(server.ca_file()).parent
            assert folder.exists()
            if end == "kill the server":
                assert server.pid is not None
                os.kill(server.pid, signal.SIGKILL)
            server.close()
        deadline = time.monotonic() + 10
        while folder.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not folder.exists(), end


def test_without_trustme_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch, ledger: Ledger) -> None:
    """The extra is optional; who needs it should not have to guess its name."""
    monkeypatch.setattr(certificates, "find_spec", lambda name: None)
    server = LoopbackServer()
    with pytest.raises(ImportError, match=r"pytest-once-chaos\[https\]"):
        server.address("t", ledger.path, https=True)


def test_tls_that_nobody_offered_is_turned_away(ledger: Ledger) -> None:
    """A client that speaks TLS to a server without certificates must fail at once, not hang."""
    server = LoopbackServer()
    server.start()
    try:
        port = httpx.URL(server.address("t", ledger.path)).port
        stranger = ssl.create_default_context()
        with (
            socket.create_connection(("127.0.0.1", port or 0), timeout=5) as client,
            pytest.raises((ssl.SSLError, ConnectionError)),
        ):
            stranger.wrap_socket(client, server_hostname="localhost")
    finally:
        server.close()
