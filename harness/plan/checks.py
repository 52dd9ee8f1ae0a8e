"""Checks a plan before it runs: what its steps name must exist, and faults get only parameters that they take."""

import difflib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import takewhile
from typing import Any

from pydantic import ValidationError

from prozess.harness.config.configuration import Variant
from prozess.harness.config.impairments import CLIENTS, ONLY_CLIENTS, Capability
from prozess.harness.config.messages.match import BETWEEN_SERVERS, OF_CLIENTS, OF_KRAFT, OF_ZOOKEEPER, MessageMatch
from prozess.harness.errors import BadInput
from prozess.harness.plan import catalogue
from prozess.harness.plan.expectation_checks import COORDINATORS, check_expectations
from prozess.harness.plan.mistakes import annotations_at, explain, explain_truth, innermost, truths_for_numbers, written
from prozess.harness.plan.plan import Plan
from prozess.harness.plan.schedule import (
    CLIENT_ROLES,
    FEATURES_FAULT,
    MEMBERS,
    MESSAGE_FAULT,
    AddPartitions,
    Behind,
    ClientAction,
    FaultAction,
    MessagePassed,
    OfCells,
    Send,
    StallAction,
    Step,
    TakeOver,
    Target,
    client_target,
    is_role,
    means_client,
    parse_target,
)
from prozess.harness.schema import Role, role_named
from prozess.harness.values import Frozen

# What the steps of a plan must not name: targets, clients and cells that the plan does not have.


def check_steps(plan: Plan) -> None:
    """Raises BadInput for the first step that cannot be carried out on this plan."""
    nodes = _node_names(plan)
    _check_migration(plan)
    _check_features(plan)
    of_messages = {step.name for step in plan.message_steps}
    for step in plan.steps:
        _check_action(plan, step, nodes)
        if isinstance(step.after, Behind):
            _check_brokers(plan, step, (step.after.node, *step.after.records))
        if step.name in of_messages:
            _check_messages(plan, step)
        for part in (step.do, step.after):
            if isinstance(part, OfCells) and part.cells and not plan.cells_matching(part.cells):
                raise BadInput(f"Step {step.name!r}: no cell matches {part.cells}. Use values of `axes`.")
    check_expectations(plan, nodes)


def check_administrators(plan: Plan) -> None:
    """Raises BadInput if administrators are to work on a cluster of which their answers cannot be judged."""
    if plan.administrators and plan.variant.metadata_mode == "zookeeper":
        raise BadInput(
            f"administrators = {plan.administrators}: their calls are judged where controllers decide (KIP-500), and the "
            'variant has metadata_mode = "zookeeper". Choose another mode, or remove the key.'
        )
    if plan.administrators and (plan.attach is not None or plan.ssh is not None):
        raise BadInput(
            f"administrators = {plan.administrators}: topics are not made and deleted on the backend {plan.backend} without "
            'end. Use backend = "local" or "compose", or remove the key.'
        )


def _check_messages(plan: Plan, step: Step) -> None:
    """Refuses a match that names what the plan does not have, and links on which Kafka's protocol is not spoken, or not in
    the clear."""
    anywhere = [step.after.match] if isinstance(step.after, MessagePassed) else []
    on_its_links: list[MessageMatch] = []
    of_clients = between_servers = False
    if isinstance(step.do, FaultAction) and step.do.fault == MESSAGE_FAULT:
        given = step.do.parameters
        on_its_links = _matches_in(given.get("match"))
        anywhere += _matches_in(given.get("action"))
        of_clients = given.get("others", CLIENTS) in ONLY_CLIENTS
        between_servers = given.get("others", CLIENTS) in ("brokers", "controllers", "followers", "all")
        for text in step.do.targets:
            if parse_target(text).role in ("zookeepers", "zookeeper-leader"):
                raise BadInput(
                    f"Step {step.name!r}: {text} does not speak Kafka's protocol, and a message of it cannot be meant."
                )
    for match in (*on_its_links, *anywhere):
        if (why := plan.names.missing(match) or _why_never(plan, match)) is not None:
            raise BadInput(f"Step {step.name!r}: {why}.")
        _check_earlier(plan, step, match)
    of_clients_alone = (match for match in anywhere if set(match.api) <= OF_CLIENTS)
    _check_client_ids(plan, step, [*(on_its_links if of_clients else ()), *of_clients_alone])
    if between_servers and on_its_links and set(on_its_links[0].api) <= OF_CLIENTS:
        raise BadInput(
            f"Step {step.name!r}: only clients send {on_its_links[0].api[0]}, and no server does. Give others = "
            f'"{CLIENTS}".'
        )
    attached = _protocol_only(plan)
    for match in (*(on_its_links if of_clients or attached else ()), *(anywhere if attached else ())):
        if set(match.api) <= BETWEEN_SERVERS:
            way_out = (
                "Of somebody else's cluster only connections of the trial's clients are seen; wait for what clients send"
                if attached
                else 'Give others = "brokers"'
            )
            raise BadInput(f"Step {step.name!r}: only servers send {match.api[0]}, and no client does. {way_out}.")


