"""Refuses expectations that could never come true, or never fail, when a trial is planned."""

from collections.abc import Collection, Sequence

from prozess.harness.errors import BadInput
from prozess.harness.plan.expectations import (
    BehindExpected,
    ControllerExpected,
    EndsExpected,
    Expectation,
    IsrExpected,
    Lasting,
    LeaderExpected,
    MarkersExpected,
    MessageExpected,
    RemovedExpected,
    SendsExpected,
    TruncatedExpected,
    nodes_named,
    steps_named,
)
from prozess.harness.plan.plan import Plan
from prozess.harness.plan.schedule import Inspect, Step, parse_target
from prozess.harness.suggestions import did_you_mean

COORDINATORS = ("group-coordinator", "transaction-coordinator")
_GROUND_TRUTH = (LeaderExpected, ControllerExpected, IsrExpected)
_FILES = (TruncatedExpected, BehindExpected, MarkersExpected, RemovedExpected)


def check_expectations(plan: Plan, nodes: Collection[str]) -> None:
    """Raises BadInput for the first expectation that cannot be met on this plan. `nodes`: the names of the nodes that there
    will be; empty if only the cluster can say."""
    names = [step.name for step in plan.steps]
    of_messages = {step.name for step in plan.message_steps}
    for step in plan.steps:
        for expectation in step.expect:
            if why := _why_not(plan, step, expectation, names, of_messages) or _unknown_node(expectation, nodes):
                raise BadInput(f"Step {step.name!r}: expect {expectation.what!r}: {why}.")


def _why_not(
    plan: Plan, step: Step, expectation: Expectation, names: Sequence[str], of_messages: Collection[str]
) -> str | None:
    """Returns why the expectation cannot be met, or None if it can be."""
    for name in steps_named(expectation):
        if name not in names:
            return f"there is no step {name!r}; {did_you_mean(name, names)}".removesuffix("; ")
    if isinstance(expectation, Lasting) and expectation.until in names[: names.index(step.name) + 1]:
        return f"until = {expectation.until!r} is no later step"
    if isinstance(expectation, MessageExpected) and step.name not in of_messages:
        return "the step is not about messages; give it to the step whose fault or condition means them"
    if isinstance(expectation, TruncatedExpected | BehindExpected) and not isinstance(step.do, Inspect):
        return f"it compares what replicas hold when the step looks at them; give {INSPECTS} to this step"
    if isinstance(expectation, _GROUND_TRUTH) and plan.nodes_unread:
        return "it needs the controllers' own log, which cannot be read on this cluster"
    if isinstance(expectation, _FILES) and plan.nodes_unread:
        return "it needs the replicas' own files, which cannot be read on this cluster"
    if isinstance(expectation, SendsExpected | EndsExpected | RemovedExpected):
        return _wrong_cells(plan, expectation)
    return _wrong_partition(plan, step, expectation)


def _wrong_cells(plan: Plan, expectation: SendsExpected | EndsExpected | RemovedExpected) -> str | None:
    matching = plan.cells_matching(expectation.cells)
    if not matching:
        return f"no cell matches {expectation.cells}; use values of `axes`"
    if isinstance(expectation, EndsExpected) and not any(cell.transaction is not None for cell in matching):
        return "none of these cells has transactions of its own"
    return None


INSPECTS = 'do = { kind = "inspect" }'


def _wrong_partition(plan: Plan, step: Step, expectation: Expectation) -> str | None:
    number = expectation.of if isinstance(expectation, LeaderExpected) else getattr(expectation, "partition", None)
    if isinstance(number, str):
        return _wrong_coordinator(plan, number)
    if number is not None and number >= len(plan.partitions):
        return f"the plan has partitions 0…{len(plan.partitions) - 1}, and not {number}"
    if isinstance(expectation, TruncatedExpected | BehindExpected):
        assert isinstance(step.do, Inspect), "this is refused before"
        looked_at = [p for cell in plan.cells_matching(step.do.cells) for p in cell.written]
        if number not in looked_at:
            return f"the step does not look at partition {number}; leave out its `cells`, or name others"
    if isinstance(expectation, TruncatedExpected):
        compacted = any(
            number in cell.partitions and "compact" in cell.topic.kafka_properties().get("cleanup.policy", "")
            for cell in plan.cells
        )
        if compacted:
            return f"partition {number} is compacted, and what compaction removes looks like what was truncated"
    return None


def _wrong_coordinator(plan: Plan, text: str) -> str | None:
    try:
        target = parse_target(text)
    except ValueError:
        target = None
    if target is None or target.role not in COORDINATORS:
        return f"of = {text!r} is neither a partition id nor group-coordinator(c) or transaction-coordinator(c)"
    known = plan.names.groups if target.role == "group-coordinator" else plan.names.transactional_ids
    what = "group" if target.role == "group-coordinator" else "transactional.id"
    if target.cell not in known:
        return f"cell {target.cell} has no {what}; cells with one: {sorted(known) or 'none'}"
    return None


def _unknown_node(expectation: Expectation, nodes: Collection[str]) -> str | None:
    for name in nodes_named(expectation):
        if nodes and name not in nodes:
            return f"there is no node {name!r}; nodes: {', '.join(sorted(nodes))}"
        if not name.rpartition("-")[2].isdigit():
            return f"{name!r} does not end with the id of a node; nodes: {', '.join(sorted(nodes)) or 'broker-1, …'}"
    return None
