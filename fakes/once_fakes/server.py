"""The loopback server: fake providers over real HTTP, for every client and language.

It is a process of its own, never a thread of the process that forks: such a thread would hang a child now and
then. Its parent tells it, a JSON line at a time on its standard input, which ledger belongs to which token;
when that input closes, because the parent closed it or was killed, the server ends.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import select
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from os import PathLike
from typing import IO, Any

from once_fakes.contract import Contract
from once_fakes.reply import Reply, turn_away
from once_fakes.wire import MAX_BODY_BYTES, body_too_large, handle_http
from pytest_once.ledger import Ledger

_START_TIMEOUT_S = 20.0
_ANSWER_TIMEOUT_S = 10.0
_EXIT_TIMEOUT_S = 3.0
_PARENT_CHECK_S = 1.0
# A client that comes back after a pause must not find its connection closed: nobody ordered that fault.
_KEEP_ALIVE_S = 24 * 3600

Message = MutableMapping[str, Any]


class LoopbackServer:
    """The parent's end of the server process. One serves any number of ledgers, each under its own token."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner_pid = 0
        self._stderr: IO[bytes] | None = None
        self._port = 0
        self._one_at_a_time = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The server's process id, None when it does not run."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process and wait until it listens; does nothing if it runs.

        Raises RuntimeError, with what the process wrote, if it does not come up within 20 s.
        """
        if self._process is not None:
            return
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - close() closes it
        self._owner_pid = os.getpid()
        self._process = subprocess.Popen(
            # -P: a module in the current directory must not stand in for one of ours.
            [sys.executable, "-P", "-m", "once_fakes.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            bufsize=0,
            env=_environment(),
            # Ctrl-C in the terminal is for the parent, which still needs the server to finish.
            start_new_session=True,
        )
        try:
            self._port = int(self._read_answer(_START_TIMEOUT_S)["port"])
        except BaseException:
            self.close()
            raise

    def address(self, token: str, ledger: str | PathLike[str]) -> str:
        """Serve the ledger's providers under the token; returns their base, http://127.0.0.1:PORT/TOKEN.

        Raises ValueError for a token that cannot be part of an address, RuntimeError if no server runs.
        """
        if not re.fullmatch(r"[A-Za-z0-9_-]+", token):
            raise ValueError(f"a token is made of letters, digits, '_' and '-'; {token!r} is not")
        self._tell({"serve": token, "ledger": os.path.abspath(ledger)})
        return f"http://127.0.0.1:{self._port}/{token}"

    def forget(self, token: str) -> None:
        """Answer 404 under the token from now on."""
        self._tell({"forget": token})

    def errors(self) -> str:
        """What the server wrote to its standard error: internal errors, if there were any."""
        if self._stderr is None:
            return ""
        end = os.fstat(self._stderr.fileno()).st_size
        start = max(0, end - 20_000)
        return os.pread(self._stderr.fileno(), end - start, start).decode(errors="replace")

    def close(self) -> None:
        """End the process and wait for it: 3 s for it to go by itself, then SIGKILL. Doing it again is fine.

        In a forked child it does nothing: the server is the parent's.
        """
        process = self._process
        if process is None or self._owner_pid != os.getpid():
            return
        self._process = None
        assert process.stdin is not None
        assert process.stdout is not None
        assert self._stderr is not None
        process.stdin.close()
        try:
            process.wait(_EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        self._stderr.close()
        self._stderr = None

    def _tell(self, line: dict[str, str]) -> None:
        with self._one_at_a_time:
            if self._process is None or self._process.stdin is None:
                raise RuntimeError("the loopback server does not run: call start() first")
            try:
                self._process.stdin.write(json.dumps(line).encode("ascii") + b"\n")
            except BrokenPipeError:
                raise RuntimeError(self._gone()) from None
            answer = self._read_answer(_ANSWER_TIMEOUT_S)
        if "error" in answer:
            raise RuntimeError(f"the loopback server did not understand {line}: {answer['error']}")

    def _read_answer(self, timeout_s: float) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        deadline = time.monotonic() + timeout_s
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise RuntimeError(
                    f"the loopback server did not answer within {timeout_s:g} s; it wrote:\n{self.errors()}"
                )
            piece = os.read(pipe, 4096)
            if not piece:
                raise RuntimeError(self._gone())
            line += piece
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _gone(self) -> str:
        return f"the loopback server ended (python -m once_fakes.server, on uvicorn); it wrote:\n{self.errors()}"


def _environment() -> dict[str, str]:
    """The parent's environment, from which a fresh interpreter finds our packages and uvicorn."""
    # What the interpreter finds by itself stays off the list: PYTHONPATH goes before the standard library.
    paths = sysconfig.get_paths()
    known = {os.path.realpath(paths[name]) for name in ("purelib", "platlib")}
    places: list[str] = []
    for package in ("once_fakes", "pytest_once", "uvicorn"):
        spec = importlib.util.find_spec(package)
        for location in (spec.submodule_search_locations or ()) if spec is not None else ():
            place = os.path.dirname(os.path.abspath(location))
            if os.path.realpath(place) not in known and place not in places:
                places.append(place)
    if inherited := os.environ.get("PYTHONPATH"):
        places.append(inherited)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    # Warnings the tests turn into errors are not the server's.
    environment.pop("PYTHONWARNINGS", None)
    return environment


