"""A client with the task to refund an order. As a program, `client.py bare|keyed` starts the server, over stdio."""

from __future__ import annotations

import asyncio
import os
import sys

from mcp import Client, StdioServerParameters
from mcp.server.mcpserver import MCPServer

CALLS = 2


class NoAnswer(Exception):
    """Every call ended with an error."""


async def refund(server: MCPServer | StdioServerParameters) -> None:
    """Call the tool until it answers, at most CALLS times. Raises NoAnswer."""
    async with Client(server) as client:
        for _ in range(CALLS):
            answer = await client.call_tool("refund", {"order": "order_123", "amount": 500})
            if not answer.is_error:
                return
    raise NoAnswer


if __name__ == "__main__":
    asyncio.run(
        refund(
            StdioServerParameters(
                command=sys.executable,
                args=["-m", "examples.agents.mcp_stdio.server", sys.argv[1]],
                env={name: os.environ[name] for name in ("PYTHONPATH", "PAYMENTS_URL")},
            )
        )
    )
