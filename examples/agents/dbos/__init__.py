"""A durable refund workflow on DBOS."""
