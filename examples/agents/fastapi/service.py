"""`POST /refunds` with an idempotency middleware that stores late, one that claims first, and none but the gate."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from examples.agents.refunds import Refund, Unconfirmed

Next = Callable[[Request], Awaitable[Response]]


class Order(BaseModel):
    order: str
    amount: int


def plain(tool: Refund) -> FastAPI:
    """The endpoint, and nothing around it."""
    app = FastAPI()

    @app.post("/refunds")
    def refund(order: Order) -> dict[str, str]:
        return {"id": tool(order.order, order.amount)}

    @app.exception_handler(Unconfirmed)
    def unconfirmed(_: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error": str(error)}, status_code=503, headers={"Retry-After": "31"})

    return app


def storing_the_answer(tool: Refund, answers: Path) -> FastAPI:
    """The usual middleware: a known key gets the stored answer, a new one is handled and its answer stored."""
    app = plain(tool)

    @app.middleware("http")
    async def idempotent(request: Request, handle: Next) -> Response:
        key = request.headers["Idempotency-Key"]
        with closing(_open(answers)) as known:
            row = known.execute("SELECT answer FROM answers WHERE key = ?", (key,)).fetchone()
            if row is not None:
                return Response(row[0], media_type="application/json")
            answer = await _body(await handle(request))
            with known:
                known.execute("INSERT INTO answers VALUES (?, ?)", (key, answer))
            return Response(answer, media_type="application/json")

    return app


def claiming_first(tool: Refund, answers: Path) -> FastAPI:
    """The careful middleware: the key is claimed before it is handled, so that two requests never act at once."""
    app = plain(tool)

    @app.middleware("http")
    async def idempotent(request: Request, handle: Next) -> Response:
        key = request.headers["Idempotency-Key"]
        with closing(_open(answers)) as known:
            with known:
                claimed = known.execute("INSERT OR IGNORE INTO answers VALUES (?, NULL)", (key,)).rowcount
            if not claimed:
                (stored,) = known.execute("SELECT answer FROM answers WHERE key = ?", (key,)).fetchone()
                if stored is None:
                    return JSONResponse({"error": "in progress"}, status_code=409)
                return Response(stored, media_type="application/json")
            answer = await _body(await handle(request))
            with known:
                known.execute("UPDATE answers SET answer = ? WHERE key = ?", (answer, key))
            return Response(answer, media_type="application/json")

    return app


def _open(answers: Path) -> sqlite3.Connection:
    known = sqlite3.connect(answers)
    known.execute("CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, answer TEXT)")
    return known


async def _body(response: Response) -> str:
    return b"".join([part async for part in response.body_iterator]).decode()  # type: ignore[attr-defined]
