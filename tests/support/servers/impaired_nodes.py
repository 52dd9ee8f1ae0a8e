"""Nodes that are impaired for a while: a plan that equips them for it, and waiting until the effect is seen."""

from typing import Any

from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.plan.plan import Plan
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.schema import Tristate

SEEN_S = 30.0
FAULTS: dict[str, dict[str, int]] = {
    "disk-full": {},
    "disk-slow": {},
    "disk-hang": {},
    "disk-error": {},
    "power-loss": {},
    "clock": {"offset_ms": 5000},
}


def equipped(**cluster: Any) -> Plan:
    """A plan whose schedule needs every kind of equipment; nobody carries it out. `cluster`: what else the trial says."""
    steps = [
        {"name": name, "do": {"kind": "fault", "fault": name, "targets": ["leader(0)"], "parameters": parameters}}
        for name, parameters in FAULTS.items()
    ]
    document = {"name": "contract", "title": "", "base": {"topic.replication_factor": 1}, **cluster, "steps": steps}
    return make_plan(parse_trial(document, source="contract"), seed=1)


def seen(node: Any, impairment: Any, wanted: Tristate) -> str:
    """Wait until it is observed so; what was seen."""
    last = (Tristate.UNKNOWN, "nothing")

    def so() -> bool:
        nonlocal last
        last = node.impaired(impairment)
        return last[0] is wanted

    wait_until(
        so,
        awaited=f"{impairment} to be {wanted.name}",
        timeout_s=SEEN_S,
        clock=SystemClock(),
        last_seen=lambda: last,
    )
    return last[1]
