"""Parameters of faults, checked when a trial is planned, long before the fault strikes."""

import difflib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from pydantic import ValidationError

from harness import catalogue
from harness.configuration import Frozen
from harness.errors import BadInput
from harness.impairments import CLIENTS
from harness.protocols import Fault
from harness.targets import CLIENT_ROLES, parse_target
from nemesis.targets import is_role


class NoParameters(Frozen):
    """Of faults that take none."""


class PlannedFault(Fault, Protocol):
    """A fault whose parameters can be checked without a cluster. What every fault of the catalogue is."""

    parameters_model: type[Frozen]
    """What `parameters` of a step must be; `extra` keys are refused."""
    role_parameters: frozenset[str]
    """Parameters that name the other side of the targets: the nemesis resolves them to names of nodes before `undos`."""


def check_parameters(
    fault_name: str,
    parameters: Mapping[str, Any],
    *,
    targets: Sequence[str] | None = None,
    nodes: Collection[str] | None = None,
) -> None:
    """BadInput (value, rule, way out) if a step gives `fault_name` parameters it cannot take.

    With the step's `targets` and the names of the cluster's `nodes`, what the parameters name is checked against them too.
    """
    fault: PlannedFault = catalogue.resolve(catalogue.FAULTS, fault_name, what="fault")
    try:
        checked = fault.parameters_model.model_validate(dict(parameters))
    except ValidationError as error:
        problem = error.errors()[0]
        known = sorted(fault.parameters_model.model_fields)
        raise BadInput(f"fault {fault_name!r}: {_explain(problem, known)}") from error
    if getattr(fault, "of_clients", False):
        _check_clients(fault_name, targets or ())
    if getattr(fault, "of_partitions", False):
        _check_partitions(fault_name, targets or ())
    refusal = getattr(fault, "refusal", lambda *_: None)
    if targets is not None and nodes is not None and (why := refusal(targets, nodes)) is not None:
        raise BadInput(f"fault {fault_name!r}: {why}.")
    for name in sorted(fault.role_parameters):
        _check_roles(f"fault {fault_name!r}: {name}", getattr(checked, name), targets, nodes)


def _check_clients(fault_name: str, targets: Sequence[str]) -> None:
    for text in targets:
        if parse_target(text).role not in CLIENT_ROLES:
            raise BadInput(
                f"fault {fault_name!r} is for clients, and {text!r} is none. Give client:NAME, member(c, i) or producers."
            )


def _check_partitions(fault_name: str, targets: Sequence[str]) -> None:
    for text in targets:
        if parse_target(text).role != "partition":
            raise BadInput(
                f"fault {fault_name!r} is for partitions, and {text!r} is none. Give partition(p), or partition(*)."
            )


def _check_roles(
    where: str, value: str | tuple[str, ...] | None, targets: Sequence[str] | None, nodes: Collection[str] | None
) -> None:
    named_partitions = targets is None or any(parse_target(text).partition is not None for text in targets)
    if value == "followers" and not named_partitions:
        raise BadInput(
            f"{where} = 'followers' means those of the partitions that the targets name; {list(targets or ())} name none. "
            f'Give {where.split()[-1]} = ["followers(p)"].'
        )
    for text in value if isinstance(value, tuple) and nodes is not None else ():
        if text == CLIENTS:
            continue
        name = parse_target(text).node if is_role(text) else text
        if name is not None and name not in (nodes or ()):
            raise BadInput(f"{where}: there is no node {name!r}. Nodes: {', '.join(sorted(nodes or ()))}.")


def _explain(problem: Any, known: list[str]) -> str:  # noqa: ANN401 - pydantic's ErrorDetails
    key = str(problem["loc"][0]) if problem["loc"] else "parameters"
    if problem["type"] == "extra_forbidden":
        near = difflib.get_close_matches(key, known, n=1)
        takes = f"it takes {', '.join(known)}" if known else "it takes none"
        return f"there is no parameter {key!r}; {takes}." + (f" Did you mean {near[0]!r}?" if near else "")
    if problem["type"] == "missing":
        return f"the parameter {key!r} is missing; give it."
    return f"{key} = {problem['input']!r}: {problem['msg'].removeprefix('Value error, ')}."
