"""A plan fitted to a cluster that is there already: its brokers' own ids, and names that are the run's alone. Pure."""

from collections.abc import Callable

from harness.errors import BadInput
from harness.plan import Plan
from harness.remote_options import Adoption


def run_prefix(run_name: str) -> str:
    """What the names of everything begin with that a run makes in somebody else's cluster."""
    return f"prozess-{run_name}-"


def adopt(plan: Plan, adoption: Adoption) -> Plan:
    """The plan with these names and ids; one that was adopted before (a `plan.json`) is adopted anew.

    BadInput if the cluster has another number of brokers than the plan places its copies on.
    """
    if len(adoption.broker_ids) != plan.variant.brokers:
        raise BadInput(
            f"variant.brokers = {plan.variant.brokers}, but the cluster has {len(adoption.broker_ids)} brokers "
            f"({', '.join(map(str, adoption.broker_ids))}). Set variant.brokers to that number."
        )
    former = plan.adopted or Adoption(broker_ids=tuple(range(1, plan.variant.brokers + 1)))
    ids = dict(zip(former.broker_ids, adoption.broker_ids, strict=True))
    name = _renamer(former.prefix, adoption.prefix)
    cells = tuple(
        cell.model_copy(
            update={"topic_name": name(cell.topic_name), "derived_topic_name": _maybe(name, cell.derived_topic_name)}
        )
        for cell in plan.cells
    )
    partitions = tuple(
        p.model_copy(update={"topic_name": name(p.topic_name), "assignment": tuple(ids[i] for i in p.assignment)})
        for p in plan.partitions
    )
    clients = tuple(
        c.model_copy(
            update={"group_id": _maybe(name, c.group_id), "transactional_id": _maybe(name, c.transactional_id)}
        )
        for c in plan.clients
    )
    return plan.model_copy(update={"cells": cells, "partitions": partitions, "clients": clients, "adopted": adoption})


def _renamer(former: str, new: str) -> Callable[[str], str]:
    return lambda text: new + text.removeprefix(former)


def _maybe(name: Callable[[str], str], text: str | None) -> str | None:
    return None if text is None else name(text)
