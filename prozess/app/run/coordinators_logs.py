"""Keeps what the logs of coordinators say: __transaction_state, __consumer_offsets and __share_group_state."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from uuid import UUID

import numpy as np

from prozess.clusters.files.group_log import GroupLog, read_group_log
from prozess.clusters.files.log_directories import log_directories
from prozess.clusters.files.share_log import ShareLog, read_share_log
from prozess.clusters.files.transaction_log import TransactionLog, read_transaction_log
from prozess.harness.clock import NS_PER_S
from prozess.harness.interfaces import Cluster
from prozess.harness.interfaces.witnesses import OnDisk
from prozess.harness.plan.plan import Plan
from prozess.harness.recording.rows import Recorder
from prozess.harness.schema import NONE


def keep_coordinators_logs(
    plan: Plan, cluster: Cluster, recorder: Recorder, wall_minus_monotonic_ns: int, emit: Callable[..., None]
) -> None:
    """Writes what coordinators wrote down of transactional.ids, consumer groups and share groups as rows of
    `transaction_states`, `group_states` and `share_states`. An event reports what could not be read. Brokers must
    have ended."""
    problems: list[str] = []
    directories = {node.node_id: node.data_directory for node in cluster.nodes if "broker" in node.roles}
    cells, served = _cells_of_groups(plan), _served(plan, directories)
    made = {
        "transaction_states": _transaction_states(plan, read_transaction_log(directories, on_problem=problems.append)),
        "group_states": _group_states(cells, served, read_group_log(directories, on_problem=problems.append)),
        "share_states": _share_states(cells, served, read_share_log(directories, on_problem=problems.append)),
    }
    rows = dict.fromkeys(made, 0)
    for table, parts in made.items():
        for part in parts:
            columns = dict(part)
            columns["time_ns"] = columns.pop("timestamp_ms") * (NS_PER_S // 1000) - wall_minus_monotonic_ns
            recorder.extend(table, columns)
            rows[table] += len(columns["time_ns"])
    if any(rows.values()) or problems:
        emit("coordinators-logs", rows=rows, problems=problems)


def _transaction_states(plan: Plan, logs: Iterable[TransactionLog]) -> Iterator[dict[str, np.ndarray]]:
    clients: dict[str, int] = {}
    for client in plan.clients:
        if client.transactional_id is not None:
            clients.setdefault(client.transactional_id, client.client)
    for log in logs:
        own = np.array([clients.get(name, NONE) for name in log.ids], dtype=np.int64)
        yield {**log.columns, "transactional_id": own, "number": np.full(len(own), log.number)}


def _group_states(
    cells: Mapping[str, int], served: Mapping[tuple[UUID, int], int], logs: Iterable[GroupLog]
) -> Iterator[dict[str, np.ndarray]]:
    members: dict[str, int] = {"": NONE}
    names: dict[str, int] = {"": NONE}
    gone: dict[tuple[UUID, int], int] = {}
    for log in logs:
        numbers = {
            "group": [cells.get(group, NONE) for group in log.groups],
            "member": [members.setdefault(member, len(members) - 1) for member in log.members],
            "partition": [NONE if one is None else _numbered(one, served, gone) for one in log.partitions],
            "name": [names.setdefault(name, len(names) - 1) for name in log.names],
        }
        own = {name: np.array(values, dtype=np.int64) for name, values in numbers.items()}
        yield {**log.columns, **own, "number": np.full(len(log.groups), log.number)}


def _numbered(one: tuple[UUID, int], served: Mapping[tuple[UUID, int], int], gone: dict[tuple[UUID, int], int]) -> int:
    """Returns the id of a partition; below NONE a number of its own, if its topic is not there at the end."""
    return served[one] if one in served else gone.setdefault(one, NONE - 1 - len(gone))


def _share_states(
    cells: Mapping[str, int], served: Mapping[tuple[UUID, int], int], logs: Iterable[ShareLog]
) -> Iterator[dict[str, np.ndarray]]:
    for log in logs:
        own = {
            "group": np.array([cells.get(group, NONE) for group in log.groups], dtype=np.int64),
            "partition": np.array([served.get(one, NONE) for one in log.partitions], dtype=np.int64),
        }
        yield {**log.columns, **own, "number": np.full(len(log.groups), log.number)}


def _cells_of_groups(plan: Plan) -> dict[str, int]:
    """Returns group.id → its cell: of a topic that is made again that of the last one, which is there at the end."""
    last = {cell.topic_name: cell.cell for cell in sorted(plan.cells, key=lambda cell: cell.life)}
    return {
        client.group_id: last[plan.cells[client.cell].topic_name]
        for client in plan.clients
        if client.group_id and client.cell is not None
    }


def _served(plan: Plan, directories: Mapping[int, Path]) -> dict[tuple[UUID, int], int]:
    """Returns (topic id, number) → partition id, of topics that are there at the end."""
    return {
        (log.topic_id, log.number): plan.recorded[log.topic, log.number]
        for directory in directories.values()
        for log in log_directories(directory, {topic for topic, _ in plan.recorded})
        if log.state is OnDisk.SERVED and (log.topic, log.number) in plan.recorded
    }
