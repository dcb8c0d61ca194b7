"""The mail server, as the process that starts it holds it: `once_fakes.mail_serving` is a process of its own."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from importlib.util import find_spec
from os import PathLike
from typing import IO, Any

HOST = "127.0.0.1"

_ANSWER_TIMEOUT_S = 20.0
_EXIT_TIMEOUT_S = 3.0
_PROGRAM = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from once_fakes.mail_serving import main; main()"


def require_aiosmtpd() -> None:
    """Raises ImportError, which says what to install, if there is no aiosmtpd."""
    if find_spec("aiosmtpd") is None:
        raise ImportError(
            "Provider.smtp needs aiosmtpd, which is not installed: install it (pip install aiosmtpd), or"
            " pytest-once-chaos[smtp]"
        )


class MailServer:
    """A process that accepts mail. One serves any number of providers, each on a port of its own."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner_pid = 0
        self._stderr: IO[bytes] | None = None
        self._one_at_a_time = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The server's process id, None when it does not run."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process; does nothing if it runs. Raises ImportError if aiosmtpd is not installed."""
        if self._process is not None:
            return
        require_aiosmtpd()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - close() closes it
        self._owner_pid = os.getpid()
        paths = json.dumps([os.path.abspath(path) for path in sys.path if path])
        self._process = subprocess.Popen(
            # Warnings that the tests turn into errors are not the server's.
            [sys.executable, "-P", "-W", "ignore", "-c", _PROGRAM, paths],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            bufsize=0,
            # Ctrl-C in the terminal is for the parent, which still needs the server to finish.
            start_new_session=True,
        )

    def address(self, ledger: str | PathLike[str], provider: str) -> tuple[str, int]:
        """Host and port where mail is accepted for a provider of that ledger, from now on until `forget`.

        Raises RuntimeError if the server does not run, or does not answer within 20 s.
        """
        return HOST, int(self._tell({"serve": os.path.abspath(ledger), "provider": provider})["port"])

    def forget(self, port: int) -> None:
        """Accept nothing on that port any more."""
        self._tell({"forget": port})

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
        assert process.stdin is not None and process.stdout is not None and self._stderr is not None
        process.stdin.close()
        try:
            process.wait(_EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        self._stderr.close()
        self._stderr = None

    def _tell(self, order: dict[str, Any]) -> dict[str, Any]:
        with self._one_at_a_time:
            process = self._process
            if process is None or process.stdin is None or process.stdout is None:
                raise RuntimeError("the mail server does not run: call start() first")
            try:
                process.stdin.write(json.dumps(order).encode("ascii") + b"\n")
            except BrokenPipeError:
                raise RuntimeError(f"the mail server ended; it wrote:\n{self.errors()}") from None
            answer: dict[str, Any] = json.loads(self._line(process.stdout.fileno()))
            return answer

    def _line(self, pipe: int) -> bytes:
        deadline = time.monotonic() + _ANSWER_TIMEOUT_S
        line = b""
        while not line.endswith(b"\n"):
            readable = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]
            piece = os.read(pipe, 4096) if readable else b""
            if not piece:
                what = "ended" if readable else f"did not answer within {_ANSWER_TIMEOUT_S:g} s"
                raise RuntimeError(f"the mail server {what}; it wrote:\n{self.errors()}")
            line += piece
        return line
