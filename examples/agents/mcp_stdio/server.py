"""An MCP server with one tool. As a program, `server.py bare|keyed` speaks stdio; the provider is at PAYMENTS_URL."""

from __future__ import annotations

import os
import sys

from mcp.server.mcpserver import MCPServer

from examples.agents.refunds import Refund, keyed, unprotected


def shop(tool: Refund) -> MCPServer:
    """The server, around a tool."""
    server = MCPServer("shop", log_level="WARNING")
    server.add_tool(tool)
    return server


if __name__ == "__main__":
    make = {"bare": unprotected, "keyed": keyed}[sys.argv[1]]
    shop(make(os.environ["PAYMENTS_URL"])).run("stdio")
