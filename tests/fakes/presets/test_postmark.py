"""Postmark: every accepted request is another mail, and can be searched for."""

from __future__ import annotations

import pytest

from pytest_once.ledger import Ledger
from tests.fakes.presets.wired import Wired

MARK = {"From": "a@acme.test", "To": "ada@example.test", "Subject": "Receipt", "TextBody": "Thanks."}


@pytest.fixture
def postmark(ledger: Ledger) -> Wired:
    return Wired(ledger, "postmark", {"x-postmark-server-token": "1"})


def test_a_repetition_is_another_mail(postmark: Wired) -> None:
    """No key is documented, so an Idempotency-Key header means nothing."""
    request = postmark.dialect.example(postmark.contract, "k")
    keyed = {**request.headers, "idempotency-key": "k"}
    answers = [postmark.ask(request.method, request.path, request.body, **keyed) for _ in range(2)]
    assert [answer.status < 300 for answer in answers] == [True, True]
    assert answers[0].headers != answers[1].headers
    assert len({effect.payload for effect in postmark.ledger.effects()}) == 1
    assert postmark.effects == 2


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
