"""What a hand-written test puts in the provider's place."""

from __future__ import annotations

from typing import Any

import httpx


class StandIn:
    """Keeps the same promise as the fake `client_key`. Patch `httpx.post` with `post`.

    fails: "before" or "after" it acts, once, as a time-out.
    """

    def __init__(self, fails: str = "") -> None:
        self.effects = 0
        self._known: set[str] = set()
        self._fails = fails

    def post(self, url: str, *, json: Any, headers: dict[str, str], verify: object) -> httpx.Response:
        failure, self._fails = self._fails, ""
        if failure == "before":
            raise httpx.ReadTimeout("no answer")
        key = headers.get("Idempotency-Key")
        if key is None or key not in self._known:
            self.effects += 1
            self._known |= {key} if key is not None else set()
        if failure == "after":
            raise httpx.ReadTimeout("no answer")
        return httpx.Response(200, json={"id": "re_1"}, request=httpx.Request("POST", url))
