"""A refund agent on LangGraph."""
