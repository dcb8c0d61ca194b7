"""GitHub's REST API for issues: creating, reading, listing, searching.

Sources: https://docs.github.com/en/rest/issues/issues (create, get, list), https://docs.github.com/en/rest/search/search
(search), https://docs.github.com/en/rest/using-the-rest-api/troubleshooting-the-rest-api (error documents).

Creating an issue takes no idempotency key, and two issues may be equal in everything: each request acts. What may be
asked afterwards is a list, the newest first and in pages, a search, or one issue by its number.

Not modelled: comments, changes of an issue, rate limits, permissions. GitHub gives no bound for how late an issue
appears in lists and searches; VISIBILITY_LAG_S stands for it, and the fault of a stale look-up is explored besides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from once_fakes.contract import Contract
from once_fakes.dialect import Act, Ask, Dialect, Request, Shown
from once_fakes.presets.documents import instant, json_object, json_request
from once_fakes.reading import form_of
from once_fakes.reply import Refusal

VISIBILITY_LAG_S = 60.0
PAGE_SIZE = 30
MAX_PAGE_SIZE = 100

_ISSUES = re.compile(r"/repos/([^/]+)/([^/]+)/issues(?:/([^/]+))?")
_TEXTS = ("title", "body")
_LISTS = ("labels", "assignees")
_QUALIFIERS = ("repo", "is", "state", "label", "in", "type")
_MESSAGES = {
    "unauthorized": "Requires authentication",
    "malformed": "Problems parsing JSON",
    "not_found": "Not Found",
    "unknown_path": "Not Found",
    "method_not_allowed": "Not Found",
    "failed": "Server Error",
    "unavailable": "Service unavailable",
}


@dataclass(frozen=True, slots=True)
class _Listed(Ask):
    """A page of a list or, if words is not None, of a search for them. labels: all of them must be there."""

    size: int = PAGE_SIZE
    page: int = 1
    state: str = "open"
    labels: tuple[str, ...] = ()
    words: tuple[str, ...] | None = None


class GitHub(Dialect):
    """Issues of any repository; each that is named exists."""

    source = "https://docs.github.com/en/rest/issues/issues"
    not_modelled = "comments, changes of an issue, rate limits, permissions"

    def understand(self, contract: Contract, request: Request) -> Act | Ask | Refusal:
        if not request.account:
            return Refusal("unauthorized", 401, "")
        found = _ISSUES.fullmatch(request.path)
        if request.method == "POST" and found is not None and found[3] is None:
            payload = json_object(request)
            if isinstance(payload, Refusal):
                return payload
            return Act(f"POST {request.path}", payload, invalid=_invalid(payload), account=request.account)
        if request.method in ("GET", "HEAD"):
            query = {
                name: value if isinstance(value, str) else value[-1] for name, value in form_of(request.query).items()
            }
            if found is not None:
                place = f"POST /repos/{found[1]}/{found[2]}/issues"
                return _list(place, query) if found[3] is None else Ask(place, found[3])
            if request.path == "/search/issues":
                return _search(query)
        return Refusal("unknown_path", 404, "")

    def document(self, contract: Contract, shown: Shown) -> dict[str, Any]:
        match = _ISSUES.search(shown.operation)
        owner, repository = (match[1], match[2]) if match else ("octocat", shown.provider)
        web = f"https://github.com/{owner}/{repository}/issues/{shown.number}"
        payload = shown.payload if isinstance(shown.payload, dict) else {}
        return {
            "id": 3_000_000_000 + shown.number,
            "node_id": f"I_{shown.number}",
            "number": shown.number,
            "url": f"https://api.github.com/repos/{owner}/{repository}/issues/{shown.number}",
            "repository_url": f"https://api.github.com/repos/{owner}/{repository}",
            "html_url": web,
            "title": payload.get("title"),
            "body": payload.get("body"),
            "state": "open",
            "state_reason": None,
            "locked": False,
            "comments": 0,
            "user": {"login": "octocat", "id": 1, "type": "User", "site_admin": False},
            "labels": [{"name": name} for name in _names(payload.get("labels"))],
            "assignees": [{"login": name} for name in _names(payload.get("assignees"))],
            "created_at": instant(shown.number),
            "updated_at": instant(shown.number),
            "closed_at": None,
        }

    def identifier(self, contract: Contract, shown: Shown) -> str:
        return str(shown.number)

    def status(self, contract: Contract, shown: Shown) -> int:
        return 201

    def listing(self, contract: Contract, documents: list[dict[str, Any]], ask: Ask) -> dict[str, Any]:
        if not isinstance(ask, _Listed):
            return {"items": documents[::-1]}
        found = [one for one in reversed(documents) if _matches(one, ask)]
        start = (ask.page - 1) * ask.size
        page = found[start : start + ask.size]
        if ask.words is None:
            return {"items": page}
        return {"total_count": len(found), "incomplete_results": False, "items": page}

    def encode(self, body: dict[str, Any]) -> tuple[str, bytes]:
        kind, encoded = super().encode(body)
        if body.keys() == {"items"}:  # a list is a JSON array
            encoded = encoded.removeprefix(b'{"items": ').removesuffix(b"}")
        return f"{kind}; charset=utf-8", encoded

    def refusal(self, contract: Contract, refusal: Refusal) -> tuple[int, dict[str, Any]]:
        # A method that an address does not know is an address that is not known.
        status = 404 if refusal.kind == "method_not_allowed" else refusal.status
        document: dict[str, Any] = {
            "message": _MESSAGES.get(refusal.kind, refusal.message),
            "documentation_url": "https://docs.github.com/rest/issues/issues#create-an-issue",
            "status": str(status),
        }
        return status, document

    def example(self, contract: Contract, key: str | None, variant: int = 0) -> Request:
        body = {"title": "Pump 7 leaks", "body": f"case {key or 'none'}, part {variant}"}
        return json_request("POST", "/repos/octocat/pumps/issues", body, {"authorization": "Bearer token"})

    def example_lookup(self, contract: Contract, reference: str | None) -> Request:
        path = "/repos/octocat/pumps/issues" + ("" if reference is None else f"/{quote(reference, safe='')}")
        return Request("GET", path, "", {"authorization": "Bearer token"}, b"")


GITHUB = GitHub()

GITHUB_ISSUES = Contract(
    name="github_issues",
    dialect="once_fakes.presets.github:GITHUB",
    dedup="none",
    lookup="list_only",
    visibility_lag_s=VISIBILITY_LAG_S,
)
"""No key, no natural identity; a list and a search that lag."""


def _invalid(payload: dict[str, Any]) -> Refusal | None:
    if payload.get("title") in (None, ""):
        return Refusal("invalid", 422, 'Invalid request.\n\n"title" wasn\'t supplied.', "title")
    for name in _TEXTS:
        if not isinstance(payload.get(name, ""), (str, int, type(None))):
            return Refusal("invalid", 422, f"Invalid request.\n\nFor 'properties/{name}', it is not a string.", name)
    for name in _LISTS:
        if not isinstance(payload.get(name, []), list):
            return Refusal("invalid", 422, f"Invalid request.\n\nFor 'properties/{name}', it is not an array.", name)
    return None


def _names(given: object) -> list[str]:
    """Labels and assignees are texts, or objects with a name."""
    named = [one.get("name") if isinstance(one, dict) else one for one in given] if isinstance(given, list) else []
    return [one for one in named if isinstance(one, str)]


def _number(query: Mapping[str, str], name: str, usual: int, most: int) -> int:
    given = query.get(name, "")
    return max(1, min(int(given), most)) if re.fullmatch("[0-9]{1,9}", given) else usual


def _list(place: str, query: Mapping[str, str]) -> Ask:
    labels = tuple(name for name in query.get("labels", "").split(",") if name)
    return _Listed(
        place,
        state=query.get("state", "open"),
        labels=labels,
        size=_number(query, "per_page", PAGE_SIZE, MAX_PAGE_SIZE),
        page=_number(query, "page", 1, 10**9),
    )


def _search(query: Mapping[str, str]) -> Ask | Refusal:
    """Words, all of which must be in title or body, and the qualifiers repo, state, is and label."""
    words = [found[0].replace('"', "").lower() for found in re.finditer(r'(?:[^\s"]|"[^"]*")+', query.get("q", ""))]
    if not words:
        return Refusal("invalid", 422, "Validation Failed", "q")
    named: dict[str, list[str]] = {}
    for word in words:
        name, colon, value = word.partition(":")
        if colon and name in _QUALIFIERS:
            named.setdefault(name, []).append(value)
    states = [value for name in ("state", "is") for value in named.get(name, []) if value in ("open", "closed")]
    return _Listed(
        f"POST /repos/{named['repo'][-1]}/issues" if "repo" in named else None,
        state=states[-1] if states else "all",
        labels=tuple(named.get("label", ())),
        words=tuple(word for word in words if word.partition(":")[0] not in _QUALIFIERS or ":" not in word),
        size=_number(query, "per_page", PAGE_SIZE, MAX_PAGE_SIZE),
        page=_number(query, "page", 1, 10**9),
    )


def _matches(document: dict[str, Any], ask: _Listed) -> bool:
    text = f"{document['title']}\n{document['body']}".lower()
    labels = {label["name"].lower() for label in document["labels"]}
    return (
        ask.state in ("open", "all")  # nothing is ever closed here
        and all(label.lower() in labels for label in ask.labels)
        and all(word in text for word in ask.words or ())
    )
