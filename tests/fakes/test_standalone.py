"""`python -m once_fakes`: the fakes for whoever does not use pytest, or not yet."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from pytest_once.ledger import Ledger

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "once_fakes", *map(str, arguments)]


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), env=ENVIRONMENT, capture_output=True, text=True, timeout=30)


@contextmanager
def serving(*arguments: str | Path, temporary: Path | None = None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and the first line it printed."""
    environment = ENVIRONMENT if temporary is None else {**ENVIRONMENT, "TMPDIR": str(temporary)}
    process = subprocess.Popen(
        command("serve", *arguments), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            # Not SIGKILL, after which the certificate's file would stay.
            process.terminate()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_serve_prints_its_address_and_leaves_nothing_behind(tmp_path: Path, number: int, code: int) -> None:
    """4.5: a script reads one line; after Ctrl-C there is the ledger and nothing else."""
    temporary, place = tmp_path / "tmp", tmp_path / "place"
    temporary.mkdir()
    place.mkdir()
    with serving("client_key", "--ledger", place / "l.db", "--https", temporary=temporary) as (process, address):
        assert re.fullmatch(r"https://127\.0\.0\.1:\d+", address)
        assert process.stdout is not None
        exported = dict(
            shlex.split(line)[1].split("=", 1) for line in iter(process.stdout.readline, "\n") if line.strip()
        )
        assert set(exported) >= {"SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"}
        assert "HTTPS_PROXY" not in exported
        plain = address.replace("https", "http")
        assert httpx.post(f"{plain}/v1/refunds", json=1).json()["id"] == "client_key_1"
        # Half a request and an idle connection must not hold it back, nor make it complain.
        port = httpx.URL(address).port or 0
        with socket.create_connection(("127.0.0.1", port)) as half, socket.create_connection(("127.0.0.1", port)):
            half.sendall(b"POST /r HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9\r\n\r\nhalf")
            assert httpx.post(f"{plain}/v1/refunds", json=2).status_code == 200
            process.send_signal(number)
            assert process.wait(10) == code
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert list(temporary.iterdir()) == []
    assert [path.name for path in place.iterdir()] == ["l.db"]
    assert len(Ledger(place / "l.db").effects()) == 2


def test_redirected_hosts_are_exported_for_a_shell(tmp_path: Path) -> None:
    """Another test framework starts the server, and its programs with these variables."""
    with serving("none", "--ledger", tmp_path / "l.db", "--redirect", "api.example.com") as (process, address):
        assert address.startswith("http://127.0.0.1:")
        assert process.stdout is not None
        lines = list(iter(process.stdout.readline, "\n"))
        script = "".join(lines) + (
            f"{shlex.quote(sys.executable)} -c 'import urllib.request as u;"
            ' print(u.urlopen(u.Request("https://api.example.com/v1/x", b"a=1")).status)\''
        )
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=30)
        assert done.stdout == "200\n", done.stderr
    assert [arrival.operation for arrival in Ledger(tmp_path / "l.db").arrivals()] == ["POST /v1/x"]


@pytest.mark.skipif(sys.platform != "linux", reason="the caller is found by Linux's /proc")
def test_the_caller_is_killed_at_the_effect_that_was_named(tmp_path: Path) -> None:
    """The deadliest cut, for any language, from the command line."""
    script = (
        "import sys, urllib.request as u\n"
        "for n in range(5): u.urlopen(u.Request(sys.argv[1] + '/r', b'%d' % n)); print(n, flush=True)"
    )
    arguments = ("client_key", "--ledger", tmp_path / "l.db", "--kill-caller-after", "3")
    with serving(*arguments) as (_, address):
        done = subprocess.run([sys.executable, "-c", script, address], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "0\n1\n")
    assert len(Ledger(tmp_path / "l.db").effects()) == 3


