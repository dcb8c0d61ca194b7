"""EC2: the query protocol, client tokens within a region, look-ups that lag."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from once_fakes import Reply
from pytest_once.ledger import Ledger
from tests.fakes.presets.wired import Wired

SPACE = "{http://ec2.amazonaws.com/doc/2016-11-15/}"
RUN = {"Action": "RunInstances", "Version": "2016-11-15", "ImageId": "ami-1", "MinCount": "1", "MaxCount": "1"}


def signed(region: str) -> str:
    return f"AWS4-HMAC-SHA256 Credential=AKID/20300101/{region}/ec2/aws4_request, SignedHeaders=host, Signature=0"


@pytest.fixture
def ec2(ledger: Ledger) -> Wired:
    return Wired(ledger, "ec2", {"authorization": signed("eu-west-1")})


def parsed(reply: Reply) -> ElementTree.Element:
    assert reply.headers["content-type"] == "text/xml;charset=UTF-8"
    return ElementTree.fromstring(reply.content)


def ids(reply: Reply) -> list[str | None]:
    return [element.text for element in parsed(reply).iter(f"{SPACE}instanceId")]


def error(reply: Reply) -> tuple[int, str | None]:
    return reply.status, parsed(reply).findtext("Errors/Error/Code")


def test_a_token_runs_instances_once_within_a_region(ec2: Wired) -> None:
    """The same token in another region is another request, as documented."""
    first = ec2.form("/", {**RUN, "ClientToken": "t", "MaxCount": "2"})
    again = ec2.form("/", {**RUN, "ClientToken": "t", "MaxCount": "2"})
    assert (parsed(first).tag, len(ids(first)), ids(again)) == (f"{SPACE}RunInstancesResponse", 2, ids(first))
    body = b"Action=RunInstances&ImageId=ami-1&MinCount=1&MaxCount=2&ClientToken=t"
    there = ec2.ask("POST", "/", body, authorization=signed("us-east-1"))
    assert (there.status, ec2.effects) == (200, 2)
    assert "ClientToken" not in ec2.ledger.effects()[0].payload


def test_what_is_wrong_has_an_error_code(ec2: Wired) -> None:
    """SDKs raise by the code, in XML as the query protocol has it."""
    ec2.form("/", {**RUN, "ClientToken": "t"})
    run = dict(RUN)
    del run["MinCount"]
    answers = [
        ec2.form("/", {**RUN, "ClientToken": "t", "ImageId": "ami-2"}),
        ec2.form("/", {**RUN, "ClientToken": "t" * 65}),
        ec2.form("/", run),
        ec2.form("/", {**RUN, "MinCount": "2"}),
        ec2.form("/", {**RUN, "MaxCount": "<&>"}),
        ec2.form("/", {**RUN, "DryRun": "true"}),
        ec2.form("/", {"Action": "RebootInstances"}),
        ec2.form("/", {"Action": "DescribeInstances", "InstanceId.1": "i-0"}),
        ec2.form("/", {"Action": "DescribeInstances", "Filter.1.Name": "tag:x", "Filter.1.Value.1": "y"}),
        ec2.form("/", {}),
        ec2.ask("POST", "/", b"\xff=%", content_type="application/x-www-form-urlencoded"),
        ec2.ask("POST", "/", b"Action=RunInstances", authorization=""),
        ec2.ask("PUT", "/"),
    ]
    assert [error(answer) for answer in answers] == [
        (400, "IdempotentParameterMismatch"),
        (400, "InvalidParameterValue"),
        (400, "MissingParameter"),
        (400, "InvalidParameterValue"),
        (400, "InvalidParameterValue"),
        (412, "DryRunOperation"),
        (400, "InvalidAction"),
        (400, "InvalidInstanceID.NotFound"),
        (400, "InvalidParameterValue"),
        (400, "MissingParameter"),
        (400, "MalformedQueryString"),
        (401, "AuthFailure"),
        (405, "InvalidAction"),
    ]
    assert ec2.effects == 1


def test_look_ups_lag_and_find_by_token(ec2: Wired) -> None:
    """ "Not found" proves nothing before the lag is over."""
    for token in ("a", "b"):
        ec2.form("/", {**RUN, "ClientToken": token})
    by_token = {"Action": "DescribeInstances", "Filter.1.Name": "client-token", "Filter.1.Value.1": "b"}
    ec2.pass_time(299)
    assert ids(ec2.form("/", by_token)) == []
    ec2.pass_time(1)
    assert len(ids(ec2.form("/", by_token))) == 1
    (both, one) = ids(ec2.form("/", {"Action": "DescribeInstances"})), ids(ec2.form("/", by_token))
    assert (len(both), both[1]) == (2, one[0])
    listed = ec2.form("/", {"Action": "DescribeInstances", "InstanceId.1": str(both[0]), "InstanceId.2": "i-0"})
    single = ec2.form("/", {"Action": "DescribeInstances", "InstanceId.1": str(both[0])})
    assert ids(listed) == ids(single) == [both[0]]
    assert parsed(single).tag == f"{SPACE}DescribeInstancesResponse"
    asked = ec2.ask("GET", "/?Action=DescribeInstances&Version=2016-11-15")
    assert ids(asked) == both


def test_what_is_not_documented_is_asked(ec2: Wired) -> None:
    """Whether a token is still known after a while, nobody says; so both are explored."""
    asks: dict[str, Any] = {"once_order": "asks"}
    body = b"Action=RunInstances&ImageId=ami-1&MinCount=1&MaxCount=1&ClientToken=t"
    ec2.ask("POST", "/", body, **asks)
    assert ec2.ask("POST", "/", body, **asks).status == 200
    ec2.pass_time(86400)
    undecided = ec2.ask("POST", "/", body, **asks)
    assert undecided.headers["once-undecided"] == "retention=kept|forgotten"
