"""The process of the mail server: real SMTP by aiosmtpd, each accepted mail an effect in a ledger.

Orders come as lines of JSON on standard input, answers go to standard output; when that input closes, or the parent is
gone, the process ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from typing import TYPE_CHECKING, Any

from once_fakes.arriving import arrive
from once_fakes.dialect import Act
from once_fakes.mail_server import HOST
from once_fakes.mails import mail_payload
from pytest_once.ledger import Ledger

if TYPE_CHECKING:
    from aiosmtpd.smtp import SMTP, Envelope, Session

OPERATION = "SEND"
MAX_MAIL_BYTES = 10 * 1024 * 1024
"""Largest mail that is accepted; a larger one is refused with 552 (RFC 1870)."""

_PARENT_CHECK_S = 1.0
# A client that comes back after a pause must not find its connection closed: nobody ordered that fault.
_IDLE_S = 24 * 3600


class Mailbox:
    """What becomes of the mails that reach one port."""

    def __init__(self, ledger: Ledger, provider: str) -> None:
        self._ledger = ledger
        self._provider = provider

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        """The final dot: the mail is accepted, and the answer says so if it arrives."""
        try:
            declared = self._ledger.provider(self._provider)
            content = envelope.content or b""
            payload = mail_payload(
                envelope.mail_from or "",
                list(envelope.rcpt_tos),
                content if isinstance(content, bytes) else content.encode(),
                declared.key_field if declared is not None else None,
            )
            reply = arrive(self._ledger, self._provider, Act(OPERATION, payload))
        except Exception:
            # Nothing was accepted; what is wrong is for whoever reads the server's standard error.
            traceback.print_exc(file=sys.stderr)
            sys.stderr.flush()
            return "451 4.3.0 Requested action aborted: local error in processing"
        return f"250 2.0.0 OK once-arrival={reply.arrival_id}"


class _Ports:
    """The ports on which this process listens."""

    def __init__(self) -> None:
        self._servers: dict[int, asyncio.Server] = {}

    async def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        if "serve" in order:
            return {"port": await self._listen(Mailbox(Ledger(order["serve"]), order["provider"]))}
        server = self._servers.pop(order["forget"], None)
        if server is not None:
            server.close()
        return {"ok": True}

    async def _listen(self, mailbox: Mailbox) -> int:
        from aiosmtpd.smtp import SMTP

        def connected() -> SMTP:
            return SMTP(
                mailbox,
                data_size_limit=MAX_MAIL_BYTES,
                enable_SMTPUTF8=True,
                hostname="mail.once.invalid",
                ident="once-fakes",
                timeout=_IDLE_S,
                loop=asyncio.get_running_loop(),
            )

        server = await asyncio.get_running_loop().create_server(connected, HOST, 0)
        port: int = server.sockets[0].getsockname()[1]
        self._servers[port] = server
        return port


async def serve() -> None:
    """Obey until standard input closes."""
    parent = os.getppid()
    ports = _Ports()
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    async def watch_parent() -> None:
        # A forked child of the parent may hold our input open after the parent was killed.
        while os.getppid() == parent:
            await asyncio.sleep(_PARENT_CHECK_S)
        os._exit(0)

    watching = loop.create_task(watch_parent())
    while line := await reader.readline():
        answer = await ports.obey(json.loads(line))
        os.write(1, json.dumps(answer).encode("ascii") + b"\n")
    watching.cancel()
    # Not by the usual way, which would wait for clients. Between two mails no transaction is open.
    os._exit(0)


def main() -> None:
    """The process."""
    asyncio.run(serve())
