"""What a plan's steps may not ask: targets, clients and cells that the plan does not have. Pure."""

import difflib
from collections import Counter
from collections.abc import Collection, Sequence

from harness import catalogue
from harness.configuration import (
    Variant,
)
from harness.errors import BadInput
from harness.plan import (
    Plan,
)
from harness.schedule import AddPartitions, Behind, ClientAction, FaultAction, Send, Step, TakeOver
from harness.schema import Role, role_named
from harness.targets import MEMBERS, Target, client_target, means_client, parse_target


def check_steps(plan: Plan) -> None:
    """BadInput for the first step that cannot be carried out on this plan."""
    nodes = _node_names(plan)
    _check_migration(plan)
    for step in plan.steps:
        _check_action(plan, step, nodes)
        if isinstance(step.after, Behind):
            _check_brokers(plan, step, (step.after.node, *step.after.records))
        for part in (step.do, step.after):
            selector = getattr(part, "cells", None)
            if selector and not plan.cells_matching(selector):
                raise BadInput(f"Step {step.name!r}: no cell matches {selector}. Use values of `axes`.")


def _check_migration(plan: Plan) -> None:
    """Controllers that only a step would start; a test's own plan has no steps."""
    started = any(isinstance(step.do, FaultAction) and step.do.fault == "migrate" for step in plan.steps)
    recorded = any(cell.workload == catalogue.RECORDED for cell in plan.cells)
    if plan.variant.migration_controllers and not started and not recorded:
        raise BadInput(
            f"variant.migration_controllers = {plan.variant.migration_controllers}: a step 'migrate' would start them, and "
            "no step of this trial does. Add one (trials/migration.toml has it), or remove the controllers."
        )


def _node_names(plan: Plan) -> set[str]:
    """Of the nodes there will be; empty = only the cluster can tell."""
    if plan.backend == "attach":
        return set()
    if plan.ssh is not None:
        return {node.name for node in plan.ssh.nodes}
    return set(plan.variant.server_names().values())


def _check_action(plan: Plan, step: Step, nodes: Collection[str]) -> None:
    match step.do:
        case FaultAction():
            _check_targets(plan, step, step.do.targets, nodes)
        case ClientAction():
            for name in step.do.client:
                _check_client(plan, step, parse_target(client_target(name)))
                if step.do.do == "stall":
                    _check_stall(plan, step, parse_target(client_target(name)))
        case Send() if step.do.producer is not None:
            _check_producer(plan, step, step.do.producer)
        case TakeOver():
            _check_take_over(plan, step, step.do)
        case AddPartitions() if not any(cell.late_partitions for cell in plan.cells_matching(step.do.cells)):
            raise BadInput(
                f"Step {step.name!r}: its cells have no late partitions. Give topics.late_partitions or "
                "topics.late_topic_partitions."
            )


def _check_targets(plan: Plan, step: Step, targets: Sequence[str], nodes: Collection[str]) -> None:
    for text in targets:
        target = parse_target(text)
        if target.partition is not None and target.partition >= len(plan.partitions):
            raise BadInput(
                f"Step {step.name!r}: {text} names partition {target.partition}, but the plan has partitions "
                f"0…{len(plan.partitions) - 1}."
            )
        _check_client(plan, step, target)
        if why := why_nobody(target, plan.variant):
            raise BadInput(f"Step {step.name!r}: {text} {why}.")
        if target.node is not None and nodes and target.node not in nodes:
            raise BadInput(f"Step {step.name!r}: there is no node {target.node!r}. Nodes: {', '.join(sorted(nodes))}.")


