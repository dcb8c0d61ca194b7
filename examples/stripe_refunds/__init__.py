"""Two agents that refund part of a charge through Stripe's API v1, over plain HTTP.

Stripe keeps an idempotency key for 24 hours at least, and after that may have forgotten it.
"""
