"""The services' own SDKs, unmodified, against the loopback server.

Twilio's client has no option for its address: its domain's `base_url` is set, or its environment redirects it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import requests

from once_fakes import Contract, Provider, contract_named
from once_fakes.server import LoopbackServer
from pytest_once import Once, Verdict, explore
from pytest_once.ledger import Ledger

boto3: Any = pytest.importorskip("boto3")
boto_errors: Any = pytest.importorskip("botocore.exceptions")
slack_sdk: Any = pytest.importorskip("slack_sdk")
slack_errors: Any = pytest.importorskip("slack_sdk.errors")
twilio_rest: Any = pytest.importorskip("twilio.rest")
twilio_errors: Any = pytest.importorskip("twilio.base.exceptions")

KEYS = {"region_name": "eu-west-1", "aws_access_key_id": "AKID", "aws_secret_access_key": "secret"}
CONTENT = {"Simple": {"Subject": {"Data": "Receipt"}, "Body": {"Text": {"Data": "Thanks."}}}}


@pytest.fixture(scope="module")
def server() -> Iterator[LoopbackServer]:
    server = LoopbackServer()
    server.start()
    yield server
    server.close()


@pytest.fixture
def url_of(server: LoopbackServer, ledger: Ledger) -> Iterator[Callable[[str], str]]:
    yield lambda name: Provider(name, contract_named(name), ledger, lambda: server.address("sdk", ledger.path)).url
    server.forget("sdk")


def test_boto3_sends_receives_and_deletes(url_of: Callable[[str], str], ledger: Ledger) -> None:
    """SQS through its SDK: dropped repetitions, hidden messages, and errors by their names."""
    endpoint = url_of("sqs_fifo")
    sqs = boto3.client("sqs", endpoint_url=endpoint, **KEYS)
    queue = f"{endpoint}/123456789012/orders.fifo"
    message = {"QueueUrl": queue, "MessageGroupId": "g", "MessageDeduplicationId": "d"}
    for body in ("one", "another"):
        sqs.send_message(MessageBody=body, **message)
    (received,) = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=1)["Messages"]
    assert received["Body"] == "one"
    assert "Messages" not in sqs.receive_message(QueueUrl=queue)
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=received["ReceiptHandle"])
    ledger.set_now(1_930_367_167.0 + 31)
    assert "Messages" not in sqs.receive_message(QueueUrl=queue)
    with pytest.raises(sqs.exceptions.ReceiptHandleIsInvalid):
        sqs.delete_message(QueueUrl=queue, ReceiptHandle="none")
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        sqs.send_message(QueueUrl=f"{endpoint}/123456789012/orders", MessageBody="one")
    assert len(ledger.effects()) == 1


def test_boto3_runs_an_instance_once(url_of: Callable[[str], str], ledger: Ledger) -> None:
    """EC2's XML is read by its SDK; a token used for something else is told by its code."""
    ec2 = boto3.client("ec2", endpoint_url=url_of("ec2"), **KEYS)
    run = {"ImageId": "ami-1", "MinCount": 1, "MaxCount": 1, "ClientToken": "order-1"}
    first, second = ec2.run_instances(**run), ec2.run_instances(**run)
    assert first["Instances"] == second["Instances"]
    with pytest.raises(boto_errors.ClientError) as refused:
        ec2.run_instances(**{**run, "ImageId": "ami-2"})
    assert refused.value.response["Error"]["Code"] == "IdempotentParameterMismatch"
    ledger.set_now(1_930_367_167.0 + 300)
    filters = [{"Name": "client-token", "Values": ["order-1"]}]
    (reservation,) = ec2.describe_instances(Filters=filters)["Reservations"]
    assert reservation["Instances"][0]["ClientToken"] == "order-1"


def test_boto3_sends_mail(url_of: Callable[[str], str], ledger: Ledger) -> None:
    """SES through its SDK, refusals included."""
    ses = boto3.client("sesv2", endpoint_url=url_of("ses"), **KEYS)
    mail = {"FromEmailAddress": "a@acme.test", "Destination": {"ToAddresses": ["b@acme.test"]}, "Content": CONTENT}
    assert ses.send_email(**mail)["MessageId"] != ses.send_email(**mail)["MessageId"]
    with pytest.raises(ses.exceptions.BadRequestException):
        ses.send_email(Content=CONTENT)
    assert len(ledger.effects()) == 2


def test_twilio_sends_and_lists(url_of: Callable[[str], str], ledger: Ledger) -> None:
    """Its dates and pages are read by its SDK."""
    client = twilio_rest.Client("AC1", "token")
    client.api.base_url = url_of("twilio")
    sent = client.messages.create(to="+15558675310", from_="+15017122661", body="one")
    assert [message.sid for message in client.messages.list(to="+15558675310")] == [sent.sid]
    assert (client.messages(sent.sid).fetch().body, sent.status) == ("one", "queued")
    with pytest.raises(twilio_errors.TwilioRestException) as refused:
        client.messages.create(to="+15558675310", body="one")
    assert refused.value.code == 21603


def test_slack_posts_and_reads(url_of: Callable[[str], str], ledger: Ledger) -> None:
    """Its SDK raises for a refusal that came with status 200."""
    client = slack_sdk.WebClient("xoxb-1", base_url=f"{url_of('slack')}/api/")
    posted = client.chat_postMessage(channel="C1", text="one")
    assert client.conversations_history(channel="C1")["messages"] == [posted["message"]]
    with pytest.raises(slack_errors.SlackApiError, match="msg_too_long"):
        client.chat_postMessage(channel="C1", text="x" * 40_001)


def test_requests_sends_mail(url_of: Callable[[str], str], ledger: Ledger) -> None:
    """A client of many scripts, for the services without an SDK here."""
    for name, path, headers, body in (
        (
            "resend",
            "/emails",
            {"Authorization": "Bearer re_1"},
            {"from": "a@b", "to": "c@d", "subject": "s", "text": "t"},
        ),
        ("postmark", "/email", {"X-Postmark-Server-Token": "1"}, {"From": "a@b", "To": "c@d", "TextBody": "t"}),
    ):
        assert requests.post(f"{url_of(name)}{path}", json=body, headers=headers, timeout=10).status_code == 200
    assert len(ledger.effects()) == 2


def running(token: str | None, contract: Contract) -> Callable[[Once], None]:
    """Run an instance for an order; without a token of the caller's, boto3 makes one for the call."""

    def body(once: Once) -> None:
        ec2 = boto3.client("ec2", endpoint_url=once.provider("ec2", contract=contract).url, **KEYS)
        named = {} if token is None else {"ClientToken": token}
        ec2.run_instances(ImageId="ami-1", MinCount=1, MaxCount=1, **named)

    return body


KEPT = replace(contract_named("ec2"), name="kept", retention_s=None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("token", "contract", "verdict"),
    [
        (None, KEPT, Verdict.DUPLICATE),
        ("order-1", contract_named("ec2"), Verdict.DUPLICATE),
        ("order-1", KEPT, Verdict.EXACTLY_ONCE),
    ],
    ids=["the SDK's token", "two hours later", "the order's token"],
)
def test_the_token_that_boto3_makes_ends_with_the_process(
    token: str | None, contract: Contract, verdict: Verdict
) -> None:
    """P01: it covers boto3's own resends, and no restart; and for how long any token is known, nobody promises."""
    report = explore(running(token, contract), profile="crash", restart_after=("2h",))
    assert report.verdict is verdict, report.problem
