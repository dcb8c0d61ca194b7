"""Ten questions to an outbox, answered by running it: `python -m pytest_once.review module:adapter`.

It stands beside the reference and not in it, because it needs the engine, which does not go into production.
"""

from __future__ import annotations

from pytest_once.review.adapter import Adapter, Answer, Evidence, Outbox, Send, Sent

__all__ = ["Adapter", "Answer", "Evidence", "Outbox", "Send", "Sent"]
