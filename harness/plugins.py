"""Finds what other installed packages add to prozess by entry points: faults, ways to undo them, checkers, kinds of
workload.

    [project.entry-points."prozess.faults"]
    leave = "acme_trials.faults:Leave"

The registry of each kind reads its own group, and says what an entry must be. What is not that, cannot be imported, or has a
name that is taken already, is an error that names the package: to leave it out would run another trial than the one that was
asked for.
"""

from collections.abc import Callable, Collection, Mapping
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import TypeVar

from prozess.harness.errors import HarnessFailed

T = TypeVar("T")
GROUPS = ("prozess.faults", "prozess.undos", "prozess.checkers", "prozess.workloads")


class NotAccepted(Exception):
    """Says why the value of an entry point is not what it must be, as a clause whose subject is the value."""


def offered(group: str, own: Collection[str], accept: Callable[[str, object], T]) -> dict[str, T]:
    """Returns what other packages offer in this group, by name.

    `own`: the names that prozess itself has. `accept`: gets name and value, and returns the value; it raises NotAccepted.
    HarnessFailed, with package and name, for what cannot be used.
    """
    found: dict[str, T] = {}
    origin: dict[str, str] = {}
    for point in _installed()[group]:
        package = _package(point)
        if point.name in own:
            raise _unusable(point, f"has the name {point.name!r}, which prozess uses itself. Give it another name.")
        if point.name in found:
            raise _unusable(point, f"has the name that {origin[point.name]} uses, too. Uninstall one of the packages.")
        try:
            found[point.name] = accept(point.name, point.load())
        except NotAccepted as error:
            raise _unusable(point, f"{error}. See docs/extending.md.") from error
        except Exception as error:  # whatever the import of another package raises
            raise _unusable(
                point, f"cannot be imported ({type(error).__name__}: {error}). Repair or uninstall it."
            ) from error
        origin[point.name] = package
    return found


def packages() -> dict[str, str]:
    """Returns the name and version of every package that adds something to prozess."""
    return {point.dist.name: point.dist.version for point in entry_points_of_others() if point.dist is not None}


def entry_points_of_others() -> list[EntryPoint]:
    """Returns every entry point by which an installed package adds something to prozess."""
    return [point for group in GROUPS for point in _installed()[group]]


@cache
def _installed() -> Mapping[str, EntryPoints]:
    """Returns the entry points of each group. To look at all installed packages takes some milliseconds, so it is done
    once."""
    every = entry_points()
    return {group: every.select(group=group) for group in GROUPS}


def _package(point: EntryPoint) -> str:
    return "an installed package" if point.dist is None else f"{point.dist.name} {point.dist.version}"


def _unusable(point: EntryPoint, why: str) -> HarnessFailed:
    return HarnessFailed(f"{_package(point)} adds {point.value} to {point.group}, which {why}")
