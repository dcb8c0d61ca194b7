"""Adapters of other plugins: the hook is all that a library needs, here one that nobody knows."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Lab

LIBRARY = """
import socket

class PayError(Exception):
    pass

class Client:
    '''Speaks HTTP over a bare socket, which no seam sees.'''

    def __init__(self, url):
        self.host, _, self.path = url.removeprefix("http://").partition("/")

    def pay(self, order, key=None):
        return self._transmit(order, key)

    def _transmit(self, order, key):
        host, port = self.host.split(":")
        body = b'{"order": "%s"}' % order.encode()
        head = f"POST /{self.path}/pay HTTP/1.1\\r\\nHost: {self.host}\\r\\nConnection: close\\r\\n"
        head += f"Content-Type: application/json\\r\\nContent-Length: {len(body)}\\r\\n"
        head += f"Idempotency-Key: {key}\\r\\n" if key else ""
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head.encode() + b"\\r\\n" + body)
            answer = b""
            while piece := connection.recv(4096):
                answer += piece
        return int(answer.split()[1])
"""

ADAPTER = """
import sys
from pytest_once.boundaries import announce, endpoint_of
from pytest_once.calls import perform
from pytest_once.faults import CALL_FAULTS

class Toypay:
    name = library = "toypay"

    def originals(self):
        return ()

    def install(self, wiring):
        toypay = sys.modules["toypay"]
        send = toypay.Client._transmit

        def transmit(self, order, key):
            provider, path = endpoint_of(f"http://{self.host}/{self.path}/pay")
            order_given = announce("toypay", f"{provider} {path}", provider=provider, faults=CALL_FAULTS)
            return perform(order_given, lambda: send(self, order, key), timeout_error=toypay.PayError)

        toypay.Client._transmit = transmit

def pytest_once_boundaries():
    return [Toypay()]
"""

SUITE = """
import pytest

@pytest.mark.once_effect(faults=["lost-response"])
@pytest.mark.parametrize("key", [None, "order_1"])
def test_pays(once, key):
    import toypay  # not before the body runs

    def pay(client):
        try:
            client.pay("order_1", key)
        except toypay.PayError:
            client.pay("order_1", key)

    once.caller("order_1", pay, toypay.Client(once.provider("bank", contract="client_key").url))
"""


@pytest.mark.slow
def test_a_third_partys_seam_is_used_like_a_built_in_one(lab: Lab) -> None:
    """Its boundaries are crash points, its faults are explored, and it is hooked when the body imports its library."""
    lab.write(LIBRARY, "toypay")
    lab.pytester.makeconftest(ADAPTER)
    lab.write(SUITE)

    result = lab.run("--once-chaos")

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["DUPLICATE *", "*--once-replay=lr@*", "*1 bank /pay *"])


def test_without_the_seam_its_request_is_noticed(lab: Lab) -> None:
    """Otherwise the adapter would have shown nothing; and the message names the hook."""
    lab.write(LIBRARY, "toypay")
    lab.write(SUITE)

    result = lab.run("--once-chaos", "-k", "order_1")

    result.stdout.fnmatch_lines(["ESCAPED_EFFECT *", "*pytest_once_boundaries*"])


def test_a_misspelt_hook_of_ours_is_refused(lab: Lab) -> None:
    """pluggy checks names and arguments once the hooks are declared."""
    lab.pytester.makeconftest("def pytest_once_boundaries(config): return []\n")
    lab.write("def test_nothing(): pass\n")

    result = lab.run()

    assert result.ret != 0
    assert "config" in result.stdout.str() + result.stderr.str()
