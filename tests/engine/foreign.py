"""Programs for the tests of `once.process`: started by a fresh interpreter, which knows nothing of this project."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from pytest_once import Once

# Not urllib: it takes longer to import than all the rest.
PRELUDE = """
import json, os, socket, sys, time
from http.client import HTTPConnection

def ask(url, method="POST", payload={"order": "order_1"}, key=None, timeout=None, path=""):
    host, _, rest = url.removeprefix("http://").partition("/")
    connection = HTTPConnection(host, timeout=timeout)
    headers = {"content-type": "application/json", **({"idempotency-key": key} if key else {})}
    connection.request(method, f"/{rest}/refunds{path}", json.dumps(payload) if payload is not None else None, headers)
    response = connection.getresponse()
    return response.status, response.read()

def store(name, text):
    with open(f"{name}.new", "w") as file:
        file.write(text)
    os.replace(f"{name}.new", name)

PAY = os.environ.get("PAY", "")
"""

FORGETFUL = """
if not os.path.exists("done"):
    status, _ = ask(PAY, key=os.urandom(16).hex())
    if status != 200:
        sys.exit(f"status {status}")
    store("done", "yes")
"""
"""A key for each attempt, and not even stored."""

CAREFUL = """
if not os.path.exists("key"):
    store("key", os.urandom(16).hex())
if not os.path.exists("done"):
    status, _ = ask(PAY, key=open("key").read())
    if status != 200:
        sys.exit(f"status {status}")
    store("done", f"at {time.strftime('%Y-%m-%dT%H:%M:%S')}.{time.time_ns()}")
"""
"""The key is stored before it is sent. What it stores at the end is dated."""


def python(program: str) -> list[str]:
    """The command that runs a program."""
    return [sys.executable, "-I", "-S", "-c", PRELUDE + program]


def running(program: str, *, contract: str = "client_key", **options: Any) -> Callable[[Once], None]:
    """A body that runs it, with the provider's address in PAY."""

    def body(once: Once) -> None:
        once.process(python(program), env={"PAY": once.provider("pay", contract=contract).url}, **options)

    return body
