"""A transactional outbox, relay, inbox, receipt gate and reconciler: small enough to read, whole enough to copy.

It imports nothing of the engine that judges it. Begin with `steps` (how a thing is written once for every database),
then `identity`, `planning`, `outbox`, `relay`, `inbox`.
"""
