"""An MCP server with one tool: `server.py bare|gate`. It asks the provider at PAYMENTS_URL, and keeps its gate in GATE."""

from __future__ import annotations

import os
import sys

from mcp.server.mcpserver import MCPServer

from examples.agents.refunds import protected, unprotected
from pytest_once.reference.databases import SQLite

url = os.environ["PAYMENTS_URL"]
if sys.argv[1] == "gate":
    gates = SQLite(os.environ["GATE"])
    gates.migrate()
    tool = protected(url, gates)
else:
    tool = unprotected(url)

server = MCPServer("shop")
server.add_tool(tool)
server.run("stdio")
