"""Clients that cannot be given a base URL reach the fakes by their environment alone, and nobody else."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator

import httpx
import pytest

from once_fakes import CLIENT_KEY, Provider
from once_fakes.redirect import Place, Redirects, bare_host
from once_fakes.server import LoopbackServer
from pytest_once.ledger import Ledger

HOST = "api.example.com"
URL = f"https://{HOST}/v1/refunds?dry=1"


@pytest.fixture(scope="module")
def server() -> Iterator[LoopbackServer]:
    server = LoopbackServer()
    server.start()
    yield server
    server.close()


@pytest.fixture
def pay(server: LoopbackServer, ledger: Ledger) -> Iterator[Provider]:
    pay = Provider("pay", CLIENT_KEY, ledger, lambda: server.address("token", ledger.path))
    assert pay.url
    server.redirect(HOST, "token", "pay")
    yield pay
    server.forget("token")


def operations(ledger: Ledger) -> list[str]:
    return [arrival.operation for arrival in ledger.arrivals()]


_CLIENTS = """
import asyncio, json, sys
import aiohttp, boto3, botocore.config, httpx, requests

async def by_aiohttp(url, other):
    async with aiohttp.ClientSession(trust_env=True) as session:
        async with session.post(url, json={"amount": 5}) as response:
            ok = response.status
        try:
            async with session.get(other) as response:
                return ok, "reached"
        except aiohttp.ClientHttpProxyError as error:
            return ok, error.message

def refused(get, other):
    try:
        get(other)
    except Exception as error:
        return str(error)
    return "reached"

