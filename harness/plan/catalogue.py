"""The faults, backends and checkers that prozess has, by name. Code that must not import their packages finds them
here.

`harness` imports none of the middle packages, but what it plans and judges names faults, backends and checkers. Therefore
each kind has a `Catalogue` here, with its type. The values are in a dictionary beside what it lists
(`prozess.nemesis.registry`, `prozess.clusters.registry`, `prozess.checkers.registry`). `prozess/__init__.py`, which Python
runs before any other module of prozess, says where each registry finds its dictionary. The dictionary is imported when it
is first read.

Plans and judgement ask little of what they name: the interfaces below. Anyone who makes faults or clusters reads the registry
itself.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from prozess.harness.config.configuration import Variant
    from prozess.harness.config.fault_nature import FaultNature
    from prozess.harness.config.impairments import Capability
    from prozess.harness.values import Frozen

Value = TypeVar("Value")


class PlannedFault(Protocol):
    """What a plan asks of the class of a fault (`prozess.harness.interfaces.Fault` explains each)."""

    parameters_model: "type[Frozen]"
    needs: "frozenset[Capability]"
    role_parameters: frozenset[str]
    in_a_mix: Mapping[str, object]
    of_partitions: bool
    of_clients: bool
    nature: "FaultNature | None"

    @staticmethod
    def refusal(targets: Sequence[str], nodes: Collection[str]) -> str | None: ...

    @staticmethod
    def means_nothing(variant: "Variant", parameters: Any) -> str | None: ...  # noqa: ANN401


class PlannedBackend(Protocol):
    """What plans and reports ask of a backend (`prozess.harness.interfaces.backend` explains each)."""

    @property
    def servers_from(self) -> str: ...

    @property
    def from_cache(self) -> bool: ...

    @property
    def protocol_only(self) -> bool: ...

    @property
    def reaches(self) -> Callable[[Any], Sequence[str]]: ...


class JudgedChecker(Protocol):
    """What plans and judgement ask of a checker (`prozess.harness.checking.checker` explains each)."""

    @property
    def of_cells(self) -> bool: ...


class Catalogue(Mapping[str, Value]):
    """Everything of one kind, by name. It reads a dictionary of another package, which it asks for when it is read."""

    def __init__(self, what: str) -> None:
        """`what`: one of its kind, in words, for errors."""
        self._what = what
        self._source: Callable[[], Mapping[str, Value]] | None = None

    def read_from(self, source: Callable[[], Mapping[str, Value]]) -> None:
        """Sets where the values are. `source` imports the dictionary and returns it."""
        self._source = source

    def named(self, name: str) -> Value:
        """Returns the value of that name. BadInput with the known names if there is none."""
        return named(self._what, self, name)

    def __getitem__(self, name: str) -> Value:
        return self._values()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values())

    def __len__(self) -> int:
        return len(self._values())

    def _values(self) -> Mapping[str, Value]:
        assert self._source is not None, f"prozess/__init__.py does not say where each {self._what} is"
        return self._source()


def named(what: str, values: Mapping[str, Value], name: str) -> Value:
    """Returns the value of that name. BadInput with the known names if there is none; `what` is one of its kind, in words."""
    if name not in values:
        from prozess.harness.errors import (
            BadInput,  # not before: who only has the pytest plugin installed loads nothing
        )

        raise BadInput(f"{what} {name!r} is not known. Known: {', '.join(sorted(values))}.")
    return values[name]


FAULTS: Catalogue[type[PlannedFault]] = Catalogue("fault")
"""The class of each fault that a step may name."""


class DeclaredNatures(Mapping[str, "FaultNature"]):
    """Maps each fault to the nature that its class declares itself.

    A fault that declares none is not in here: it might do anything, and what depends on it is unknown. This also holds for
    a subclass of another fault, because it may do more than its parent.
    """

    def __getitem__(self, fault: str) -> "FaultNature":
        nature: FaultNature | None = vars(FAULTS[fault]).get("nature")
        if nature is None:
            raise KeyError(fault)
        return nature

    def __iter__(self) -> Iterator[str]:
        return (fault for fault, kind in FAULTS.items() if vars(kind).get("nature") is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


NATURES = DeclaredNatures()
"""What each fault may do to a node. The judge goes by this."""
BACKENDS: Catalogue[PlannedBackend] = Catalogue("backend")
"""Each backend that a trial may name."""
CHECKERS: Catalogue[JudgedChecker] = Catalogue("anomaly")
"""The checker of each anomaly, and of each fact that is only counted. To read it imports every kernel, and numpy."""
ANOMALIES: Catalogue[object] = Catalogue("anomaly")
"""The guarantee against each anomaly. Trials may name these in their controls."""
RECORDED = "recorded"
"""`Cell.workload` of a test's own clients (`prozess.testing`). Nobody planned them, so a trial file cannot ask
for this kind."""
