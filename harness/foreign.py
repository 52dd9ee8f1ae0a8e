"""Packages of others with the names of ours (`harness`, `clusters`, …) where Python looks for modules.

One that comes first is imported instead of ours; one that comes later is hidden by ours.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

PACKAGES = ("harness", "clusters", "nemesis", "workloads", "checkers", "spark_checkers")
HERE = Path(__file__).resolve().parents[1]


def foreign_packages(path: Sequence[str] | None = None) -> list[Path]:
    """Every module or package of one of our names that is not ours, in the order of `path` (default: `sys.path`)."""
    found = []
    for entry in dict.fromkeys(sys.path if path is None else path):
        directory = Path(entry or os.curdir).resolve()
        if directory == HERE:
            continue
        for name in PACKAGES:
            candidates = (directory / f"{name}.py", directory / name / "__init__.py")
            found += [candidate for candidate in candidates if candidate.is_file()]
    return found


def why_not_ours(name: str) -> str | None:
    """Why module `name` cannot be imported, if somebody else's package stands in front of ours; else None."""
    package = name.partition(".")[0]
    loaded = sys.modules.get(package)
    where = getattr(loaded, "__file__", None)
    if package not in PACKAGES or where is None or Path(where).resolve().parents[1] == HERE:
        return None
    return (
        f"Python finds another package {package!r} at {where}, where prozess has one of that name. "
        "Take its directory off PYTHONPATH, or start prozess elsewhere."
    )
