"""Mistakes that everybody makes once, each as small as it can be, beside the same code without it."""

from __future__ import annotations

from tests.reference.mutants import consumers, gates, keys, outboxes

MUTANTS = (*gates.MUTANTS, *keys.MUTANTS, *outboxes.MUTANTS, *consumers.MUTANTS)
