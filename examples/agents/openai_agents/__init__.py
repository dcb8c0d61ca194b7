"""A refund agent on the OpenAI Agents SDK."""
