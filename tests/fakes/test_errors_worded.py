"""An error status that a fault orders comes in the provider's own words, whatever client asks."""

from __future__ import annotations

import pytest

from once_fakes import Provider, contract_named
from pytest_once.boundaries import Announcer, Order, connect
from pytest_once.boundaries.http import Attempt
from pytest_once.boundaries.seam import Wiring
from pytest_once.ledger import Ledger


def attempt(fault: str, provider: str) -> Attempt:
    """A request on its way, for which a fault is ordered."""
    connect(Announcer(lambda boundary: Order(fault)))
    nothing = [None].append
    wiring = Wiring([], [], lambda *_: None, lambda *_: None, lambda *_: nothing(None))
    return Attempt(wiring, "POST", "http://127.0.0.1:1/t/pay/v1/refunds", (provider, "/v1/refunds"))


@pytest.mark.parametrize("name", ["ietf_draft", "stripe_v1", "ec2", "shopify", "client_key"])
@pytest.mark.parametrize("fault", ["error-before", "error-after"])
def test_an_ordered_error_is_the_providers_own_document(ledger: Ledger, name: str, fault: str) -> None:
    """An SDK that cannot read an error document takes another way than with the real provider."""
    contract = contract_named(name)
    pay = Provider("pay", contract, ledger, lambda: "http://127.0.0.1:1/t")
    _ = pay.url
    made_up = attempt(fault, "pay").made_up
    reply = pay.call("POST /v1/refunds", {"amount": 5})
    assert made_up is not None
    assert (made_up.status, made_up.body) == (reply.status, reply.content)
    assert made_up.header("content-type") == reply.headers["content-type"]


def test_a_server_that_is_no_fake_of_ours_answers_plainly(ledger: Ledger) -> None:
    """Somebody else's stand-in has told no words of its own."""
    made_up = attempt("error-before", "theirs").made_up
    assert made_up is not None
    assert (made_up.status, b"service_unavailable" in made_up.body) == (503, True)
