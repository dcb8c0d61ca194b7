"""SES, SendGrid and Postmark: every accepted request is another mail."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_once.ledger import Ledger
from tests.fakes.presets.wired import Wired

SIGNED = "AWS4-HMAC-SHA256 Credential=AKID/20300101/eu-west-1/ses/aws4_request, SignedHeaders=host, Signature=0"
GRID = {
    "personalizations": [{"to": [{"email": "ada@example.test"}]}],
    "from": {"email": "a@acme.test"},
    "subject": "Receipt",
    "content": [{"type": "text/plain", "value": "Thanks."}],
}
MARK = {"From": "a@acme.test", "To": "ada@example.test", "Subject": "Receipt", "TextBody": "Thanks."}
SIMPLE = {"Simple": {"Subject": {"Data": "Receipt"}, "Body": {"Text": {"Data": "Thanks."}}}}
SES = {
    "FromEmailAddress": "a@acme.test",
    "Destination": {"ToAddresses": ["ada@example.test"]},
    "Content": SIMPLE,
}
GRID_PATH, SES_PATH = "/v3/mail/send", "/v2/email/outbound-emails"


@pytest.fixture
def sendgrid(ledger: Ledger) -> Wired:
    return Wired(ledger, "sendgrid", {"authorization": "Bearer SG.1"})


@pytest.fixture
def postmark(ledger: Ledger) -> Wired:
    return Wired(ledger, "postmark", {"x-postmark-server-token": "1"})


@pytest.fixture
def ses(ledger: Ledger) -> Wired:
    return Wired(ledger, "ses", {"authorization": SIGNED})


@pytest.mark.parametrize("name", ["sendgrid", "postmark", "ses"])
def test_a_repetition_is_another_mail(ledger: Ledger, name: str) -> None:
    """None of them documents a key, so an Idempotency-Key header means nothing."""
    wired = Wired(ledger, name, {})
    request = wired.dialect.example(wired.contract, "k")
    keyed = {**request.headers, "idempotency-key": "k"}
    answers = [wired.ask(request.method, request.path, request.body, **keyed) for _ in range(2)]
    assert [answer.status < 300 for answer in answers] == [True, True]
    assert answers[0].headers != answers[1].headers
    assert {one.payload for one in ledger.effects()} == {ledger.effects()[0].payload}
    assert wired.effects == 2


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


def test_postmark_answers_with_codes_of_its_own(postmark: Wired) -> None:
    """Clients look at ErrorCode, which is 0 where all is well."""
    sent = postmark.json("/email", MARK)
    assert (sent.status, sent.body["ErrorCode"], sent.body["To"]) == (200, 0, "ada@example.test")
    answers = [
        postmark.json("/email", MARK, x_postmark_server_token=""),
        postmark.json("/email", {**MARK, "To": "nobody"}),
        postmark.json("/email", {**MARK, "TextBody": ""}),
        postmark.json("/email", {**MARK, "Metadata": {"order": 1}}),
        postmark.json("/email", {**MARK, "To": ", ".join(["a@b.test"] * 51)}),
        postmark.ask("POST", "/email", b"{", content_type="application/json"),
        postmark.ask("POST", "/email", b"a=b", content_type="text/plain"),
        postmark.ask("GET", "/messages/outbound/unknown/details"),
        postmark.ask("GET", "/messages/outbound?count=501&offset=0"),
    ]
    assert [(one.status, one.body["ErrorCode"]) for one in answers] == [
        (401, 10),
        (422, 300),
        (422, 300),
        (422, 403),
        (422, 300),
        (422, 402),
        (415, 409),
        (422, 701),
        (422, 300),
    ]
    assert postmark.effects == 1


def test_postmark_can_be_searched_by_what_the_client_gave_it(postmark: Wired) -> None:
    """Metadata is the client's own reference, so it finds a mail whose answer was lost."""
    for order in ("1", "2", "3"):
        postmark.json("/email", {**MARK, "Metadata": {"order": order}})
    found = postmark.ask("GET", "/messages/outbound?count=10&offset=0&metadata_order=2").body
    assert (found["TotalCount"], found["Messages"][0]["Metadata"]) == (1, {"order": "2"})
    page = postmark.ask("GET", "/messages/outbound?count=1&offset=1&recipient=ada%40example.test").body
    assert (page["TotalCount"], [mail["Metadata"]["order"] for mail in page["Messages"]]) == (3, ["2"])
    details = postmark.ask("GET", f"/messages/outbound/{page['Messages'][0]['MessageID']}/details").body
    assert (details["TextBody"], "TextBody" in page["Messages"][0]) == ("Thanks.", False)
    assert postmark.ask("GET", "/messages/outbound?count=1&offset=0&tag=other").body["TotalCount"] == 0


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
