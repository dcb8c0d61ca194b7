"""Three mailers that send a customer one receipt for an order.

The providers: Resend (`POST /emails`, which knows a repetition by its Idempotency-Key for 24 h) and SendGrid
(`POST /v3/mail/send`, which knows none and answers 202 without a body).
"""
