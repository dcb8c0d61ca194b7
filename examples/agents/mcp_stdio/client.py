"""A client that is given the task to refund an order: `client.py bare|gate`. Says so when it is done, by ending with 0."""

from __future__ import annotations

import asyncio
import os
import sys

from mcp import Client, StdioServerParameters

CALLS = 2


async def main() -> int:
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "examples.agents.mcp_stdio.server", sys.argv[1]],
        env={name: os.environ[name] for name in ("PYTHONPATH", "PAYMENTS_URL", "GATE")},
    )
    async with Client(command) as client:
        for _ in range(CALLS):
            answer = await client.call_tool("refund", {"order": "order_123", "amount": 500})
            if not answer.is_error:
                return 0
    return 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
