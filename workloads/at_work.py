"""Is a client at its work? Told by the rows that it writes, while it writes them."""

from pathlib import Path

from harness.plan import PlannedClient
from harness.rows import read_rows
from harness.schema import ASSIGNMENTS, CLIENTS, NONE, SENDS, Outcome, Role, role_named
from workloads.member_rows import ASSIGN


def seen_at_work(rows: Path, planned: PlannedClient, client: int, *, partitions: int) -> bool:
    """Has this client, in the place of the planned one, been seen at its work (`harness.protocols.ClientNode.at_work`)?
    `partitions`: how many of its partitions were there from the start."""
    if planned.group is not None:
        written, _ = read_rows(rows, ASSIGNMENTS, client)
        assigned = written["event"] == ASSIGN
        # A group of more members than partitions leaves some without any.
        enough = partitions >= planned.group.members
        return bool((assigned & (written["partition"] != NONE)).any() if enough else assigned.any())
    if role_named(planned.role) is Role.PRODUCER and not planned.on_standby:
        written, _ = read_rows(rows, SENDS, client)
        return bool((written["outcome"] == Outcome.OK).any())
    return (rows / f"{CLIENTS.name}.{client}.0.rows").exists()
