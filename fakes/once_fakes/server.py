"""The loopback server: fake providers over real HTTP and HTTPS, for every client and language.

It is a process of its own, never a thread of the process that forks: such a thread would hang a child now and
then. This is its parent's end; `once_fakes.serving` is the process.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import select
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from os import PathLike
from typing import IO, Any

from once_fakes.certificates import require_trustme
from once_fakes.redirect import variables

_START_TIMEOUT_S = 20.0
_ANSWER_TIMEOUT_S = 10.0
_EXIT_TIMEOUT_S = 3.0


class LoopbackServer:
    """The parent's end of the server process. One serves any number of ledgers, each under its own token."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner_pid = 0
        self._stderr: IO[bytes] | None = None
        self._port = 0
        self._ca_file: str | None = None
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
            [sys.executable, "-P", "-m", "once_fakes.serving"],
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

    def address(self, token: str, ledger: str | PathLike[str], *, https: bool = False) -> str:
        """Serve the ledger's providers under the token; returns their base, http://127.0.0.1:PORT/TOKEN.

        https: https:// instead, which a client accepts that trusts `ca_file`. Doing it again with the same ledger
        is fine. Raises ValueError for a token that cannot be part of an address, RuntimeError if no server runs,
        ImportError for HTTPS without trustme.
        """
        if not re.fullmatch(r"[A-Za-z0-9_-]+", token):
            raise ValueError(f"a token is made of letters, digits, '_' and '-'; {token!r} is not")
        if https:
            self.ca_file()
        # A contract may name a dialect of the tests' own, which only this process knows where to find.
        paths = [os.path.abspath(path) for path in sys.path]
        self._tell({"serve": token, "ledger": os.path.abspath(ledger), "paths": paths})
        return f"{'https' if https else 'http'}://127.0.0.1:{self._port}/{token}"

    def forget(self, token: str) -> None:
        """Answer 404 under the token from now on, and for no host in its name."""
        self._tell({"forget": token})

    def ca_file(self) -> str:
        """The certificate (PEM) of the authority that HTTPS clients must trust; made when first asked for.

        The file is gone when the server ends. Raises RuntimeError if no server runs, ImportError without trustme.
        """
        if self._ca_file is None:
            require_trustme()
            self._ca_file = str(self._tell({"secure": True})["ca_file"])
        return self._ca_file

    def redirect(self, host: str, token: str, provider: str) -> None:
        """Let the provider answer for a real host ("api.example.com"), to clients with the variables of `environment`.

        Raises ValueError if the host is redirected elsewhere already, or is no host's name.
        """
        self._tell({"redirect": host, "token": token, "provider": provider})

    def environment(self) -> dict[str, str]:
        """The variables that redirect a child process, or this one by monkeypatch.setenv; see `redirect`.

        Raises RuntimeError if no server runs, ImportError without trustme.
        """
        return variables(self._port, self.ca_file())

    def kill_caller(self, token: str, effects: int = 1) -> None:
        """SIGKILL the process whose request causes the effects-th effect from now on, before it is answered. Once.

        effects: 1 is the next. Where the caller cannot be found (Linux only), or is this process, its request is
        answered with status 500 and `errors` says why. Raises ValueError for an unknown token or a count below 1.
        """
        self._tell({"kill_caller": token, "effects": effects})

    def killed(self, token: str) -> list[int]:
        """The ids of the processes that `kill_caller` has killed under the token."""
        killed: list[int] = self._tell({"killed": token})["killed"]
        return killed

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
        if self._ca_file is not None:
            # The server has removed it, unless it was killed.
            shutil.rmtree(os.path.dirname(self._ca_file), ignore_errors=True)
            self._ca_file = None

    def _tell(self, line: dict[str, Any]) -> dict[str, Any]:
        with self._one_at_a_time:
            if self._process is None or self._process.stdin is None:
                raise RuntimeError("the loopback server does not run: call start() first")
            try:
                self._process.stdin.write(json.dumps(line).encode("ascii") + b"\n")
            except BrokenPipeError:
                raise RuntimeError(self._gone()) from None
            answer = self._read_answer(_ANSWER_TIMEOUT_S)
        if answer.get("kind") == "ValueError":
            raise ValueError(answer["error"])
        if "error" in answer:
            raise RuntimeError(f"the loopback server did not understand {line}: {answer['error']}")
        return answer

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
        return f"the loopback server ended (python -m once_fakes.serving, on uvicorn); it wrote:\n{self.errors()}"


def _environment() -> dict[str, str]:
    """The parent's environment, from which a fresh interpreter finds our packages and uvicorn."""
    # What the interpreter finds by itself stays off the list: PYTHONPATH goes before the standard library.
    paths = sysconfig.get_paths()
    known = {os.path.realpath(paths[name]) for name in ("purelib", "platlib")}
    places: list[str] = []
    for package in ("once_fakes", "pytest_once", "uvicorn", "trustme"):
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
