"""A topic that its producer may not write to, now and then: an ACL that denies it, set and taken away by Kafka's own means.

Only writes from this host's address on the trial's network are denied, so that the audit, which comes over the observer's
link, is not. Once a topic has any ACL, who is not named by one is refused (`allow.everyone.if.no.acl.found` is of resources
without); so everybody is allowed everything first. A denial beats that.
[Kafka documentation, security, "Authorization and ACLs"]
"""

import socket
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from workloads.client import Client

ALLOWED_NS, DENIED_NS = 2_000_000_000, 2_000_000_000
REQUEST_LIMIT_S = 10.0
"""For one change of ACLs."""
END_LIMIT_S = 10.0
"""For taking the denial away in the end."""
_EVERYONE, _UNNAMED = "User:*", "User:ANONYMOUS"


class Denial:
    """Denies for DENIED_NS after every ALLOWED_NS, while it is ticked. Never blocks but in `end`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        servers = str(client.spec.properties["bootstrap.servers"])
        self._admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        self._topics = sorted({topic for _, topic, _ in client.spec.partitions})
        self._host = _own_address(servers)
        self._pending: list[Future[Any]] = []
        self._denied, self._ended = False, False
        self._next_ns = client.now_ns() + ALLOWED_NS
        allow = AclPermissionType.ALLOW
        self._request([_binding(topic, _EVERYONE, "*", AclOperation.ALL, allow) for topic in self._topics])

    def tick(self, now_ns: int) -> None:
        """Change it if it is time to."""
        if self._ended or now_ns < self._next_ns or not self._answered():
            return
        if self._denied:
            self._withdraw()
        else:
            deny = AclPermissionType.DENY
            self._request([_binding(t, _UNNAMED, self._host, AclOperation.WRITE, deny) for t in self._topics])
        self._denied = not self._denied
        self._next_ns = now_ns + (DENIED_NS if self._denied else ALLOWED_NS)

    def end(self) -> None:
        """Take the denial away for good. Safe to call twice. What the cluster does not answer is logged, and the audit will
        say so."""
        if self._ended:
            return
        self._ended = True
        if self._denied:
            self._withdraw()
        for future in self._pending:
            try:
                future.result(timeout=END_LIMIT_S)
            except (KafkaException, TimeoutError) as error:
                self._client.log(f"an ACL was not changed within {END_LIMIT_S:g} s: {error}")

    def _answered(self) -> bool:
        if not all(future.done() for future in self._pending):
            return False
        for future in self._pending:
            if (error := future.exception()) is not None:
                self._client.log(f"an ACL was not changed: {error}")
        self._pending = []
        return True

    def _request(self, bindings: list[AclBinding]) -> None:
        self._pending += self._admin.create_acls(bindings, request_timeout=REQUEST_LIMIT_S).values()

    def _withdraw(self) -> None:
        filters = [
            AclBindingFilter(
                ResourceType.TOPIC,
                topic,
                ResourcePatternType.LITERAL,
                _UNNAMED,
                self._host,
                AclOperation.WRITE,
                AclPermissionType.DENY,
            )
            for topic in self._topics
        ]
        self._pending += self._admin.delete_acls(filters, request_timeout=REQUEST_LIMIT_S).values()


def _binding(
    topic: str, principal: str, host: str, operation: AclOperation, permission: AclPermissionType
) -> AclBinding:
    return AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, principal, host, operation, permission)


def _own_address(servers: str) -> str:
    """The address under which the brokers see this process: of the interface that leads to the first of them."""
    host, _, port = servers.split(",")[0].rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, int(port)))  # of a datagram socket: nothing is sent
        return str(probe.getsockname()[0])