def _check_earlier(plan: Plan, step: Step, match: MessageMatch) -> None:
    """Refuses a match relative to a step that is not an earlier one about messages: it could never be met."""
    earlier = [one.name for one in takewhile(lambda one: one.name != step.name, plan.steps)]
    known = [one.name for one in plan.message_steps if one.name in earlier]
    if match.after is not None and match.after not in known:
        near = difflib.get_close_matches(match.after, known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise BadInput(
            f"Step {step.name!r}: after = {match.after!r} is no earlier step about messages.{hint} Such steps before it: "
            f"{', '.join(map(repr, known)) or 'none'}."
        )


def _why_never(plan: Plan, match: MessageMatch) -> str | None:
    """Returns why no link of this cluster ever carries what the match means; None if one may."""
    if _protocol_only(plan):  # nobody knows how that cluster keeps its metadata
        return None
    zookeeper = plan.variant.metadata_mode == "zookeeper"
    never = OF_ZOOKEEPER if not zookeeper else frozenset() if plan.variant.migration_controllers else OF_KRAFT
    if set(match.api) <= never:
        return f"{match.api[0]} is never sent in a cluster whose metadata_mode is {plan.variant.metadata_mode!r}"
    return None


def _check_client_ids(plan: Plan, step: Step, matches: Sequence[MessageMatch]) -> None:
    """Refuses a client id that no client of the plan has. Programs of other people have what ids they like."""
    names = [client.name for client in plan.clients]
    if any(client.command or client.role in _OWN_CLIENT_IDS for client in plan.clients):
        return
    for match in matches:
        if match.client is not None and not any(fnmatchcase(name, match.client) for name in names):
            near = difflib.get_close_matches(match.client, names, n=3) or names[:3]
            raise BadInput(
                f"Step {step.name!r}: client = {match.client!r} means no client of the plan. Some clients: "
                f"{', '.join(near)}."
            )


_OWN_CLIENT_IDS = frozenset({"application", "java-copier"})
"""The roles of clients whose processes choose the client ids of their connections."""


def _matches_in(given: object) -> list[MessageMatch]:
    """Returns the match that a parameter of the fault is, or has within. What is wrong with it is reported elsewhere."""
    if not isinstance(given, Mapping):
        return []
    document = given.get("until") if "do" in given else given
    try:
        return [MessageMatch.model_validate(document)] if isinstance(document, Mapping) else []
    except ValidationError:
        return []


def _check_migration(plan: Plan) -> None:
    """Refuses controllers that no step would start, and stages of the migration in the wrong order. The plan of a test
    has no steps."""
    stages = [
        s.do.parameters.get("stage") for s in plan.steps if isinstance(s.do, FaultAction) and s.do.fault == "migrate"
    ]
    started = bool(stages)
    if "kraft" in stages and "migrating" not in stages[: stages.index("kraft")]:
        raise BadInput(
            'A step takes servers to the stage "kraft", and no earlier one to "migrating", where they know both '
            "(KIP-866). Add that before it (trials/migration.toml has all steps)."
        )
    recorded = any(cell.workload == catalogue.RECORDED for cell in plan.cells)
    if plan.variant.migration_controllers and not started and not recorded:
        raise BadInput(
            f"variant.migration_controllers = {plan.variant.migration_controllers}: a step 'migrate' would start them, and "
            "no step of this trial does. Add one (trials/migration.toml has it), or remove the controllers."
        )


def _check_features(plan: Plan) -> None:
    """Refuses a step that would lower a feature level below one that the cluster begins with, or that an earlier step asked
    for: levels are only raised (KIP-584; what lowers metadata.version may lose what was written with it)."""
    levels: dict[str, int] = dict(plan.variant.features)
    for step in plan.steps:
        if not isinstance(step.do, FaultAction) or step.do.fault != FEATURES_FAULT:
            continue
        features = step.do.parameters.get("features", {})
        for name, level in features.items() if isinstance(features, Mapping) else ():
            floor = levels.get(name, METADATA_VERSION_MIN if name == "metadata.version" else 0)
            if not isinstance(level, int):
                continue
            if level < floor:
                raise BadInput(
                    f"Step {step.name!r}: {name} = {level} is lower than {floor}, which the cluster has by then, and levels "
                    "are only raised here (KIP-584). Give a higher one, or remove the step."
                )
            levels[name] = level


METADATA_VERSION_MIN = 7
"""The level of metadata.version that every KRaft cluster in production has at least: 3.3-IV3 (MetadataVersion.MINIMUM_VERSION
since Kafka 4.0; before that, the first one that Kafka calls ready for production, KIP-833)."""


def _protocol_only(plan: Plan) -> bool:
    """Says whether nothing but Kafka's protocol reaches the cluster, so that nobody knows what it is made of."""
    backend = catalogue.BACKENDS.get(plan.backend)
    return backend is not None and backend.protocol_only


def _node_names(plan: Plan) -> set[str]:
    """Returns the names of the nodes that there will be. It is empty if only the cluster can say."""
    if _protocol_only(plan) or plan.compose.file is not None:
        return set()
    if plan.ssh is not None:
        return {node.name for node in plan.ssh.nodes}
    return set(plan.variant.server_names().values())


def _check_action(plan: Plan, step: Step, nodes: Collection[str]) -> None:
    match step.do:
        case FaultAction():
            _check_targets(plan, step, step.do.targets, nodes)
            _check_others(plan, step, step.do.parameters.get("others"))
            check_parameters(
                step.do.fault,
                step.do.parameters,
                targets=step.do.targets,
                nodes=nodes or None,
                variant=None if _protocol_only(plan) else plan.variant,
            )
        case ClientAction() | StallAction():
            for name in step.do.client:
                _check_client(plan, step, parse_target(client_target(name)))
                if isinstance(step.do, StallAction):
                    _check_stall(plan, step, parse_target(client_target(name)))
        case Send() if step.do.producer is not None:
            _check_producer(plan, step, step.do.producer)
        case TakeOver():
            _check_take_over(plan, step, step.do)
        case AddPartitions() if not any(c.late_partitions for c in plan.cells_matching(step.do.cells) if not c.life):
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


def _check_others(plan: Plan, step: Step, others: object) -> None:
    """Refuses an `others` that names servers which the variant does not have."""
    if others not in ("controllers", "zookeepers") or _protocol_only(plan):
        return
    if why := why_nobody(parse_target(str(others)), plan.variant):
        raise BadInput(f"Step {step.name!r}: others = {others!r} {why}.")


def why_nobody(target: Target, variant: Variant) -> str | None:
    """Returns why a role means none of the variant's servers, or None if it can mean some."""
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
    """Raises BadInput if it means a Java member, which cannot be asked to stop polling."""
    for client in plan.clients:
        asked = means_client(target, name=client.name, role=client.role, cell=client.cell, instance=client.instance)
        if asked and client.role == "java-member":
            raise BadInput(
                f"Step {step.name!r}: {client.name} is a Java process that polls on its own and cannot stall. Name members "
                'with group.client = "librdkafka", or `pause` it.'
            )


def _check_client(plan: Plan, step: Step, target: Target) -> None:
    """Raises BadInput if a target means a client, a member or a group that the plan does not have."""
    members = [c for c in plan.clients if c.role in MEMBERS and target.cell in (None, c.cell)]
    if target.role == "client" and target.client not in (known := [c.name for c in plan.clients]):
        near = difflib.get_close_matches(str(target.client), known, n=3) or known[1:4]
        raise BadInput(f"Step {step.name!r}: there is no client {target.client!r}. Some clients: {', '.join(near)}.")
    grouped = sorted({c.cell for c in plan.clients if c.group_id is not None and c.cell is not None})
    with_members = sorted({c.cell for c in plan.clients if c.role in MEMBERS and c.cell is not None})
    wanted = {"member": with_members, "group-coordinator": grouped}.get(target.role)
    if wanted is not None and (target.cell not in wanted if target.cell is not None else not wanted):
        named = "the plan" if target.cell is None else f"cell {target.cell}"
        raise BadInput(f"Step {step.name!r}: {named} has no group. Cells with one: {wanted or 'none'}.")
    transactional = {c.cell for c in plan.clients if c.transactional_id is not None}
    if target.role == "transaction-coordinator" and target.cell not in transactional:
        raise BadInput(f"Step {step.name!r}: cell {target.cell} has no transactional producers. Name one that has.")
    if target.role == "share-coordinator" and target.partition not in plan.shares:
        raise BadInput(f"Step {step.name!r}: partition {target.partition} has no share group. Name one that has.")
    if target.role == "producers" and not any(role_named(c.role) is Role.PRODUCER for c in plan.clients):
        raise BadInput(f"Step {step.name!r}: no client of this plan sends records. Name other clients.")
    if target.role == "member" and target.instance not in [None, *(c.instance for c in members)]:
        raise BadInput(
            f"Step {step.name!r}: the group of cell {'*' if target.cell is None else target.cell} has members "
            f"0…{max(c.instance for c in members)}, not {target.instance}."
        )


# What the steps of a plan need of its backend.


def capabilities_needed(plan: Plan) -> frozenset[Capability]:
    """Returns what the backend must be able to do for the faults of the plan. BadInput if a fault is not known."""
    faults = {step.do.fault for step in plan.steps if isinstance(step.do, FaultAction)}
    watched = {Capability.MESSAGES} if plan.message_steps else set()
    return frozenset[Capability]().union(*map(_needs, sorted(faults)), watched)


def watched_openers(plan: Plan) -> frozenset[str] | None:
    """Returns whose connections must be watched for the messages that steps are about; None means everybody's."""
    return None if any(_means_every_link(step) for step in plan.message_steps) else frozenset({CLIENTS})


def _means_every_link(step: Step) -> bool:
    """Says whether a step is about messages that are not, or not only, on the links of clients. What a step waits for may
    pass anywhere, and so may what a message is held for."""
    given = step.do.parameters if isinstance(step.do, FaultAction) and step.do.fault == MESSAGE_FAULT else {}
    held_for = _matches_in(given.get("action"))
    return isinstance(step.after, MessagePassed) or given.get("others", CLIENTS) not in ONLY_CLIENTS or bool(held_for)


def versions_installed(plan: Plan) -> tuple[str, ...]:
    """Returns the versions of Kafka that steps install (parameter `version` of faults that need INSTALL), each once."""
    wanted = (step.do for step in plan.steps if isinstance(step.do, FaultAction))
    installing = (do.parameters for do in wanted if Capability.INSTALL in _needs(do.fault))
    return tuple(dict.fromkeys(str(given["version"]) for given in installing if "version" in given))


def _needs(fault: str) -> frozenset[Capability]:
    return catalogue.FAULTS.named(fault).needs


def check_parameters(
    fault_name: str,
    parameters: Mapping[str, Any],
    *,
    targets: Sequence[str] | None = None,
    nodes: Collection[str] | None = None,
    variant: Variant | None = None,
) -> Frozen:
    """Returns the parameters that a step gives `fault_name`, as that fault has them. BadInput with the value, the rule and
    the way out if it does not take them.

    With the step's `targets` and the names of the cluster's `nodes`, what the parameters name is checked against them too;
    with the cluster's `variant`, whether the fault means anything there.
    """
    fault = catalogue.FAULTS.named(fault_name)
    for path, value in truths_for_numbers(fault.parameters_model, dict(parameters)):
        raise BadInput(f"fault {fault_name!r}: {explain_truth(path, value)}")
    try:
        checked: Frozen = fault.parameters_model.model_validate(dict(parameters))
    except ValidationError as error:
        problem = innermost(error.errors())[0]
        path = written(problem, dict(parameters))
        holder = annotations_at([fault.parameters_model], path[:-1])
        raise BadInput(f"fault {fault_name!r}: {explain(problem, path, holder)}") from error
    if fault.of_clients:
        _check_clients(fault_name, targets or ())
    if fault.of_partitions:
        _check_partitions(fault_name, targets or ())
    if targets is not None and nodes is not None and (why := fault.refusal(targets, nodes)) is not None:
        raise BadInput(f"fault {fault_name!r}: {why}.")
    if variant is not None and (why := fault.means_nothing(variant, checked)) is not None:
        raise BadInput(f"fault {fault_name!r}: {why}.")
    for name in sorted(fault.role_parameters):
        _check_roles(f"fault {fault_name!r}: {name}", dict(checked)[name], targets, nodes)
    return checked


def _check_clients(fault_name: str, targets: Sequence[str]) -> None:
    for text in targets:
        if parse_target(text).role not in CLIENT_ROLES:
            raise BadInput(
                f"fault {fault_name!r} is for clients, and {text!r} is none. Give client:NAME, member(c, i) or producers."
            )


def _check_partitions(fault_name: str, targets: Sequence[str]) -> None:
    for text in targets:
        if parse_target(text).role not in ("partition", *COORDINATORS):
            raise BadInput(
                f"fault {fault_name!r} is for partitions, and {text!r} is none. Give partition(p), partition(*), or for the "
                "partition of a coordinator group-coordinator(c) or transaction-coordinator(c)."
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
