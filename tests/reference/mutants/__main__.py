"""Print the table of docs/mutants.md, from real runs: `python -m tests.reference.mutants`."""

from __future__ import annotations

from tests.reference.mutants import MUTANTS
from tests.reference.mutants.telling import HEAD, convicted, row

if __name__ == "__main__":
    print(HEAD)
    for mutant in MUTANTS:
        print(row(mutant, convicted(mutant)), flush=True)
