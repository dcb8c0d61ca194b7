"""Whatever comes in, a preset answers with its provider's document, and never with an exception."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from once_fakes import Contract, Reply, contract_named
from once_fakes.dialect import Request, dialect_of
from once_fakes.wire import handle_http
from pytest_once.ledger import Ledger

PRESETS = (
    "ec2",
    "sqs_fifo",
    "sqs_fifo_by_content",
    "sqs_standard",
    "ses",
    "resend",
    "sendgrid",
    "postmark",
    "twilio",
    "slack",
)
ACTIONS = ("SendMessage", "ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility", "GetQueueAttributes", "", "x")

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
PATHS = ("/", "/x", "/%ff/%00", "//")
QUERIES = ("", "a=b", "%ff&&=;", "count=x&offset=-1", "Action=DescribeInstances&InstanceId.1=%00")
TYPES = ("application/json", "text/plain", "multipart/form-data", "\xff", "")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW")


def fields_of(request: Request) -> dict[str, Any]:
    """The example's fields, to be spoilt one at a time."""
    try:
        found = json.loads(request.body)
    except ValueError:
        return dict(pair.split("=", 1) for pair in request.body.decode().split("&") if "=" in pair)
    return found if isinstance(found, dict) else {}


@st.composite
def requests(draw: Any, contract: Contract) -> Request:
    """The dialect's example, with something wrong about it."""
    request = dialect_of(contract).example(contract, "key")
    fields = fields_of(request)
    headers = dict(request.headers)
    if "x-amz-target" in headers:
        headers["x-amz-target"] = f"AmazonSQS.{draw(st.sampled_from(ACTIONS))}"
    if fields and draw(st.booleans()):
        name = draw(st.sampled_from(sorted(fields)) | st.text(max_size=8))
        fields[name] = draw(values)
        as_form = "form" in headers.get("content-type", "")
        text = urlencode(fields, doseq=True, errors="replace") if as_form else json.dumps(fields)
        return replace(request, headers=headers, body=text.encode("ascii"))
    if draw(st.booleans()):
        gone = draw(st.sampled_from(sorted(headers)))
        headers = {name: value for name, value in headers.items() if name != gone}
    if draw(st.booleans()):
        headers["content-type"] = draw(st.sampled_from(TYPES))
    path = draw(st.sampled_from([request.path, f"{request.path}/x", *PATHS]))
    query = draw(st.sampled_from(QUERIES))
    method = draw(st.sampled_from(METHODS))
    body = draw(st.just(request.body) | st.binary(max_size=40) | values.map(lambda value: json.dumps(value).encode()))
    return Request(method, path, query, headers, body)


@pytest.fixture(scope="module")
def a_ledger(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    directory: Path = tmp_path_factory.mktemp("presets")
    ledger = Ledger.create(directory / "ledger.db")
    for name in PRESETS:
        ledger.record_provider(name, contract_named(name).to_json(), None, None)
    return ledger


def read(reply: Reply) -> None:
    kind = reply.headers.get("content-type", "")
    if not reply.content:
        assert reply.status < 300
    elif "xml" in kind:
        ElementTree.fromstring(reply.content)
    else:
        assert "json" in kind
        assert isinstance(json.loads(reply.content), (dict, list))


@pytest.mark.parametrize("name", PRESETS)
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_anything_gets_a_document(name: str, data: st.DataObject, a_ledger: Ledger) -> None:
    """Bad input is answered as the provider answers it: bytes, wrong types, methods, paths and missing headers."""
    contract = contract_named(name)
    request = data.draw(requests(contract))
    path = f"{request.path}?{request.query}" if request.query else request.path
    reply = handle_http(a_ledger, name, contract, request.method, path, request.headers, request.body)
    assert 200 <= reply.status < 600
    read(reply)


@pytest.mark.parametrize("name", PRESETS)
def test_an_example_is_valid_and_its_documents_do_not_change(name: str, tmp_path: Path) -> None:
    """Documents are state: two ledgers with the same history must hold the same bytes."""
    contract = contract_named(name)
    contents = []
    for number in range(2):
        ledger = Ledger.create(tmp_path / f"{number}.db")
        ledger.record_provider(name, contract.to_json(), None, None)
        ledger.set_now(1_930_000_000.0 + number)
        request = dialect_of(contract).example(contract, "key")
        path = f"{request.path}?{request.query}" if request.query else request.path
        reply = handle_http(ledger, name, contract, request.method, path, request.headers, request.body)
        assert reply.status < 300, reply.content
        contents.append((reply.content, [effect.payload for effect in ledger.effects()]))
    assert contents[0] == contents[1]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_says_where_it_is_documented(name: str) -> None:
    """A fake is to be trusted as far as its sources, and told where it ends."""
    dialect = dialect_of(contract_named(name))
    assert all(address.startswith("https://") for address in dialect.source.split())
    assert dialect.source
    assert dialect.not_modelled
