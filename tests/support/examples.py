"""How many cases a property is tried with: a share of them at every change, all of them in the long run."""

import os

SHARE = 5
LEAST = 20
ALL = bool(os.environ.get("PROZESS_ALL_EXAMPLES") or os.environ.get("PROZESS_FUZZ"))


def examples(count: int) -> int:
    """`count` where PROZESS_ALL_EXAMPLES or PROZESS_FUZZ is set (`make test-all`, `make fuzz`), else a fifth of it and at
    least 20. The cases of `make test` are the same each time, so that a change cannot pass by luck."""
    return count if ALL else min(count, max(count // SHARE, LEAST))
