"""The process of the loopback server: `python -m once_fakes.serving`, started by `once_fakes.server`.

Its parent tells it, a JSON line at a time on its standard input, which ledger belongs to which token; when that input
closes, because the parent closed it or was killed, the server ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from typing import Any

from once_fakes.application import Application
from once_fakes.certificates import Authority
from once_fakes.entrance import Entrance, listen
from once_fakes.redirect import Place

_PARENT_CHECK_S = 1.0


class _Desk:
    """The server's end of the control lines."""

    def __init__(self, application: Application, entrance: Entrance) -> None:
        self._application = application
        self._entrance = entrance
        self._authority: Authority | None = None

    def answer(self, line: bytes) -> dict[str, Any]:
        """Do what a control line says; returns the answer."""
        try:
            order = json.loads(line)
            return {"ok": True} | self._do(order)
        except (ValueError, TypeError, KeyError, ImportError) as error:
            return {"error": str(error) or repr(error), "kind": type(error).__name__}

    def _do(self, order: dict[str, Any]) -> dict[str, Any]:
        application = self._application
        match order:
            case {"serve": token, "ledger": ledger, "paths": paths}:
                sys.path += [path for path in paths if path not in sys.path]
                application.serve(token, ledger)
            case {"forget": token}:
                application.forget(token)
            case {"redirect": host, "token": token, "provider": provider}:
                application.redirects.add(host, Place(token, provider))
            case {"kill_caller": token, "effects": effects}:
                application.kill_caller(token, effects)
            case {"killed": token}:
                return {"killed": application.killed(token)}
            case {"secure": True}:
                if self._authority is None:
                    self._authority = Authority()
                    self._entrance.tls = self._authority.context
                return {"ca_file": self._authority.ca_file}
            case _:
                raise ValueError("there is no such order")
        return {}

    def close(self) -> None:
        """Leave no file behind."""
        self._application.close()
        if self._authority is not None:
            self._authority.close()


async def _serve() -> None:
    parent = os.getppid()
    application = Application()
    entrance = Entrance(listen(), application, application.redirects, application.connections)
    desk = _Desk(application, entrance)
    out = sys.stdout.fileno()
    unfinished = bytearray()
    closed = asyncio.Event()

    def read_control() -> None:
        piece = os.read(0, 65536)
        if not piece:
            asyncio.get_running_loop().remove_reader(0)
            closed.set()
        unfinished.extend(piece)
        *lines, rest = unfinished.split(b"\n")
        unfinished[:] = rest
        for line in lines:
            os.write(out, json.dumps(desk.answer(bytes(line))).encode("ascii") + b"\n")

    async def watch_parent() -> None:
        # A forked child of the parent may hold our input open after the parent was killed.
        while os.getppid() == parent:
            await asyncio.sleep(_PARENT_CHECK_S)

    asyncio.get_running_loop().add_reader(0, read_control)
    running = [asyncio.create_task(one) for one in (entrance.serve(), closed.wait(), watch_parent())]
    os.write(out, json.dumps({"port": entrance.port}).encode("ascii") + b"\n")
    try:
        done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        for one in done:
            one.result()
    except Exception:
        traceback.print_exc(file=sys.stderr)
    desk.close()
    sys.stderr.flush()
    # Not by cancelling tasks, some of which wait for clients. Between two requests no transaction is open.
    os._exit(0)


def main() -> None:
    """Serve until standard input closes."""
    asyncio.run(_serve())


if __name__ == "__main__":
    main()
