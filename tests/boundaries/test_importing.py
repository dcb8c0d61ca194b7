"""Libraries that a body imports late are hooked all the same, and nobody else imports them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.boundaries.fake_server import arrived, serving

for _library in ("httpx", "httpx2", "requests", "aiohttp"):
    pytest.importorskip(_library)

CODE = """
import sys
from pytest_once.boundaries import Announcer, GO, connect, register_endpoint
from pytest_once.boundaries.builtin import BUILT_IN
from pytest_once.boundaries.importing import when_imported
from pytest_once.boundaries.seam import Wiring
libraries = {"httpx", "httpx2", "requests", "urllib3", "http.client", "aiohttp", "smtplib", "botocore"}
assert not libraries & set(sys.modules)
url = sys.argv[1] + "/x"
connect(Announcer(lambda boundary: print(boundary.target) or GO))
register_endpoint(sys.argv[1], "payments")
nothing = lambda *_: None
wiring = Wiring([], [], nothing, nothing, nothing)
when_imported([(seam.library, lambda seam=seam: seam.install(wiring)) for seam in BUILT_IN])

import urllib.request
print(urllib.request.urlopen(url, b"x").status)
import requests
print(requests.post(url, b"x").status_code)
import httpx
print(httpx.post(url, trust_env=False).status_code)
import httpx2
print(httpx2.post(url, trust_env=False).status_code)
import aiohttp, asyncio
async def call():
    async with aiohttp.ClientSession() as session, session.post(url) as response:
        return response.status
print(asyncio.run(call()))
"""


def test_a_library_is_hooked_when_the_body_is_the_first_to_import_it() -> None:
    """Plugins must not import it for everybody, and bodies import lazily."""
    with serving() as server:
        output = subprocess.run(
            [sys.executable, "-c", CODE, server],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(["fakes", os.getcwd()])},
            check=False,
        )
        assert output.stdout == "payments POST /x\n200\n" * 5, output.stderr
        assert len(arrived(server)) == 5


def test_a_module_that_is_not_there_stays_not_there() -> None:
    """Waiting for an import must not change what a failed one looks like."""
    code = """
from pytest_once.boundaries.importing import when_imported
called = []
when_imported([("no_such_module", lambda: called.append(1)), ("wave", lambda: called.append(2))])
for _ in range(2):
    try:
        import no_such_module
    except ModuleNotFoundError as error:
        print(error)
import wave
print(called, wave.open.__name__)
"""
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert output.stdout == "No module named 'no_such_module'\n" * 2 + "[2] open\n", output.stderr
