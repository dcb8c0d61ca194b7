"""Named objects as the Kubernetes API server keeps them.

Sources: https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md
(names and generateName, resourceVersion and 409 Conflict, Status documents and their reasons),
https://kubernetes.io/docs/reference/using-api/api-concepts/ (verbs and paths).

A name is unique for its kind in its namespace, so it is the identity of a creation: a second one is refused with 409
AlreadyExists, whatever it asks for; that it is the one made before has to be read. `generateName` is no identity: each
request makes an object. An update names the `resourceVersion` it is for and is refused with 409 Conflict if that is
not the present one. A 500 says nothing about whether it was done.

Two contracts, since a fake has one identity of requests: `kubernetes` for creating, `kubernetes_update` for creating
and replacing (PUT). In both an object is there for ever.

Not modelled: deleting (a name is never free again), PATCH and server-side apply, updates without resourceVersion,
watches, admission, authentication, schemas. resourceVersion counts the versions of one object; the real one is opaque.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from once_fakes.contract import Contract
from once_fakes.dialect import Act, Ask, Dialect, Request, Shown
from once_fakes.presets.documents import instant, json_object, json_request
from once_fakes.reply import Refusal

_PATH = re.compile(
    r"(?P<collection>/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)/namespaces/(?P<namespace>[^/]+)/(?P<plural>[^/]+))"
    r"(?:/(?P<name>[^/]+))?"
)
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
"""What generated names end with: no vowels, so no words."""
_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    413: "RequestEntityTooLarge",
    422: "Invalid",
    500: "InternalError",
    503: "ServiceUnavailable",
}
_MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


@dataclass(frozen=True, slots=True)
class _Listed(Ask):
    """The objects of one kind: created below its path, replaced at their own."""

    plural: str = ""


class Kubernetes(Dialect):
    """Every namespace and kind there may be; kinds have the usual plural."""

    source = (
        "https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md"
    )
    not_modelled = "deleting, patches, updates without resourceVersion, watches, authentication, schemas"

    def understand(self, contract: Contract, request: Request) -> Act | Ask | Refusal:
        path = _PATH.fullmatch(request.path)
        if path is None:
            return Refusal("unknown_path", 404, "the server could not find the requested resource")
        if request.method in ("GET", "HEAD"):
            if path["name"] is None:
                where = {"apiVersion": _api(path), "metadata.namespace": path["namespace"]}
                return _Listed(where=where, plural=path["plural"])
            return Ask(reference=request.path)
        updating = request.method == "PUT" and path["name"] is not None and contract.dedup == "conditional"
        if not updating and (request.method != "POST" or path["name"] is not None):
            return Refusal("method_not_allowed", 405, "the server does not allow this method on the requested resource")
        payload = json_object(request)
        if isinstance(payload, Refusal):
            return payload
        return _replacing(path, payload) if updating else _creating(contract, path, payload)

    def document(self, contract: Contract, shown: Shown) -> dict[str, Any]:
        asked = shown.payload if isinstance(shown.payload, dict) else {}
        given = asked.get("metadata")
        metadata = dict(given) if isinstance(given, dict) else {}
        metadata.setdefault("name", f"{metadata.get('generateName', '')}{_suffix(shown.number)}")
        version = str(metadata.get("resourceVersion", "0"))
        metadata["resourceVersion"] = str(int(version) + 1 if re.fullmatch("[0-9]{1,18}", version) else 1)
        metadata |= {"uid": f"00000000-0000-4000-8000-{shown.number:012d}", "creationTimestamp": instant(shown.number)}
        return {**asked, "metadata": metadata}

    def identifier(self, contract: Contract, shown: Shown) -> str:
        path = shown.operation.partition(" ")[2]
        found = _PATH.fullmatch(path)
        return f"{found['collection'] if found else path}/{self.document(contract, shown)['metadata']['name']}"

    def status(self, contract: Contract, shown: Shown) -> int:
        return 200 if shown.operation.startswith("PUT ") else 201

    def listing(self, contract: Contract, documents: list[dict[str, Any]], ask: Ask) -> dict[str, Any]:
        plural = ask.plural if isinstance(ask, _Listed) else None
        kinds = [one for one in documents if plural in (None, _plural(str(one.get("kind"))))]
        kind = f"{kinds[0]['kind']}List" if kinds else "List"
        version = ask.where.get("apiVersion", "v1")
        return {"apiVersion": version, "kind": kind, "metadata": {"resourceVersion": "1"}, "items": kinds}

    def refusal(self, contract: Contract, refusal: Refusal) -> tuple[int, dict[str, Any]]:
        reason, message = _REASONS.get(refusal.status, "InternalError"), refusal.message
        details: dict[str, Any] = {}
        match refusal.kind:
            case "natural_conflict":
                # "POST <collection> metadata.name=<name>" is what it is recognised by.
                collection, _, name = (refusal.value or "").partition(" metadata.name=")
                details = {"name": name, "kind": collection.rpartition("/")[2]}
                reason, message = "AlreadyExists", f'{details["kind"]} "{name}" already exists'
            case "precondition_failed" if refusal.value == "":
                reason, message = "AlreadyExists", "the object already exists"
            case "precondition_failed":
                message = f"Operation cannot be fulfilled: {_MODIFIED}"
            case "not_found":
                plural, _, name = (refusal.value or "").rpartition("/")
                details = {"name": name, "kind": plural.rpartition("/")[2]}
                message = f'{details["kind"]} "{name}" not found'
            case "invalid":
                details = {"causes": [{"reason": "FieldValueInvalid", "message": message, "field": refusal.param}]}
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
        return refusal.status, {**status, "reason": reason, "details": details, "code": refusal.status}

    def example(self, contract: Contract, key: str | None, variant: int = 0) -> Request:
        named = {"generateName": "pump-"} if key is None else {"name": _named(key)}
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": named,
            "data": {"litres": str(100 + variant)},
        }
        return json_request("POST", "/api/v1/namespaces/plant/configmaps", body)

    def example_lookup(self, contract: Contract, reference: str | None) -> Request:
        path = "/api/v1/namespaces/plant/configmaps"
        if reference is not None:
            path = reference if reference.startswith("/") else f"{path}/{_named(reference)}"
        return Request("GET", path, "", {}, b"")


KUBERNETES_DIALECT = Kubernetes()

KUBERNETES = Contract(
    name="kubernetes",
    dialect="once_fakes.presets.kubernetes:KUBERNETES_DIALECT",
    dedup="natural_key",
    natural_key_field="metadata.name",
    lookup="by_client_ref",
    reference_field="metadata.name",
)
"""Creating: the name is the identity; a request with generateName has none, and acts."""

KUBERNETES_UPDATE = Contract(
    name="kubernetes_update",
    dialect="once_fakes.presets.kubernetes:KUBERNETES_DIALECT",
    dedup="conditional",
    version_field="metadata.resourceVersion",
    lookup="by_client_ref",
    reference_field="metadata.name",
)
"""Creating and replacing: an update is for the version that it names."""


def _creating(contract: Contract, path: re.Match[str], payload: dict[str, Any]) -> Act | Refusal:
    metadata = _metadata(path, payload)
    if isinstance(metadata, Refusal):
        return metadata
    name = metadata.get("name")
    if "resourceVersion" in metadata:
        return Refusal("invalid", 422, "resourceVersion should not be set on objects to be created", "metadata")
    if name is None and isinstance(metadata.get("generateName"), str) and metadata["generateName"]:
        return Act(f"POST {path['collection']}", {**payload, "metadata": metadata})
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        wrong = Refusal("invalid", 422, "name or generateName is required, a lowercase RFC 1123 name", "metadata.name")
        return Act(f"POST {path['collection']}", {**payload, "metadata": {**metadata, "name": None}}, invalid=wrong)
    if contract.dedup == "conditional":
        return Act(f"POST {path['collection']}/{name}", {**payload, "metadata": metadata}, precondition="")
    return Act(f"POST {path['collection']}", {**payload, "metadata": metadata})


def _replacing(path: re.Match[str], payload: dict[str, Any]) -> Act | Refusal:
    metadata = _metadata(path, payload)
    if isinstance(metadata, Refusal):
        return metadata
    if metadata.setdefault("name", path["name"]) != path["name"]:
        return Refusal("malformed", 400, "the name of the object does not match the name on the URL")
    version = metadata.get("resourceVersion")
    if not isinstance(version, str) or version in ("", "0"):
        return Refusal("invalid", 422, "must be specified for an update", "metadata.resourceVersion")
    place = f"PUT {path['collection']}/{path['name']}"
    return Act(place, {**payload, "metadata": metadata}, precondition=version)


def _metadata(path: re.Match[str], payload: dict[str, Any]) -> dict[str, Any] | Refusal:
    """The object's metadata with its namespace, if the object belongs where it is sent to."""
    metadata = payload.get("metadata", {})
    if not isinstance(metadata, dict):
        return Refusal("malformed", 400, "metadata must be an object")
    if payload.get("apiVersion") != _api(path) or _plural(str(payload.get("kind"))) != path["plural"]:
        message = f"the API version and kind in the data do not match {_api(path)}, {path['plural']}"
        return Refusal("malformed", 400, message)
    if metadata.get("namespace", path["namespace"]) != path["namespace"]:
        return Refusal("malformed", 400, "the namespace of the provided object does not match the namespace sent")
    return {**metadata, "namespace": path["namespace"]}


def _api(path: re.Match[str]) -> str:
    return path["version"] if path["group"] is None else f"{path['group']}/{path['version']}"


def _plural(kind: str) -> str:
    """The resource's name in paths, as clients guess it."""
    lower = kind.lower()
    if lower.endswith("y"):
        return f"{lower[:-1]}ies"
    return f"{lower}es" if lower.endswith("s") else f"{lower}s"


def _named(key: str) -> str:
    return re.sub(r"[^-a-z0-9.]", "-", key.lower()).strip("-.") or "pump"


def _suffix(number: int) -> str:
    """Five characters, another for every number."""
    found = ""
    for _ in range(5):
        number, digit = divmod(number, len(_SUFFIX))
        found = _SUFFIX[digit] + found
    return found
