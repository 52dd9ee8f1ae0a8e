"""What the steps of a plan need of its backend."""

from harness import catalogue
from harness.capabilities import Capability
from harness.plan import Plan
from harness.schedule import FaultAction


def capabilities_needed(plan: Plan) -> frozenset[Capability]:
    """Of the faults of its schedule. BadInput if one is not known."""
    faults = {step.do.fault for step in plan.steps if isinstance(step.do, FaultAction)}
    needs = (catalogue.resolve(catalogue.FAULTS, name, what="fault").needs for name in sorted(faults))
    return frozenset[Capability]().union(*needs)
