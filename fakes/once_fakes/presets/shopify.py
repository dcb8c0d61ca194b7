"""Shopify's GraphQL Admin API: `inventoryAdjustQuantities` with the directive `@idempotent`.

Sources: https://shopify.dev/docs/api/usage/implementing-idempotency (24 hours; a key that is found later than that is
a new request; replies are built from the present state; userErrors with IDEMPOTENCY_KEY_PARAMETER_MISMATCH and
IDEMPOTENCY_CONCURRENT_REQUEST), https://shopify.dev/docs/api/usage/idempotent-requests (the directive),
https://shopify.dev/docs/api/admin-graphql/latest/mutations/inventoryAdjustQuantities (fields and errors; the directive
is required from version 2026-04 on), https://shopify.dev/docs/api/admin-graphql (status codes).

Refusals of what was asked are HTTP 200: `userErrors` of the mutation, or top-level `errors`. A client that looks at the
status alone takes them for success.

Not modelled: other mutations, queries, stock levels, throttling, selection sets (all fields are answered), the code
IDEMPOTENCY_PREVIOUS_ATTEMPT_FAILED.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from once_fakes.contract import Contract
from once_fakes.dialect import Act, Ask, Dialect, Request, Shown
from once_fakes.presets.documents import instant, json_object, json_request
from once_fakes.presets.graphql import call_in
from once_fakes.reply import Refusal

MUTATION = "inventoryAdjustQuantities"

_ENDPOINT = re.compile(r"/admin/api/(?:\d{4}-\d{2}|unstable)/graphql\.json")
_USER_ERRORS = {
    "mismatch": (
        "IDEMPOTENCY_KEY_PARAMETER_MISMATCH",
        "The same idempotency key cannot be used with different operation parameters.",
    ),
    "concurrent": (
        "IDEMPOTENCY_CONCURRENT_REQUEST",
        "This request is currently in progress, please try again.",
    ),
    "declined": ("NON_MUTABLE_INVENTORY_ITEM", "The specified inventory item is not allowed to be adjusted via API."),
}
_TRANSPORT = {
    "unauthorized": "[API] Invalid API key or access token (unrecognized login or wrong password)",
    "unknown_path": "Not Found",
    "not_found": "Not Found",
    "method_not_allowed": "Not Acceptable",
    "too_large": "Payload Too Large",
    "unavailable": "Service Unavailable",
    "failed": "An unexpected error occurred",
}
"""Refusals with an error status, from in front of GraphQL."""


class Shopify(Dialect):
    """One shop, every item and location of which exists."""

    source = "https://shopify.dev/docs/api/usage/implementing-idempotency"
    not_modelled = "every mutation but inventoryAdjustQuantities; queries, stock levels, throttling, selection sets"

    def understand(self, contract: Contract, request: Request) -> Act | Ask | Refusal:
        if not _ENDPOINT.fullmatch(request.path):
            return Refusal("unknown_path", 404, "")
        if request.method != "POST":
            return Refusal("method_not_allowed", 406, "")
        token = request.headers.get("x-shopify-access-token", "")
        account = request.account or replace(request, headers={"authorization": token} if token else {}).account
        if not account:
            return Refusal("unauthorized", 401, "")
        body = json_object(request)
        if isinstance(body, Refusal):
            return body
        document, variables = body.get("query"), body.get("variables") or {}
        if not isinstance(document, str) or not isinstance(variables, dict):
            return Refusal("malformed", 400, "")
        try:
            call = call_in(document, variables)
        except ValueError as error:
            return Refusal("syntax", 200, f"syntax error, {error}")
        if (call.kind, call.field) != ("mutation", MUTATION):
            message = (
                f"Field '{call.field}' doesn't exist on type '{'Mutation' if call.kind == 'mutation' else 'QueryRoot'}'"
            )
            return Refusal("unknown_field", 200, message, call.field)
        key = call.directives.get("idempotent", {}).get("key")
        if key is not None and not isinstance(key, str):
            return Refusal(
                "syntax", 200, "Argument 'key' on Directive 'idempotent' has an invalid value. Expected 'String!'."
            )
        return Act(
            f"mutation {MUTATION}",
            dict(call.arguments),
            key,
            invalid=_invalid(call.arguments.get("input")),
            account=account,
        )

    def document(self, contract: Contract, shown: Shown) -> dict[str, Any]:
        asked = shown.payload.get("input") if isinstance(shown.payload, dict) else None
        given = asked if isinstance(asked, dict) else {}
        changes = given.get("changes")
        group = {
            "id": f"gid://shopify/InventoryAdjustmentGroup/{shown.number}",
            "createdAt": instant(shown.number),
            "reason": given.get("reason"),
            "referenceDocumentUri": given.get("referenceDocumentUri"),
            "changes": [
                {
                    "name": given.get("name"),
                    "delta": change.get("delta"),
                    "item": {"id": change.get("inventoryItemId")},
                    "location": {"id": change.get("locationId")},
                }
                for change in (changes if isinstance(changes, list) else [])
                if isinstance(change, dict)
            ],
        }
        return _answer(group, [])

    def identifier(self, contract: Contract, shown: Shown) -> str:
        return f"gid://shopify/InventoryAdjustmentGroup/{shown.number}"

    def refusal(self, contract: Contract, refusal: Refusal) -> tuple[int, dict[str, Any]]:
        if refusal.kind in _TRANSPORT:
            return refusal.status, {"errors": _TRANSPORT[refusal.kind]}
        if refusal.kind == "malformed":
            return 400, {"errors": {"query": "Required parameter missing or invalid"}}
        if refusal.kind in _USER_ERRORS:
            code, message = _USER_ERRORS[refusal.kind]
            return 200, _answer(None, [{"code": code, "field": None, "message": message}])
        if refusal.kind == "invalid":
            code, _, field = (refusal.param or "").partition(" ")
            return 200, _answer(
                None, [{"code": code, "field": field.split(".") if field else None, "message": refusal.message}]
            )
        error: dict[str, Any] = {"message": refusal.message, "locations": [{"line": 1, "column": 1}]}
        match refusal.kind:
            case "key_missing":
                error["message"] = "The @idempotent directive is required for this mutation but was not provided."
                error |= {"extensions": {"code": "BAD_REQUEST"}, "path": [MUTATION]}
            case "unknown_field":
                error["extensions"] = {"code": "undefinedField", "typeName": "Mutation", "fieldName": refusal.param}
            case "key_too_long" | "key_unusable":
                error["extensions"] = {"code": "BAD_REQUEST"}
        return 200, {"errors": [error]}

    def example(self, contract: Contract, key: str | None, variant: int = 0) -> Request:
        directive = "" if key is None else " @idempotent(key: $key)"
        document = (
            "mutation Adjust($input: InventoryAdjustQuantitiesInput!, $key: String!) {"
            f" {MUTATION}(input: $input){directive}"
            " { inventoryAdjustmentGroup { id } userErrors { code field message } } }"
        )
        change = {
            "delta": 5 + variant,
            "inventoryItemId": "gid://shopify/InventoryItem/30322695",
            "locationId": "gid://shopify/Location/124656943",
        }
        adjusted = {"reason": "correction", "name": "available", "changes": [change]}
        body = {"query": document, "variables": {"input": adjusted, "key": key}}
        return json_request("POST", "/admin/api/2026-04/graphql.json", body, {"x-shopify-access-token": "shpat_token"})


SHOPIFY_DIALECT = Shopify()

SHOPIFY = Contract(
    name="shopify",
    dialect="once_fakes.presets.shopify:SHOPIFY_DIALECT",
    key_field="@idempotent(key:)",
    scope=("account",),
    on_concurrent="reject",
    on_missing_key="error",
    replay_body="current_state",
    replay_header="",
    retention_s=86400.0,
)
"""The key of the directive, for 24 hours; a repetition is answered from the present state."""


def _answer(group: dict[str, Any] | None, errors: list[dict[str, Any]]) -> dict[str, Any]:
    return {"data": {MUTATION: {"inventoryAdjustmentGroup": group, "userErrors": errors}}}


def _invalid(asked: object) -> Refusal | None:
    """param: the error's code and the path of the field that is wrong."""
    if not isinstance(asked, dict) or not isinstance(asked.get("changes"), list):
        return Refusal(
            "variable", 200, "Variable $input of type InventoryAdjustQuantitiesInput! was provided invalid value"
        )
    if asked.get("name") in ("on_hand", None) or not isinstance(asked["name"], str):
        return Refusal("invalid", 200, "The specified quantity name is invalid.", "INVALID_QUANTITY_NAME input.name")
    if not isinstance(asked.get("reason"), str):
        return Refusal("invalid", 200, "The specified reason is invalid.", "INVALID_REASON input.reason")
    for number, change in enumerate(asked["changes"]):
        where = f"input.changes.{number}"
        if not isinstance(change, dict) or type(change.get("delta")) is not int:
            return Refusal("variable", 200, "Variable $input was provided invalid value for changes.delta")
        for field, code in (("inventoryItemId", "INVALID_INVENTORY_ITEM"), ("locationId", "INVALID_LOCATION")):
            if not str(change.get(field)).startswith("gid://shopify/"):
                return Refusal("invalid", 200, "The specified object could not be found.", f"{code} {where}.{field}")
    return None
