"""Delivery bounds: on which workloads a trial may state one, and how a trial file says it."""

from typing import Any

from prozess.harness.errors import BadInput
from prozess.harness.plan.trial import WorkloadSpec

SCOPE = "delivery"
"""The scope of `delivery.latency_s` and so on in `base` and `axes`. A cell has it only where the trial states it."""
_SENDS_UNTIMED = "its tools do not say when they sent a record"
_OF_COPIES = "its readers tail both topics, and what they are given of one says nothing of the copies in the other"
_UNMEASURABLE = {
    "verifiable": _SENDS_UNTIMED,
    "verifiable-share": _SENDS_UNTIMED,
    "exactly-once": _OF_COPIES,
    "application": _OF_COPIES,
}
"""Kind of workload → why no delivery bound can be measured on it."""


def stated_bound(workload: WorkloadSpec) -> dict[str, Any]:
    """Returns what `[delivery]` says, in the form in which `base` would say it."""
    if workload.delivery is None:
        return {}
    return {f"{SCOPE}.{key}": value for key, value in workload.delivery.model_dump(exclude_unset=True).items()}


def check_measurable(workload: WorkloadSpec) -> None:
    """Raises BadInput if a delivery bound is stated, and no consumer gets the records by which it could be measured."""
    keys = (*stated_bound(workload), *workload.base, *workload.axes)
    if any(key.startswith(f"{SCOPE}.") for key in keys) and (why := _why_unmeasurable(workload)):
        raise BadInput(
            f"delivery: the bound cannot be measured on this {workload.kind} workload, because {why}; or remove the bound."
        )


def _why_unmeasurable(workload: WorkloadSpec) -> str | None:
    if workload.kind in _UNMEASURABLE:
        return f"{_UNMEASURABLE[workload.kind]}: state it of another workload"
    if workload.kind == "group":  # its members are given the records
        return None
    if workload.kind == "transactions" and "read_committed" not in workload.isolation_levels:
        return "records count once they are committed, and no reader is at read_committed: name it in isolation_levels"
    return None if workload.isolation_levels else "it has no tailing readers: name a level in isolation_levels"
