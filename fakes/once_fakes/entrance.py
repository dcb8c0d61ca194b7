"""One loopback port for all that knocks: HTTP, HTTPS, and clients that take the server for their proxy.

The first byte of a connection tells them apart, and is left where it is for uvicorn to read. A tunnel that a client
asks for leads nowhere: at its other end is this server itself.
"""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import ssl
import struct
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from once_fakes.redirect import LOOPBACK, Redirects, bare_host
from once_fakes.reply import error_document

_TLS_HANDSHAKE = b"\x16"
_CONNECT = b"C"  # no other method begins with it, but for a few of WebDAV's
_MAX_HEAD_BYTES = 16 * 1024
_HEAD_TIMEOUT_S = 30.0
_RETRY_ACCEPT_S = 0.5
# A client that comes back after a pause must not find its connection closed: nobody ordered that fault.
_KEEP_ALIVE_S = 24 * 3600

Address = tuple[str, int]


class Connection(asyncio.Protocol):
    """A client's connection, between the event loop and uvicorn. client, server: the addresses of its two ends."""

    def __init__(self, client: Address, server: Address, http: asyncio.Protocol, opened: Connections) -> None:
        self.client = client
        self.server = server
        self._http = http
        self._opened = opened
        self._transport: asyncio.Transport | None = None

    def abort(self) -> None:
        """Break the connection at once: the client sees a reset, and nothing that was not sent before."""
        if self._transport is None:
            return
        taken = self._transport.get_extra_info("socket")
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._opened[self.client] = self
        self._http.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._http.data_received(data)

    def eof_received(self) -> bool | None:
        return self._http.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._opened.get(self.client) is self:
            del self._opened[self.client]
        self._transport = None
        self._http.connection_lost(exc)

    def pause_writing(self) -> None:
        self._http.pause_writing()

    def resume_writing(self) -> None:
        self._http.resume_writing()


Connections = dict[Address, Connection]
"""The open ones by the client's address."""


def listen(port: int = 0) -> socket.socket:
    """A socket that listens on loopback; port 0 is a free one. Raises OSError if the port is taken."""
    # asyncio sets TCP_NODELAY only where the protocol is given; without it each answer takes 40 ms.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen(2048)
    except OSError:
        listening.close()
        raise
    listening.setblocking(False)
    return listening


class Entrance:
    """Lets clients in to an ASGI application. tls: what HTTPS clients get; None: they are turned away."""

    def __init__(
        self,
        listening: socket.socket,
        application: Callable[..., Awaitable[None]],
        redirects: Redirects,
        opened: Connections,
    ) -> None:
        self.tls: ssl.SSLContext | None = None
        self.port: int = listening.getsockname()[1]
        self._listening = listening
        self._redirects = redirects
        self._opened = opened
        self._http = _uvicorn(application)
        self._admissions: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Let clients in until cancelled."""
        _allow_many_files()
        loop = asyncio.get_running_loop()
        while True:
            try:
                taken, _ = await loop.sock_accept(self._listening)
            except OSError:  # too many open files, or the client has left again
                await asyncio.sleep(_RETRY_ACCEPT_S)
                continue
            taken.setblocking(False)
            admission = loop.create_task(self._admit(taken))
            self._admissions.add(admission)
            admission.add_done_callback(self._admissions.discard)

    async def _admit(self, taken: socket.socket) -> None:
        handed_over = False
        try:
            first = await _peek(taken)
            if first == _CONNECT:
                if not await self._open_tunnel(taken):
                    return
                first = await _peek(taken)
            secure = first == _TLS_HANDSHAKE
            if not first or (secure and self.tls is None):
                return
            ends = taken.getpeername(), taken.getsockname()
            handed_over = True
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: Connection(*ends, self._http(), self._opened), taken, ssl=self.tls if secure else None
            )
        except (OSError, TimeoutError):  # the client left, was too slow, or does not trust us
            return
        finally:
            if not handed_over:
                taken.close()

    async def _open_tunnel(self, taken: socket.socket) -> bool:
        """Answer a CONNECT request; whether the client may go on."""
        loop = asyncio.get_running_loop()
        head = b""
        async with asyncio.timeout(_HEAD_TIMEOUT_S):
            while not head.endswith(b"\r\n\r\n") and len(head) < _MAX_HEAD_BYTES:
                piece = await loop.sock_recv(taken, _MAX_HEAD_BYTES)
                if not piece:
                    return False
                head += piece
        method, _, rest = head.partition(b"\r\n")[0].partition(b" ")
        target = rest.partition(b" ")[0].decode("latin-1")
        if method != b"CONNECT" or not target or not head.endswith(b"\r\n\r\n"):
            await loop.sock_sendall(taken, _refusal("400 Bad Request", "this is no CONNECT request"))
            return False
        own = bare_host(target) in LOOPBACK and target.endswith(f":{self.port}")
        if not own and self._redirects.place(target) is None:
            # Most clients show no more of a refused tunnel than its status line.
            why = self._redirects.refusal(target)
            await loop.sock_sendall(taken, _refusal(f"403 {why}", why))
            return False
        await loop.sock_sendall(taken, b"HTTP/1.1 200 Connection established\r\n\r\n")
        return True


def _refusal(status: str, message: str) -> bytes:
    body = json.dumps(error_document("host_not_redirected", message)).encode("ascii")
    line = status.encode("ascii", "replace").replace(b"\r", b" ").replace(b"\n", b" ")
    head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
    return b"HTTP/1.1 " + line + b"\r\n" + head + body


async def _peek(taken: socket.socket) -> bytes:
    """The first byte to come, left to be read; none at the end."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            return taken.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            ready = asyncio.Event()
            loop.add_reader(taken, ready.set)
            try:
                await ready.wait()
            finally:
                loop.remove_reader(taken)


def _uvicorn(application: Callable[..., Awaitable[None]]) -> Callable[[], asyncio.Protocol]:
    """What makes uvicorn's side of a connection."""
    import uvicorn
    from uvicorn.server import ServerState

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
    config.load()
    state = ServerState()
    make: Any = config.http_protocol_class
    return lambda: make(config=config, server_state=state, app_state={})


def _allow_many_files() -> None:
    """Each connection is an open file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and sys.platform != "darwin":  # where it says unlimited and is not
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