url, other = sys.argv[1:]
keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
once = botocore.config.Config(retries={"total_max_attempts": 1})
queue = boto3.client("sqs", region_name="eu-west-1", **keys)
elsewhere = boto3.client("sqs", region_name="eu-north-1", config=once, **keys)
print(json.dumps({
    "requests": [requests.post(url, json={"amount": 5}).status_code, refused(requests.get, other)],
    "httpx": [httpx.post(url, json={"amount": 5}).status_code, refused(httpx.get, other)],
    "aiohttp": asyncio.run(by_aiohttp(url, other)),
    "boto3": [
        queue.send_message(QueueUrl="https://sqs.eu-west-1.amazonaws.com/1/q", MessageBody="m")
            ["ResponseMetadata"]["HTTPStatusCode"],
        refused(lambda _: elsewhere.list_queues(), other),
    ],
}))
"""


def test_python_clients_follow_the_environment(server: LoopbackServer, pay: Provider, ledger: Ledger) -> None:
    """Each with its own idea of proxies and CA files. A host that nobody registered is refused by name."""
    server.redirect("sqs.eu-west-1.amazonaws.com", "token", "pay")
    done = subprocess.run(
        [sys.executable, "-c", _CLIENTS, URL, "https://www.example.org/"],
        env={**os.environ, **server.environment()},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {client: status for client, (status, _) in told.items()} == dict.fromkeys(
        ("requests", "httpx", "aiohttp", "boto3"), 200
    )
    for client in ("requests", "httpx", "aiohttp"):
        assert "'www.example.org' is not redirected to a fake provider" in told[client][1], told[client]
    assert "Failed to connect to proxy" in told["boto3"][1]
    assert operations(ledger) == ["POST /v1/refunds"] * 3 + ["POST /"]


def test_the_test_process_itself_is_redirected_by_setenv(
    server: LoopbackServer, pay: Provider, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In process, plain HTTP and HTTPS; and the fake's own address is still reached directly."""
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    # urllib reads the environment when it is first used in a process, which another test may have done.
    monkeypatch.setattr(urllib.request, "_opener", None)
    with urllib.request.urlopen(urllib.request.Request(URL, b'{"amount": 5}')) as response:
        assert json.load(response)["payload"]["?"] == {"dry": "1"}
    assert httpx.post(URL.replace("https", "http"), json=1).status_code == 200
    assert httpx.post(f"{pay.url}/r", json=1).status_code == 200
    with pytest.raises(urllib.error.URLError, match=r"403 'example\.org' is not redirected"):
        urllib.request.urlopen("https://example.org/")
    refusal = httpx.get("http://example.org/x")
    assert (refusal.status_code, refusal.json()["error"]["type"]) == (403, "host_not_redirected")
    assert HOST in refusal.json()["error"]["message"]
    assert operations(ledger) == ["POST /v1/refunds"] * 2 + ["POST /r"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_follows_the_environment(server: LoopbackServer, pay: Provider, ledger: Ledger) -> None:
    """Shell scripts are programs too."""
    environment = {**os.environ, **server.environment()}
    for url, status in ((URL, "200"), (URL.replace("https", "http"), "200"), ("http://example.org/", "403")):
        command = ["curl", "-sS", "-o", os.devnull, "-w", "%{http_code}", "-d", "a=1", url]
        assert subprocess.run(command, env=environment, capture_output=True, text=True).stdout == status
    tunnel = subprocess.run(["curl", "-sS", "https://example.org/"], env=environment, capture_output=True, text=True)
    assert "403" in tunnel.stderr
    assert operations(ledger) == ["POST /v1/refunds"] * 2


_NODE = """
const https = require("node:https"), http = require("node:http"), tls = require("node:tls"), net = require("node:net");
const [url, own] = process.argv.slice(1);
const asked = (client, url) => new Promise((resolve, reject) =>
  client.request(url, { method: "POST" }, (answer) => { answer.resume(); resolve(answer.statusCode); })
    .on("error", reject).end("1"));
const raw = () => new Promise((resolve, reject) => {
  const { hostname } = new URL(url);
  const there = { host: hostname, port: 443, servername: hostname };
  const socket = tls.connect(there, () => { resolve(socket.authorized); socket.end(); });
  socket.on("error", reject);
});
const bare = () => new Promise((resolve, reject) => {
  const socket = net.connect(80, "example.org", () => { resolve(socket.remoteAddress); socket.end(); });
  socket.on("error", reject);
});
(async () => {
  const refused = await fetch("https://example.org/");
  console.log(JSON.stringify([
    (await fetch(url, { method: "POST", body: "1" })).status,
    await asked(https, url), await asked(http, url.replace("https", "http")), await asked(http, own),
    await raw(), await bare(), refused.status, (await refused.json()).error.type,
  ]));
})();
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_node_is_redirected_though_it_ignores_proxies(
    server: LoopbackServer, pay: Provider, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fetch, https and http look at no proxy variable; a script that Node loads first changes where they connect."""
    monkeypatch.setenv("NODE_OPTIONS", "--no-deprecation")
    done = subprocess.run(
        ["node", "-e", _NODE, URL, f"{pay.url}/own"],
        env={**os.environ, **server.environment()},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [200, 200, 200, 200, True, "127.0.0.1", 403, "host_not_redirected"]
    assert operations(ledger) == ["POST /v1/refunds"] * 3 + ["POST /own"]


def test_a_tunnel_may_carry_plain_http_and_lead_to_the_server_itself(
    server: LoopbackServer, pay: Provider, ledger: Ledger
) -> None:
    """Some clients ask for a tunnel whatever they send through it."""
    own = httpx.URL(pay.url)
    for target, path in ((f"{HOST}:80", "/v1/x"), (f"127.0.0.1:{own.port}", f"{own.path}/v1/y")):
        with socket.create_connection(("127.0.0.1", own.port or 0), timeout=5) as client:
            client.sendall(f"CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n\r\n".encode())
            assert client.recv(4096).startswith(b"HTTP/1.1 200 ")
            client.sendall(f"POST {path} HTTP/1.1\r\nhost: {target}\r\ncontent-length: 0\r\n\r\n".encode())
            assert client.recv(4096).startswith(b"HTTP/1.1 200 ")
    assert operations(ledger) == ["POST /v1/x", "POST /v1/y"]


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n", b"HTTP/1.1 403 "),
        (b"CONNECT example.org:443 HTTP/1.1\r\nhost: api.example.com\r\n\r\n", b"HTTP/1.1 403 "),
        (b"CONNECT  HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 "),
        (b"CHECKOUT / HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 "),
        (b"CONNECT " + b"x" * 20_000, b"HTTP/1.1 400 "),
        (b"GET http://127.0.0.1:1/token/pay/r HTTP/1.1\r\nhost: x\r\n\r\n", b"HTTP/1.1 403 "),
        (b"GET http://\xe9/ HTTP/1.1\r\nhost: x\r\n\r\n", b"HTTP/1.1 400 "),
    ],
)
def test_other_targets_are_refused(pay: Provider, ledger: Ledger, sent: bytes, answer: bytes) -> None:
    """Nothing leaves loopback, and no other port on it is reached through the server either."""
    with socket.create_connection(("127.0.0.1", httpx.URL(pay.url).port or 0), timeout=5) as client:
        client.sendall(sent)
        assert client.recv(4096).startswith(answer)
    assert ledger.arrivals() == []


def test_a_host_belongs_to_one_provider_until_it_is_forgotten(server: LoopbackServer, pay: Provider) -> None:
    """A request that reached another test's ledger would be missed in one and invented in the other."""
    server.redirect(HOST.upper() + ".", "token", "pay")
    with pytest.raises(ValueError, match=r"api\.example\.com is redirected to provider 'pay' under 'token' already"):
        server.redirect(HOST, "other", "pay")
    with pytest.raises(ValueError, match="a host to redirect is a name"):
        server.redirect("https://api.example.com/", "token", "pay")
    server.forget("token")
    server.redirect(HOST, "other", "pay")
    server.forget("other")


@pytest.mark.parametrize(
    ("given", "name"),
    [("A.b:80", "a.b"), ("a.b.", "a.b"), ("[::1]:80", "::1"), ("::1", "::1"), ("127.0.0.1", "127.0.0.1"), ("", "")],
)
def test_hosts_are_compared_by_name(given: str, name: str) -> None:
    """Case, a final dot and the port make no other host."""
    assert bare_host(given) == name


def test_forgetting_one_token_leaves_the_others() -> None:
    """Several tests' providers are served at once."""
    redirects = Redirects()
    redirects.add("a.example", Place("1", "pay"))
    redirects.add("b.example", Place("2", "pay"))
    redirects.forget("1")
    assert (redirects.place("a.example"), redirects.place("b.example:443")) == (None, Place("2", "pay"))
