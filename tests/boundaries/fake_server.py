"""A provider in a process of its own, over real sockets, that counts what arrives and says what it last got."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pytest_once.boundaries import announce, register_endpoint
from pytest_once.boundaries.importing import when_imported
from pytest_once.boundaries.seam import Seam, Wiring
from pytest_once.site import Site
from tests.boundaries.recording import Recording, recorded

_SERVER = """
import json, socket, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

arrived = []

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def log_message(self, *_):
        pass

    def act(self):
        if self.headers.get("transfer-encoding"):
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path == "/arrived":
            self.answer(arrived)
        else:
            headers = {name.lower(): value for name, value in self.headers.items()}
            arrived.append([self.command, self.path, headers, body.decode("latin-1")])
            self.answer({"id": len(arrived), "body": body.decode("latin-1")})

    def answer(self, document):
        content = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("once-arrival", str(len(arrived)))
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else content)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = act

class Server(ThreadingHTTPServer):
    daemon_threads = True

server = Server(("127.0.0.1", 0), Handler, bind_and_activate=False)
server.socket = socket.socket(fileno=int(sys.argv[1]))
server.serve_forever()
"""


@contextmanager
def serving() -> Iterator[str]:
    """The address of a new server."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = subprocess.Popen(
            [sys.executable, "-c", _SERVER, str(listener.fileno())], pass_fds=[listener.fileno()]
        )
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


def arrived(base: str) -> list[list[Any]]:
    """[method, path, headers, body] of all that arrived."""
    with urllib.request.urlopen(f"{base}/arrived") as response:
        found: list[list[Any]] = json.load(response)
        return found


@dataclass
class Seen:
    """What became of a body. returned: its result, or the name of what it raised and of its causes."""

    returned: Any
    told: list[list[Any]]
    outside: list[list[Any]]
    held: list[list[Any]]
    recording: Recording
    arrivals: list[list[Any]] = field(default_factory=list)

    @property
    def targets(self) -> list[str]:
        return self.recording.targets()


def lived(
    body: Callable[[], Any],
    seams: Sequence[Seam],
    base: str = "",
    fault: str | None = None,
) -> Seen:
    """Run the body in a child with the seams; requests below `base`/api go to the provider "payments"."""
    told: list[Any] = []
    outside: list[Any] = []
    held: list[Any] = []
    before = len(arrived(base)) if base else 0
    for seam in seams:
        if seam.library in sys.modules:
            seam.originals()

    def tell(provider: str, operation: str, arrival: str | None, what: str) -> None:
        # Counted from where this body began.
        told.append([provider, operation, None if arrival is None else int(arrival) - before, what])

    def go_outside(what: str, target: str, site: Site) -> None:
        outside.append([what, target, site.text])

    def hold(provider: str, operation: str, request: dict[str, Any]) -> None:
        held.append([provider, operation, request["method"], request["path"], request["body"].decode("latin-1")])
        assert not {"content-length", "host"} & set(request["headers"])

    def install() -> None:
        if base:
            register_endpoint(f"{base}/api", "payments")
        wiring = Wiring([], [], go_outside, tell, hold)
        when_imported([(seam.library, lambda seam=seam: seam.install(wiring)) for seam in seams])  # type: ignore[misc]

    def guarded() -> Any:
        try:
            result = body()
        except Exception as error:
            result = [type(error).__name__, *_causes(error)]
        announce("point", "after")
        return [result, told, outside, held]

    recording = recorded(guarded, install=install, fault=fault)
    assert recording.error is None, recording.error
    assert recording.result is not None, "the child died"
    returned, told, outside, held = recording.result
    return Seen(returned, told, outside, held, recording, arrived(base)[before:] if base else [])


def _causes(error: BaseException) -> list[str]:
    """The names of what it wraps, in whatever way its library does."""
    inner: Any = error.__cause__ or error.__context__ or next(iter(error.args), None)
    inner = getattr(error, "reason", None) or inner
    return [type(inner).__name__] if isinstance(inner, BaseException) else []
