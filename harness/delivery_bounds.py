"""On which workloads a trial may state a delivery bound, and how it is said in a trial file. Pure."""

from typing import Any

from harness.errors import BadInput
from harness.trial import WorkloadSpec

SCOPE = "delivery"
"""`delivery.latency_s` and so on in `base` and `axes`: what a cell has only where the trial states it."""
_UNSAID = "its tools do not say when they sent a record"
_OF_COPIES = "its readers tail both topics, and what they are given of one says nothing of the copies in the other"
_UNMEASURABLE = {
    "verifiable": _UNSAID,
    "verifiable-share": _UNSAID,
    "exactly-once": _OF_COPIES,
    "application": _OF_COPIES,
}
"""Kind of workload → why no bound can be measured on it."""


def stated_bound(workload: WorkloadSpec) -> dict[str, Any]:
    """What `[delivery]` says, as `base` would say it."""
    if workload.delivery is None:
        return {}
    return {f"{SCOPE}.{key}": value for key, value in workload.delivery.model_dump(exclude_unset=True).items()}


def check_measurable(workload: WorkloadSpec) -> None:
    """BadInput if a bound is stated, and nobody is given records by whom it could be measured."""
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
