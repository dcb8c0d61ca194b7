"""SES: every accepted request is another mail."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_once.ledger import Ledger
from tests.fakes.presets.wired import Wired

SIGNED = "AWS4-HMAC-SHA256 Credential=AKID/20300101/eu-west-1/ses/aws4_request, SignedHeaders=host, Signature=0"
SIMPLE = {"Simple": {"Subject": {"Data": "Receipt"}, "Body": {"Text": {"Data": "Thanks."}}}}
SES = {
    "FromEmailAddress": "a@acme.test",
    "Destination": {"ToAddresses": ["ada@example.test"]},
    "Content": SIMPLE,
}
SES_PATH = "/v2/email/outbound-emails"


@pytest.fixture
def ses(ledger: Ledger) -> Wired:
    return Wired(ledger, "ses", {"authorization": SIGNED})


def test_a_repetition_is_another_mail(ses: Wired) -> None:
    """No key is documented, so an Idempotency-Key header means nothing."""
    request = ses.dialect.example(ses.contract, "k")
    keyed = {**request.headers, "idempotency-key": "k"}
    answers = [ses.ask(request.method, request.path, request.body, **keyed) for _ in range(2)]
    assert [answer.status < 300 for answer in answers] == [True, True]
    assert answers[0].headers != answers[1].headers
    assert len({effect.payload for effect in ses.ledger.effects()}) == 1
    assert ses.effects == 2


@pytest.mark.parametrize(
    "changed",
    [
        {"Content": {}},
        {"FromEmailAddress": "nobody"},
        {"Destination": {}},
        {"Destination": {"ToAddresses": ["nobody"]}},
        {"Content": {"Simple": {"Subject": {"Data": "s"}}}},
    ],
)
def test_ses_refuses_what_cannot_be_sent(ses: Wired, changed: dict[str, Any]) -> None:
    """With the error type where SDKs look for it."""
    refused = ses.json(SES_PATH, {**SES, **changed})
    assert (refused.status, refused.headers["x-amzn-errortype"]) == (400, "BadRequestException")
    assert ses.effects == 0


def test_ses_knows_its_path_and_wants_a_signature(ses: Wired) -> None:
    """Wrong addresses and unsigned requests are refused before anything else."""
    assert ses.json(SES_PATH, SES).body.keys() == {"MessageId"}
    assert ses.json("/", SES).headers["x-amzn-errortype"] == "UnknownOperationException"
    assert ses.ask("GET", SES_PATH).status == 405
    assert ses.json(SES_PATH, SES, authorization="").status == 403
