"""Two outboxes, and what the review says of them.

`python -m pytest_once.review examples.outbox_review.naive:ADAPTER` finds something in nearly every question;
`examples.outbox_review.corrected:ADAPTER` is the reference implementation.
"""