def why_nobody(target: Target, variant: Variant) -> str | None:
    """Why a role of servers can mean none of the variant's; None = it can mean some."""
    counts = Counter(name.partition("-")[0] + "s" for name in variant.server_names().values())
    if variant.metadata_mode == "kraft-combined":
        counts["controllers"] = variant.brokers
    if target.role == "zookeeper-leader" and not counts["zookeepers"]:
        return f'needs metadata_mode = "zookeeper"; the variant\'s is {variant.metadata_mode}'
    if target.role == "rack":
        racks = sorted({rack for b in range(1, variant.brokers + 1) if (rack := variant.rack_of(b))})
        if target.rack not in racks:
            return f"is no rack with a broker. Racks: {', '.join(racks) or 'none; set variant.racks'}"
    if target.role in ("controllers", "zookeepers") and not counts[target.role]:
        return f"is nobody: the variant has no {target.role}"
    if target.of is not None and not 1 <= target.count_of(every := counts[target.of]) <= every:
        return f"is nobody: the variant has {every} {target.of}"
    return None


def _check_brokers(plan: Plan, step: Step, names: Sequence[str]) -> None:
    brokers = sorted(name for name in _node_names(plan) if name.startswith("broker-"))
    for name in names:
        if brokers and name not in brokers:
            raise BadInput(f"Step {step.name!r}: there is no broker {name!r}. Brokers: {', '.join(brokers)}.")


def _check_producer(plan: Plan, step: Step, number: int) -> None:
    most = max((client.number for client in plan.clients if client.producer is not None), default=0)
    if number > most:
        raise BadInput(f"Step {step.name!r}: producer = {number}, but there are {most} alike. Raise traffic.producers.")


def _check_take_over(plan: Plan, step: Step, action: TakeOver) -> None:
    chosen = {cell.cell for cell in plan.cells_matching(action.cells)}
    if not any(c.transactional_id is not None and c.instance and c.cell in chosen for c in plan.clients):
        raise BadInput(
            f"Step {step.name!r}: none of its {len(chosen)} cells has producers that could take a transactional.id over. "
            'Set "transaction.standby" = true for them.'
        )


def _check_stall(plan: Plan, step: Step, target: Target) -> None:
    """BadInput if it means a Java member, which cannot be told to stop polling."""
    for client in plan.clients:
        asked = means_client(target, name=client.name, role=client.role, cell=client.cell, instance=client.instance)
        if asked and client.role == "java-member":
            raise BadInput(
                f"Step {step.name!r}: {client.name} is a Java process that polls on its own and cannot stall. Name members "
                'with group.client = "librdkafka", or `pause` it.'
            )


def _check_client(plan: Plan, step: Step, target: Target) -> None:
    """BadInput if a target means a client, a member or a group that the plan does not have."""
    members = [c for c in plan.clients if c.role in MEMBERS and target.cell in (None, c.cell)]
    if target.role == "client" and target.client not in (known := [c.name for c in plan.clients]):
        near = difflib.get_close_matches(str(target.client), known, n=3) or known[1:4]
        raise BadInput(f"Step {step.name!r}: there is no client {target.client!r}. Some of them: {', '.join(near)}.")
    grouped = sorted({c.cell for c in plan.clients if c.group_id is not None and c.cell is not None})
    with_members = sorted({c.cell for c in plan.clients if c.role in MEMBERS and c.cell is not None})
    wanted = {"member": with_members, "group-coordinator": grouped}.get(target.role)
    if wanted is not None and (target.cell not in wanted if target.cell is not None else not wanted):
        named = "the plan" if target.cell is None else f"cell {target.cell}"
        raise BadInput(f"Step {step.name!r}: {named} has no group. Cells with one: {wanted or 'none'}.")
    transactional = {c.cell for c in plan.clients if c.transactional_id is not None}
    if target.role == "transaction-coordinator" and target.cell not in transactional:
        raise BadInput(f"Step {step.name!r}: cell {target.cell} has no transactional producers. Name one that has.")
    if target.role == "producers" and not any(role_named(c.role) is Role.PRODUCER for c in plan.clients):
        raise BadInput(f"Step {step.name!r}: nobody of this plan sends. Name clients that there are.")
    if target.role == "member" and target.instance not in [None, *(c.instance for c in members)]:
        raise BadInput(
            f"Step {step.name!r}: the group of cell {'*' if target.cell is None else target.cell} has members "
            f"0…{max(c.instance for c in members)}, not {target.instance}."
        )
