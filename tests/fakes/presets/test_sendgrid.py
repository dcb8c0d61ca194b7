"""SendGrid: every accepted request is another mail, and says so without a body."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_once.ledger import Ledger
from tests.fakes.presets.wired import Wired

GRID = {
    "personalizations": [{"to": [{"email": "ada@example.test"}]}],
    "from": {"email": "a@acme.test"},
    "subject": "Receipt",
    "content": [{"type": "text/plain", "value": "Thanks."}],
}
GRID_PATH = "/v3/mail/send"


@pytest.fixture
def sendgrid(ledger: Ledger) -> Wired:
    return Wired(ledger, "sendgrid", {"authorization": "Bearer SG.1"})


def test_a_repetition_is_another_mail(sendgrid: Wired) -> None:
    """No key is documented, so an Idempotency-Key header means nothing."""
    request = sendgrid.dialect.example(sendgrid.contract, "k")
    keyed = {**request.headers, "idempotency-key": "k"}
    answers = [sendgrid.ask(request.method, request.path, request.body, **keyed) for _ in range(2)]
    assert [answer.status < 300 for answer in answers] == [True, True]
    assert answers[0].headers != answers[1].headers
    assert len({effect.payload for effect in sendgrid.ledger.effects()}) == 1
    assert sendgrid.effects == 2


def test_sendgrid_accepts_without_a_body(sendgrid: Wired) -> None:
    """202 with an id in a header is all its client ever learns."""
    accepted = sendgrid.json(GRID_PATH, GRID)
    assert (accepted.status, accepted.content, bool(accepted.headers["x-message-id"])) == (202, b"", True)
    assert (sendgrid.ask("GET", GRID_PATH).status, sendgrid.ask("GET", "/v3/messages").status) == (405, 404)
    assert sendgrid.json(GRID_PATH, GRID, authorization="").status == 401


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"personalizations": []}, "personalizations"),
        ({"personalizations": [{"to": [{"name": "Ada"}]}]}, "personalizations.0.to"),
        ({"from": "a@acme.test"}, "from.email"),
        ({"subject": ""}, "subject"),
        ({"content": []}, "content"),
        ({"content": [{"type": "text/plain", "value": ""}]}, "content.0.value"),
    ],
)
def test_sendgrid_names_the_field_that_is_wrong(sendgrid: Wired, changed: dict[str, Any], field: str) -> None:
    """Its errors are a list, each with the field that it is about."""
    refused = sendgrid.json(GRID_PATH, {**GRID, **changed})
    assert refused.status == 400
    (error,) = refused.body["errors"]
    assert (error["field"], error.keys()) == (field, {"message", "field", "help"})
    assert sendgrid.effects == 0
