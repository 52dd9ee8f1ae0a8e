"""Parameters of faults, checked when a trial is planned, long before the fault strikes."""

import difflib
from collections.abc import Mapping
from typing import Any, Protocol

from pydantic import ValidationError

from harness import catalogue
from harness.configuration import Frozen
from harness.errors import BadInput
from harness.protocols import Fault


class NoParameters(Frozen):
    """Of faults that take none."""


class PlannedFault(Fault, Protocol):
    """A fault whose parameters can be checked without a cluster. What every fault of the catalogue is."""

    parameters_model: type[Frozen]
    """What `parameters` of a step must be; `extra` keys are refused."""
    role_parameters: frozenset[str]
    """Parameters that name the other side of the targets: the nemesis resolves them to names of nodes before `undos`."""


def check_parameters(fault_name: str, parameters: Mapping[str, Any]) -> None:
    """BadInput (value, rule, way out) if a step gives `fault_name` parameters it cannot take."""
    fault: PlannedFault = catalogue.resolve(catalogue.FAULTS, fault_name, what="fault")
    try:
        fault.parameters_model.model_validate(dict(parameters))
    except ValidationError as error:
        problem = error.errors()[0]
        known = sorted(fault.parameters_model.model_fields)
        raise BadInput(f"fault {fault_name!r}: {_explain(problem, known)}") from error


def _explain(problem: Any, known: list[str]) -> str:  # noqa: ANN401 - pydantic's ErrorDetails
    key = str(problem["loc"][0]) if problem["loc"] else "parameters"
    if problem["type"] == "extra_forbidden":
        near = difflib.get_close_matches(key, known, n=1)
        takes = f"it takes {', '.join(known)}" if known else "it takes none"
        return f"there is no parameter {key!r}; {takes}." + (f" Did you mean {near[0]!r}?" if near else "")
    if problem["type"] == "missing":
        return f"the parameter {key!r} is missing; give it."
    return f"{key} = {problem['input']!r}: {problem['msg'].removeprefix('Value error, ')}."