def test_a_ledger_is_taken_up_again_under_the_same_contract_only(tmp_path: Path) -> None:
    """Receipts are promises: under another contract they would mean something else."""
    path = tmp_path / "l.db"
    for replayed in (None, "true"):
        with serving("client_key", "--ledger", path) as (_, address):
            answer = httpx.post(f"{address}/r", json=1, headers={"idempotency-key": "k"})
            assert answer.headers.get("idempotent-replayed") == replayed
    refused = run("serve", "none", "--ledger", path)
    assert refused.returncode == 2
    assert "belongs to client_key, under another contract than that of none" in refused.stderr
    assert "name a new file with --ledger, or remove this one" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("serve", "nope", "--ledger", "l.db"),
            "there is no contract 'nope' (did you mean none?); valid names are none, client_key",
        ),
        (("serve", "none", "--ledger", "no/such/l.db"), "cannot open or make the ledger"),
        (("serve", "none", "--ledger", __file__), "is not a ledger of once_fakes"),
        (("serve", "none", "--ledger", "l.db", "--port", "99999"), "--port 0 takes a free one"),
        (("serve", "none", "--ledger", "l.db", "--redirect", "https://a/"), "a host to redirect is a name"),
        (("serve", "none", "--ledger", "l.db", "--kill-caller-after", "0"), "counted from 1, not 0"),
        (("serve", "none"), "--ledger"),
        (("show", "none.db"), "no ledger at"),
        (("show", __file__), "is not a ledger of once_fakes"),
        ((), "{serve,show,list}"),
    ],
)
def test_wrong_calls_say_what_to_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    """Exit code 2 and a sentence, never a traceback."""
    monkeypatch.chdir(tmp_path)
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_taken_port_is_told(tmp_path: Path) -> None:
    """The usual trouble with a fixed port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("serve", "none", "--ledger", tmp_path / "l.db", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 2
    assert "cannot listen on 127.0.0.1" in done.stderr


def test_list_names_what_can_be_served() -> None:
    """One line each, so that grep finds it."""
    lines = run("list").stdout.splitlines()
    assert {"none", "client_key", "client_key_24h"} <= {line.partition(":")[0] for line in lines}
    assert "none: every request acts; the provider does not recognise repeated ones" in lines


@pytest.fixture
def told(tmp_path: Path) -> Path:
    """A ledger with a replay, and a key that would spoil lines and terminals."""
    path = tmp_path / "l.db"
    with serving("client_key", "--ledger", path) as (_, address):
        for key in ("k", "k", "[bold]\t\x9b2J"):
            httpx.post(
                f"{address}/v1/refunds", json={"amount": 5}, headers=[(b"idempotency-key", key.encode("latin-1"))]
            )
    return path


def test_show_prints_lines_for_a_script_and_json_for_a_program(told: Path) -> None:
    """Whoever pipes it gets tabs and no box-drawing; control characters of a client stay visible."""
    lines = run("show", told).stdout.splitlines()
    assert lines[:3] == [
        "3 arrivals",
        "id\tprovider\toperation\tkey\tpayload\toutcome\tstatus",
        '1\tclient_key\tPOST /v1/refunds\tk\t{"amount":5}\texecuted\t200',
    ]
    assert "\t[bold]\\t\\x9b2J\t" in lines[4]
    assert "1 effects" in lines
    assert "1 receipts" in lines
    found = json.loads(run("show", told, "--json").stdout)
    assert [arrival["outcome"] for arrival in found["arrivals"]] == ["executed", "replayed", "refused"]
    assert [effect["arrival"] for effect in found["effects"]] == [1]
    assert {receipt["key"] for receipt in found["receipts"]} == {"k"}


def test_show_ends_quietly_when_its_reader_has_seen_enough(told: Path) -> None:
    """`show FILE | head -1` is what people type."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command("show", told), env=ENVIRONMENT, stdout=writing, stderr=subprocess.PIPE, timeout=30)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_show_draws_tables_on_a_terminal(told: Path) -> None:
    """People look at it too."""
    ours, theirs = pty.openpty()
    environment = {**ENVIRONMENT, "TERM": "xterm", "COLUMNS": "150"}
    with subprocess.Popen(command("show", told), env=environment, stdout=theirs, stdin=theirs) as process:
        os.close(theirs)
        drawn = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # how Linux tells the end of a terminal
                break
            if not piece:
                break
            drawn += piece
        assert process.wait(10) == 0
    os.close(ours)
    text = drawn.decode()
    assert "3 arrivals" in text
    assert "┃" in text
    assert "[bold]" in text