class _Application:
    """The ASGI application. It uses SQLite right in the event loop: one request after the other, in order."""

    def __init__(self) -> None:
        self.ledgers: dict[str, Ledger] = {}

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        try:
            body = await _read_body(receive)
        except EOFError:
            return
        reply = body_too_large() if body is None else self._reply(scope, body)
        content = reply.content
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in reply.headers.items()]
        headers.append((b"content-length", str(len(content)).encode("ascii")))
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    def _reply(self, scope: MutableMapping[str, Any], body: bytes) -> Reply:
        try:
            return self._answer(scope, body)
        except Exception:
            traceback.print_exc(file=sys.stderr)
            sys.stderr.flush()
            return turn_away(500, "internal_error", "the fake provider failed; its standard error says how")

    def _answer(self, scope: MutableMapping[str, Any], body: bytes) -> Reply:
        _, token, name, *rest = [*scope["raw_path"].decode("ascii").split("/", 3), "", ""][:4]
        ledger = self.ledgers.get(token)
        declared = ledger.provider(name) if ledger is not None else None
        if ledger is None or declared is None:
            return turn_away(404, "no_such_provider", "no fake provider answers at this address")
        query = scope["query_string"].decode("ascii")
        path = f"/{rest[0]}" + (f"?{query}" if query else "")
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        contract = Contract.from_json(declared.contract)
        return handle_http(ledger, name, contract, scope["method"], path, headers, body)

    def control(self, line: bytes) -> dict[str, Any]:
        """Do what a control line says; returns the answer."""
        try:
            order = json.loads(line)
            if "serve" in order:
                self.ledgers[order["serve"]] = Ledger(order["ledger"])
            else:
                self.ledgers.pop(order["forget"], None)
        except (ValueError, TypeError, KeyError) as error:
            return {"error": repr(error)}
        return {"ok": True}


async def _read_body(receive: Callable[[], Awaitable[Message]]) -> bytes | None:
    """The request's body, or None if it is too large: read to its end even so, or the client sees a reset.

    Raises EOFError if the client left before its end: half a request never arrived.
    """
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise EOFError
        piece: bytes = message.get("body", b"")
        size += len(piece)
        if size <= MAX_BODY_BYTES:
            pieces.append(piece)
        if not message.get("more_body", False):
            return b"".join(pieces) if size <= MAX_BODY_BYTES else None


def main() -> None:
    """Serve until standard input closes."""
    import asyncio

    import uvicorn

    parent = os.getppid()
    application = _Application()
    # asyncio sets TCP_NODELAY only where the protocol is given; without it each answer takes 40 ms.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen(2048)
    out = sys.stdout.fileno()
    unfinished = bytearray()

    def say(answer: dict[str, Any]) -> None:
        os.write(out, json.dumps(answer).encode("ascii") + b"\n")

    def leave() -> None:
        # Not through uvicorn, which would wait for its clients. Between two requests no transaction is open.
        sys.stderr.flush()
        os._exit(0)

    def read_control() -> None:
        piece = os.read(0, 65536)
        if not piece:
            leave()
        unfinished.extend(piece)
        *lines, rest = unfinished.split(b"\n")
        unfinished[:] = rest
        for line in lines:
            say(application.control(bytes(line)))

    async def watch_parent() -> None:
        # A forked child of the parent may hold our input open after the parent was killed.
        while os.getppid() == parent:
            await asyncio.sleep(_PARENT_CHECK_S)
        leave()

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            loop = asyncio.get_running_loop()
            self.watching = loop.create_task(watch_parent())
            say({"port": listening.getsockname()[1]})
            loop.add_reader(0, read_control)

    config = uvicorn.Config(
        application,
        loop="asyncio",
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
    )
    Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
