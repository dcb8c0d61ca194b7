"""Three refund agents for a provider which deduplicates by the Idempotency-Key header.

The provider: `POST /refunds` with JSON `{"order": ..., "amount": ...}` answers `{"id": ...}`.
"""
