"""What a step is aimed at: nodes and clients by the role they have when it comes. Pure."""

import re
from typing import Literal

from harness.configuration import Frozen
from harness.schema import SENDING

_TARGET = re.compile(
    r"(?P<role>leader|followers|in-sync-followers|replicas)\((?P<partition>\d+)\)|"
    r"follower\((?P<follower>\d+), ?(?P<which>[1-9]\d*)\)|partition\((?P<whole>\d+|\*)\)|"
    r"(?P<only>active-controller|zookeeper-leader|brokers|controllers|zookeepers)|node:(?P<node>[\w.-]+)|"
    r"client:(?P<client>\S+)|member\((?P<cell>\d+|\*), ?(?P<instance>\d+|\*)\)|(?P<producers>producers)|"
    r"group-coordinator\((?P<group>\d+)\)|"
    r"transaction-coordinator\((?P<transactional>\d+)\)|"
    r"rack\((?P<rack>[^()\s]+)\)|(?P<share>minority|majority)\((?P<of>brokers|controllers|zookeepers)\)"
)


MEMBERS = frozenset({"member", "java-member", "copier", "java-copier", "application"})
"""Roles of clients that `member(c, i)` means."""


class Target(Frozen):
    """A role: `leader(p)`, `followers(p)`, `replicas(p)` of dense partition id p, `follower(p, i)`, the i-th of them (from 1,
    as assigned), `in-sync-followers(p)`, those in the ISR; `active-controller`, `zookeeper-leader`, `brokers`, `controllers`
    and `zookeepers` (every one of them), `node:NAME`; `rack(NAME)`, its brokers; `minority(KIND)` and `majority(KIND)` of the
    brokers, controllers or zookeepers: the largest number below half of them, and the smallest above, by ascending id;
    `partition(p)`, the partition itself (`*`: every one of the plan), for faults of Kafka itself, which resolves to the
    brokers that have copies;
    `client:NAME`, `member(c, i)`, the i-th member of the group of cell c (a copier, or an instance of an application, where
    those are its members; `*` for either: of every one), and `producers`, whoever sends: processes of clients, which faults
    of processes can hit; `group-coordinator(c)`: the broker that leads the partition of `__consumer_offsets` of that group;
    `transaction-coordinator(c)`: that of `__transaction_state` of the first transactional.id of cell c."""

    role: Literal[
        "leader", "followers", "in-sync-followers", "follower", "replicas", "partition", "active-controller",
        "zookeeper-leader", "brokers", "controllers", "zookeepers", "rack", "minority", "majority", "node", "client",
        "member", "producers", "group-coordinator", "transaction-coordinator",
    ]  # fmt: skip
    partition: int | None = None
    """Of `partition`: None = every one."""
    node: str | None = None
    client: str | None = None
    cell: int | None = None
    """Of `member`: None = every group."""
    instance: int | None = None
    """Of `member`: None = each of them. Of `follower`: which, from 1."""
    rack: str | None = None
    of: Literal["brokers", "controllers", "zookeepers"] | None = None
    """Of `minority` and `majority`."""

    def count_of(self, every: int) -> int:
        """How many of so many nodes a `minority` or `majority` is."""
        return (every - 1) // 2 if self.role == "minority" else every // 2 + 1


def parse_target(text: str) -> Target:
    """A role from its text. ValueError with the rule otherwise."""
    match = _TARGET.fullmatch(text)
    if match is None:
        raise ValueError(
            f"target {text!r} is not a role; give leader(p), followers(p), follower(p, i), in-sync-followers(p), "
            "replicas(p) or partition(p) with p a partition id, active-controller, zookeeper-leader, brokers, controllers, "
            "zookeepers, node:NAME, rack(NAME), minority(KIND), majority(KIND) with KIND one of those, client:NAME, "
            "producers, or member(c, i), group-coordinator(c), transaction-coordinator(c) with c a cell and i the number of "
            "a member (or * for all)"
        )
    found = {name: value for name, value in match.groupdict().items() if value is not None}
    match next(iter(found)):
        case "role":
            return Target(role=match["role"], partition=int(match["partition"]))  # type: ignore[arg-type] # by the pattern
        case "follower":
            return Target(role="follower", partition=int(match["follower"]), instance=int(match["which"]))
        case "whole":
            return Target(role="partition", partition=_number(match["whole"]))
        case "node" | "client" | "rack" as role:
            return Target.model_validate({"role": role, role: match[role]})
        case "cell":
            return Target(role="member", cell=_number(match["cell"]), instance=_number(match["instance"]))
        case "group":
            return Target(role="group-coordinator", cell=int(match["group"]))
        case "transactional":
            return Target(role="transaction-coordinator", cell=int(match["transactional"]))
        case "share":
            return Target(role=match["share"], of=match["of"])  # type: ignore[arg-type] # by the pattern
        case _:
            return Target.model_validate({"role": match["only"] or match["producers"]})


def _number(text: str) -> int | None:
    return None if text == "*" else int(text)


CLIENT_ROLES = ("client", "member", "producers")
"""Roles that mean processes of clients."""


def client_target(name: str) -> str:
    """The target that the `client` of a ClientAction means."""
    return name if name.startswith("member(") or name == "producers" else f"client:{name}"


def means_client(target: Target, *, name: str, role: str, cell: int | None, instance: int) -> bool:
    """Is the client with this name, role, cell and number among its like one that the target means?"""
    match target.role:
        case "member":
            return role in MEMBERS and target.cell in (None, cell) and target.instance in (None, instance)
        case "producers":
            return role in SENDING
        case "client":
            return name == target.client
        case _:
            return False
