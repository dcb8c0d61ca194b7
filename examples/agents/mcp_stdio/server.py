"""An MCP server with one tool. As a program, `server.py bare|keyed` speaks stdio; the provider is at PAYMENTS_URL."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from mcp.server.mcpserver import Context, MCPServer

from examples.agents.refunds import keyed, send, unprotected


def keyed_by_request(url: str) -> Callable[..., str]:
    """With a key that the protocol seems to offer: the id of the request."""

    def refund(order: str, amount: int, context: Context) -> str:
        """Refund an order. amount: in cents."""
        return send(url, order, amount, key=context.request_id)

    return refund


def shop(tool: Callable[..., str]) -> MCPServer:
    """The server, around a tool."""
    server = MCPServer("shop", log_level="WARNING")
    server.add_tool(tool)
    return server


if __name__ == "__main__":
    make = {"bare": unprotected, "keyed": keyed}[sys.argv[1]]
    shop(make(os.environ["PAYMENTS_URL"])).run("stdio")
