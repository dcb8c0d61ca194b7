"""A refund tool on an MCP server, and a client that speaks to it over stdio."""
