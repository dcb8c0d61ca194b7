"""Requests to real host names, answered by fakes: which host is whose, and what a client must find in its environment.

A client that cannot be given a base URL is told by environment variables alone to use the loopback server as its proxy
and to trust its certificate authority. Nothing is ever passed on: a host that nobody registered is refused.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

NODE_SCRIPT = Path(__file__).with_name("redirect.cjs")
"""What makes Node obey: its own clients look at no proxy variable."""

LOOPBACK = ("127.0.0.1", "localhost", "::1")

_PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")


@dataclass(frozen=True, slots=True)
class Place:
    """A provider of the ledger that is served under the token."""

    token: str
    provider: str


class Redirects:
    """Which provider answers for which host name."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}

    def add(self, host: str, place: Place) -> None:
        """Let the provider answer for the host. Raises ValueError if the host is another provider's."""
        name = bare_host(host)
        if not re.fullmatch(r"[a-z0-9._:-]+", name) or "/" in host:
            raise ValueError(f"a host to redirect is a name like api.example.com, not {host!r}")
        taken = self._places.setdefault(name, place)
        if taken != place:
            raise ValueError(
                f"{name} is redirected to provider {taken.provider!r} under {taken.token!r} already, so requests would"
                f" reach the wrong ledger; forget({taken.token!r}) first"
            )

    def forget(self, token: str) -> None:
        """Remove the hosts of all providers under the token."""
        self._places = {host: place for host, place in self._places.items() if place.token != token}

    def place(self, host: str) -> Place | None:
        """Who answers for the host (with or without a port), or None."""
        return self._places.get(bare_host(host))

    def refusal(self, host: str) -> str:
        """Why a request to the host was not passed on, and what to do about it."""
        known = ", ".join(sorted(self._places.keys() - set(LOOPBACK))) or "none"
        return (
            f"{bare_host(host)!r} is not redirected to a fake provider, and nothing leaves this machine;"
            f" redirected hosts: {known}"
        )


def bare_host(host: str) -> str:
    """The host name of "Host:Port", as names are compared."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, colon, _ = host.rpartition(":")
    return (name if colon and ":" not in name else host).rstrip(".")


def variables(port: int, ca_file: str) -> dict[str, str]:
    """The environment variables that lead clients to the loopback server at `port`, trusting the CA in that PEM file.

    Obeyed by urllib, requests, httpx, boto3, curl, aiohttp with trust_env=True, and Node's http, https and fetch.
    """
    proxy = f"http://127.0.0.1:{port}"
    direct = ",".join(LOOPBACK)
    found = dict.fromkeys(_CA_VARIABLES, ca_file)
    for name, value in (*((name, proxy) for name in _PROXY_VARIABLES), ("NO_PROXY", direct)):
        found[name] = found[name.lower()] = value
    given = os.environ.get("NODE_OPTIONS", "")
    script = str(NODE_SCRIPT).replace("\\", "\\\\").replace('"', '\\"')
    require = f'--require "{script}"'
    found["NODE_OPTIONS"] = given if require in given else f"{given} {require}".strip()
    found["ONCE_REDIRECT_PORT"] = str(port)
    return found
