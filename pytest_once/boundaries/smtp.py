"""The SMTP seam: a mail is announced before its DATA, a connection to a fake server before it is made.

A server is a fake when it is registered by host and port: `register_endpoint("smtp://127.0.0.1:2525", "mail")`. The
effect happens when the server accepts the final dot; what is lost after that is the reply "250", and SMTP has
nothing by which a server would recognise the mail that a client then sends again.
"""

from __future__ import annotations

import errno
import functools
import os
import re
from collections.abc import Callable
from typing import Any

from pytest_once import clock
from pytest_once.boundaries import announce, endpoint_of
from pytest_once.boundaries.seam import Wiring
from pytest_once.faults import ERROR_AFTER, ERROR_BEFORE, LOST_REQUEST, LOST_RESPONSE, REFUSED, RESET_RESPONSE
from pytest_once.site import call_site

CONNECT_FAULTS: tuple[str, ...] = (REFUSED,)
DATA_FAULTS: tuple[str, ...] = (LOST_REQUEST, LOST_RESPONSE, RESET_RESPONSE, ERROR_BEFORE, ERROR_AFTER)
"""No duplicate: a mail travels over one connection, so only a client that sends it again makes two of it."""

_OPERATION = "DATA"
_ARRIVAL = re.compile(rb"once-arrival[=: ]+(\d+)")
"""How a fake server may name the arrival in its reply to the final dot: "250 OK once-arrival=7"."""

_TRY_LATER = (451, b"4.3.0 Requested action aborted: local error in processing")


class SmtpSeam:
    """Hooks smtplib.SMTP, and so its subclasses SMTP_SSL and LMTP."""

    name = "smtplib"
    library = "smtplib"

    def originals(self) -> tuple[object, ...]:
        """None: methods are hooked, not names."""
        return ()

    def install(self, wiring: Wiring) -> None:
        """Announce what smtplib sends from now on; for a forked child only."""
        import smtplib

        client: Any = smtplib.SMTP
        client.connect = _connect(client.connect, wiring)
        client.data = _data(client.data, wiring)


SMTP = SmtpSeam()


def _connect(connect_now: Callable[..., Any], wiring: Wiring) -> Callable[..., Any]:
    @functools.wraps(connect_now)
    def connect(self: Any, host: str = "localhost", port: int = 0, source_address: Any = None) -> Any:
        address = _address(self, host, port)
        self._pytest_once_address = address
        endpoint = endpoint_of(address)
        if endpoint is not None:
            provider = endpoint[0]
            order = announce("smtp", f"{provider} CONNECT", provider=provider, faults=CONNECT_FAULTS)
            if order.fault == REFUSED:
                refused = ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
                wiring.told(provider, "CONNECT", None, type(refused).__name__)
                raise refused
        with clock.held():
            return connect_now(self, host, port, source_address)

    return connect


def _address(client: Any, host: str, port: int) -> str:
    if not port and host.count(":") == 1:
        host, _, written = host.partition(":")
        port = int(written) if written.isdecimal() else 0
    return f"smtp://{host}:{port or client.default_port}"


def _data(data_now: Callable[..., Any], wiring: Wiring) -> Callable[..., Any]:
    @functools.wraps(data_now)
    def data(self: Any, msg: Any) -> Any:
        address = getattr(self, "_pytest_once_address", "smtp://unknown")
        endpoint = endpoint_of(address)
        if endpoint is None:
            wiring.outside("a mail to", address, call_site())
            return data_now(self, msg)
        provider = endpoint[0]
        fault = announce("smtp", f"{provider} {_OPERATION}", provider=provider, faults=DATA_FAULTS).fault
        arrival: str | None = None
        try:
            reply: tuple[int, bytes] = _TRY_LATER
            if fault not in (LOST_REQUEST, ERROR_BEFORE):
                with clock.held():
                    reply = data_now(self, msg)
                named = _ARRIVAL.search(reply[1])
                arrival = named[1].decode("ascii") if named else None
            if fault in (LOST_REQUEST, LOST_RESPONSE, RESET_RESPONSE):
                # Not QUIT, and not to be used again: there is a reply on it that belongs to this mail.
                self.close()
                raise _disconnected(fault)
        except Exception as error:
            wiring.told(provider, _OPERATION, arrival, type(error).__name__)
            raise
        if fault == ERROR_AFTER:
            reply = _TRY_LATER
        wiring.told(provider, _OPERATION, arrival, f"reply {reply[0]}")
        return reply

    return data


def _disconnected(fault: str) -> Exception:
    """What smtplib makes of a reply that does not come."""
    import smtplib

    reset = f"[Errno {errno.ECONNRESET}] {os.strerror(errno.ECONNRESET)}"
    why = reset if fault == RESET_RESPONSE else "timed out"
    return smtplib.SMTPServerDisconnected(f"Connection unexpectedly closed: {why}")
