"""What the steps of a plan need of its backend."""

from harness import catalogue
from harness.capabilities import Capability
from harness.plan import Plan
from harness.schedule import FaultAction


def capabilities_needed(plan: Plan) -> frozenset[Capability]:
    """Of the faults of its schedule. BadInput if one is not known."""
    faults = {step.do.fault for step in plan.steps if isinstance(step.do, FaultAction)}
    return frozenset[Capability]().union(*map(_needs, sorted(faults)))


def versions_installed(plan: Plan) -> tuple[str, ...]:
    """Versions of Kafka that steps install (parameter `version` of faults that need INSTALL), each once."""
    wanted = (step.do for step in plan.steps if isinstance(step.do, FaultAction))
    installing = (do.parameters for do in wanted if Capability.INSTALL in _needs(do.fault))
    return tuple(dict.fromkeys(str(given["version"]) for given in installing if "version" in given))


def _needs(fault: str) -> frozenset[Capability]:
    return frozenset[Capability](catalogue.resolve(catalogue.FAULTS, fault, what="fault").needs)
