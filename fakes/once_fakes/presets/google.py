"""A Google API with `request_id` (AIP-155) and long-running operations (AIP-151): creating a resource.

Sources: https://google.aip.dev/155 (request_id: optional, a UUID; "providing a request ID must guarantee idempotency";
a duplicate gets the response of the earlier success, or the present state where that cannot be given),
https://google.aip.dev/151 and https://cloud.google.com/apis/design/errors (operations, error documents),
https://cloud.google.com/compute/docs/reference/rest/v1/instances/insert (the zero UUID is refused). Services that say
how long identifiers are honoured say "at least 60 minutes", such as
https://cloud.google.com/python/docs/reference/batch/latest/google.cloud.batch_v1.types.DeleteJobRequest.

POST /v1/<parent>/<collection>?<resource>Id=…&requestId=…, the identifier in the query or in the body, answers HTTP 200
with an operation that is not done; GET /v1/operations/… says what became of it, GET /v1/operations lists all, GET
/v1/<parent>/<collection> lists what exists. What happens to another request under a known identifier is not
documented. Concurrent ones cannot race, by the guarantee; they are taken one after the other.

Not modelled: resource identifiers that exist already, authentication, cancelling, deleting, filters and pages.
"""

from __future__ import annotations

import re
import uuid
from typing import Any
from urllib.parse import quote

from once_fakes.contract import Contract
from once_fakes.dialect import Act, Ask, Dialect, Request, Shown
from once_fakes.presets.documents import instant, json_object, json_request
from once_fakes.reading import form_of
from once_fakes.reply import Refusal

_COLLECTION = re.compile(r"/v\d+\w*/((?:[^/]+/[^/]+/)*)([a-z][A-Za-z]*)")
_OPERATION = re.compile(r"/v\d+\w*/operations(?:/([^/]+))?")
_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_REQUEST_IDS = ("requestId", "request_id")
_STATES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
_FAILED = {"code": 13, "message": "An internal error occurred; the resource was not created."}


class Google(Dialect):
    """Any collection below any parent."""

    source = "https://google.aip.dev/155"
    not_modelled = "resource identifiers that exist already, authentication, cancelling, deleting, filters and pages"

    def understand(self, contract: Contract, request: Request) -> Act | Ask | Refusal:
        polled = _OPERATION.fullmatch(request.path)
        collection = _COLLECTION.fullmatch(request.path)
        if request.method in ("GET", "HEAD"):
            if polled is not None:
                return Ask(reference=polled[1])
            if collection is not None:
                return Ask(f"POST {request.path}")
        if collection is None or request.method != "POST":
            return Refusal("unknown_path", 404, f"Method not found: {request.method} {request.path}.")
        body = json_object(request)
        if isinstance(body, Refusal):
            return body
        query = form_of(request.query)
        given = [where.pop(name) for where in (query, body) for name in _REQUEST_IDS if name in where]
        key = given[0] if given else None
        if key is not None and not (isinstance(key, str) and (key == "" or _is_usable(key))):
            return Refusal("key_unusable", 400, "request_id must be a UUID, and not the zero UUID.", "request_id")
        payload = {**body, "?": query} if query else body
        return Act(f"POST {request.path}", payload, key, account=request.account)

    def document(self, contract: Contract, shown: Shown) -> dict[str, Any]:
        path = shown.operation.removeprefix("POST ")
        asked = shown.payload if isinstance(shown.payload, dict) else {}
        query = asked.get("?")
        named = [value for name, value in (query or {}).items() if name.endswith(("Id", "_id"))] if query else []
        collection = path.partition("/v")[2].partition("/")[2] or "resources"
        name = f"{collection}/{named[0] if named else shown.number}"
        operation: dict[str, Any] = {
            "name": f"operations/{self.identifier(contract, shown)}",
            "metadata": {"createTime": instant(shown.number), "target": name, "verb": "create", "apiVersion": "v1"},
            "done": shown.state != "pending",
        }
        if shown.state == "failed":
            operation["error"] = _FAILED
        elif shown.state == "done":
            kind = name.split("/")[-2].removesuffix("s").capitalize()
            resource = {field: value for field, value in asked.items() if field != "?"}
            operation["response"] = {
                "@type": f"type.googleapis.com/example.v1.{kind}",
                **resource,
                "name": name,
                "createTime": instant(shown.number),
            }
        return operation

    def identifier(self, contract: Contract, shown: Shown) -> str:
        return f"operation-{shown.number}"

    def status(self, contract: Contract, shown: Shown) -> int:
        return 200

    def listing(self, contract: Contract, documents: list[dict[str, Any]], ask: Ask) -> dict[str, Any]:
        if ask.place is None:
            return {"operations": documents}
        collection = ask.place.rpartition("/")[2]
        made = [one["response"] for one in documents if "response" in one]
        return {
            collection: [{name: value for name, value in one.items() if name != "@type"} for one in made],
        }

    def refusal(self, contract: Contract, refusal: Refusal) -> tuple[int, dict[str, Any]]:
        # 422, 413 and 405 are not among the statuses that Google's codes map to.
        status = refusal.status if refusal.status in _STATES else 400
        error: dict[str, Any] = {"code": status, "message": refusal.message, "status": _STATES[status]}
        if refusal.param is not None:
            violation = {"field": refusal.param, "description": refusal.message}
            kind = "type.googleapis.com/google.rpc.BadRequest"
            error["details"] = [{"@type": kind, "fieldViolations": [violation]}]
        return status, {"error": error}

    def example(self, contract: Contract, key: str | None, variant: int = 0) -> Request:
        query = "pumpId=pump7"
        if key is not None:
            # A key that is too long stays as it is.
            identifier = key if len(key) > contract.max_key_length else str(uuid.uuid5(uuid.NAMESPACE_URL, key))
            query = f"pumpId={quote(key, safe='')}&requestId={quote(identifier, safe='')}"
        path = "/v1/projects/plant/locations/north/pumps"
        return json_request("POST", path, {"litres": 100 + variant}, query=query)

    def example_lookup(self, contract: Contract, reference: str | None) -> Request:
        path = "/v1/operations" if reference is None else f"/v1/operations/{quote(reference, safe='')}"
        return Request("GET", path, "", {}, b"")


GOOGLE = Google()

GOOGLE_REQUEST_ID = Contract(
    name="google_request_id",
    dialect="once_fakes.presets.google:GOOGLE",
    key_field="requestId",
    max_key_length=36,
    scope=("account",),
    on_mismatch="unspecified",
    mismatch_status=400,
    replay_body="current_state",
    replay_header="",
    retention_s=(3600.0, None),
    lookup="list_only",
    acceptance="async202",
)
"""A UUID of the client's, honoured for 60 minutes at least; the answer is an operation, which may still fail."""


def _is_usable(key: str) -> bool:
    return bool(_UUID.fullmatch(key)) and uuid.UUID(key).int != 0
