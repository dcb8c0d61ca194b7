"""Amazon EC2's RunInstances with a ClientToken: the query protocol, answered in XML.

Not modelled: see `Ec2.not_modelled`. Sources: `Ec2.source`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode
from xml.sax.saxutils import escape

from once_fakes.contract import Contract
from once_fakes.dialect import Act, Ask, Dialect, Request, Shown
from once_fakes.presets.bodies import form_fields, made_at, texts, uuid_of
from once_fakes.reading import form_of
from once_fakes.reply import Refusal

_RUN = "RunInstances /"
_NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
_OWNER = "123456789012"
_CODES = {
    "unauthorized": "AuthFailure",
    "unknown_action": "InvalidAction",
    "field_missing": "MissingParameter",
    "mismatch": "IdempotentParameterMismatch",
    "concurrent": "RequestInProgress",
    "dry_run": "DryRunOperation",
    "not_found": "InvalidInstanceID.NotFound",
    "unknown_path": "InvalidAction",
    "method_not_allowed": "InvalidAction",
    "malformed": "MalformedQueryString",
    "too_large": "RequestEntityTooLarge",
    "failed": "InternalError",
    "unavailable": "Unavailable",
    "declined": "InsufficientInstanceCapacity",
}
_OF_ONE_ATTEMPT = re.compile("Action|Version|ClientToken|DryRun|AWSAccessKeyId|Signature.*|Timestamp|Expires|X-Amz-.*")
_FILTER = re.compile(r"Filter\.(\d+)\.(?:Name|Value\.\d+)")
_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SIGNED = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20300101/us-east-1/ec2/aws4_request, SignedHeaders=host, Signature=0"


@dataclass(frozen=True, slots=True)
class Described(Ask):
    """DescribeInstances: those of these ids (all if there are none) that pass these filters."""

    ids: tuple[str, ...] = ()
    filters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Ec2(Dialect):
    """The actions RunInstances and DescribeInstances."""

    source = (
        "https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html"
        " https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html"
        " https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RunInstances.html"
        " https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/AboutTimestamp.html"
    )
    not_modelled = (
        "signatures are not checked, and all access keys are one account; the other actions do not exist, so an"
        " instance is never terminated; instances are running at once; of the filters client-token and instance-id"
        " are known; what a concurrent repetition is refused with is not documented, so the code RequestInProgress is"
        " made up"
    )

    def understand(self, contract: Contract, request: Request) -> Act | Ask | Refusal:
        if request.method not in ("GET", "HEAD", "POST"):
            return Refusal("method_not_allowed", 405, f"The HTTP method {request.method} is not supported.")
        if request.path != "/":
            return Refusal("unknown_path", 404, f"There is no resource {request.path}.")
        asked = form_of(request.query)
        if request.method == "POST":
            form = form_fields(request)
            if isinstance(form, Refusal):
                return form
            asked |= form
        fields = texts(asked)
        if not request.account and "X-Amz-Credential" not in fields:
            message = "AWS was not able to validate the provided access credentials"
            return Refusal("unauthorized", 401, message)
        action = fields.get("Action")
        if action == "DescribeInstances":
            return _described(fields)
        if action == "RunInstances" and request.method == "POST":
            return self._run(contract, request, asked, fields)
        if action is None:
            return Refusal("field_missing", 400, "The request must contain the parameter Action", "Action")
        return Refusal("unknown_action", 400, f"The action {action} is not valid for this web service.")

    def _run(
        self, contract: Contract, request: Request, asked: Mapping[str, Any], fields: Mapping[str, str]
    ) -> Act | Refusal:
        if fields.get("DryRun", "").lower() == "true":
            message = "Request would have succeeded, but DryRun flag is set."
            return Refusal("dry_run", 412, message)
        payload = {name: value for name, value in asked.items() if not _OF_ONE_ATTEMPT.fullmatch(name)}
        token = fields.get(str(contract.key_field))
        return Act(_RUN, payload, token, invalid=_invalid(fields), region=request.region)

    def document(self, contract: Contract, shown: Shown) -> dict[str, Any]:
        asked = texts(shown.payload)
        count = asked.get("MaxCount", "1")
        return {
            "reservationId": f"r-{shown.number:017x}",
            "ownerId": _OWNER,
            "instancesSet": [
                {
                    "instanceId": f"i-{shown.number * 1000 + index:017x}",
                    "imageId": asked.get("ImageId", ""),
                    "instanceState": {"code": 16, "name": "running"},
                    "instanceType": asked.get("InstanceType", "m1.small"),
                    "clientToken": shown.reference or "",
                    "launchTime": made_at(shown.number).strftime("%Y-%m-%dT%H:%M:%S.000Z"),
                }
                for index in range(int(count) if re.fullmatch("[0-9]{1,3}", count) else 1)
            ],
        }

    def identifier(self, contract: Contract, shown: Shown) -> str:
        return f"i-{shown.number * 1000:017x}"

    def answer(self, contract: Contract, shown: Shown) -> dict[str, Any]:
        return {"RunInstancesResponse": {"requestId": uuid_of(shown.number), **self.document(contract, shown)}}

    def listing(self, contract: Contract, documents: list[dict[str, Any]], ask: Ask) -> dict[str, Any]:
        if isinstance(ask, Described):
            documents = [one for one in documents if all(_passes(one, ask, name) for name in ("ids", *ask.filters))]
        return {"DescribeInstancesResponse": {"requestId": uuid_of(0), "reservationSet": documents}}

    def refusal(self, contract: Contract, refusal: Refusal) -> tuple[int, dict[str, Any]]:
        code = _CODES.get(refusal.kind, "InvalidParameterValue")
        status = 400 if refusal.kind in ("not_found", "declined") else refusal.status
        error = {"Code": code, "Message": refusal.message}
        return status, {"Response": {"Errors": {"Error": error}, "RequestID": uuid_of(0)}}

    def encode(self, body: dict[str, Any]) -> tuple[str, bytes]:
        if "reservationId" in body:
            body = {"DescribeInstancesResponse": {"requestId": uuid_of(0), "reservationSet": [body]}}
        ((root, content),) = body.items()
        space = f' xmlns="{_NAMESPACE}"' if root != "Response" else ""
        text = f'<?xml version="1.0" encoding="UTF-8"?>\n<{root}{space}>{_xml(content)}</{root}>'
        return "text/xml;charset=UTF-8", text.encode()

    def example(self, contract: Contract, key: str | None, variant: int = 0) -> Request:
        asked = {
            "Action": "RunInstances",
            "Version": "2016-11-15",
            "ImageId": f"ami-{variant:08x}",
            "MinCount": "1",
            "MaxCount": "1",
        }
        if key is not None:
            asked["ClientToken"] = key
        return _request(asked)

    def example_lookup(self, contract: Contract, reference: str | None) -> Request:
        asked = {"Action": "DescribeInstances", "Version": "2016-11-15"}
        if reference is not None:
            asked |= {"Filter.1.Name": "client-token", "Filter.1.Value.1": reference}
        return _request(asked)


def _request(asked: Mapping[str, str]) -> Request:
    headers = {"content-type": "application/x-www-form-urlencoded; charset=utf-8", "authorization": _SIGNED}
    return Request("POST", "/", "", headers, urlencode(asked).encode("ascii"))


def _described(fields: Mapping[str, str]) -> Ask | Refusal:
    ids = tuple(value for name, value in fields.items() if name.startswith("InstanceId."))
    if len(ids) == 1:
        return Ask(place=_RUN, reference=ids[0])
    filters: dict[str, tuple[str, ...]] = {}
    for number in sorted({found[1] for name in fields if (found := _FILTER.fullmatch(name))}):
        named = fields.get(f"Filter.{number}.Name", "")
        if named not in ("client-token", "instance-id"):
            return Refusal("invalid", 400, f"The filter '{named}' is invalid", f"Filter.{number}.Name")
        filters[named] = tuple(v for name, v in fields.items() if name.startswith(f"Filter.{number}.Value."))
    return Described(_RUN, ids=ids, filters=filters)


def _passes(reservation: Mapping[str, Any], ask: Described, name: str) -> bool:
    if name == "ids" and not ask.ids:
        return True
    wanted = ask.ids if name == "ids" else ask.filters[name]
    shown = "clientToken" if name == "client-token" else "instanceId"
    return any(instance[shown] in wanted for instance in reservation["instancesSet"])


def _invalid(fields: Mapping[str, str]) -> Refusal | None:
    for name in ("MinCount", "MaxCount"):
        if name not in fields:
            return Refusal("field_missing", 400, f"The request must contain the parameter {name}", name)
        if not re.fullmatch("[1-9][0-9]{0,2}", fields[name]):
            message = f"Value ({fields[name]}) for parameter {name} is invalid."
            return Refusal("invalid", 400, message, name)
    if int(fields["MinCount"]) > int(fields["MaxCount"]):
        return Refusal("invalid", 400, "MinCount is greater than MaxCount.", "MinCount")
    if "ImageId" not in fields and not any(name.startswith("LaunchTemplate.") for name in fields):
        return Refusal("field_missing", 400, "The request must contain the parameter ImageId", "ImageId")
    return None


def _xml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "".join(f"<{name}>{_xml(content)}</{name}>" for name, content in value.items())
    if isinstance(value, list):
        return "".join(f"<item>{_xml(one)}</item>" for one in value)
    return escape(_NOT_XML.sub("\ufffd", str(value)))


DIALECT = Ec2()

EC2 = Contract(
    name="ec2",
    dialect="once_fakes.presets.ec2:DIALECT",
    key_field="ClientToken",
    max_key_length=64,
    scope=("region",),
    mismatch_status=400,
    on_concurrent="unspecified",
    replay_body="current_state",
    replay_header="",
    retention_s="unspecified",
    lookup="by_key",
    visibility_lag_s=300.0,
    request_lifetime_s=900.0,
)
"""RunInstances by ClientToken, within a region. How long a token is kept is not documented; look-ups lag by minutes."""
