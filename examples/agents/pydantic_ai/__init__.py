"""A refund agent on Pydantic AI."""
