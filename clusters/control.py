"""What `clusters.host` and `clusters.hosted` say to each other: one JSON object per line over a socket pair.

Request  {"id": 7, "node": "broker-1" or null for the cluster, "method": "stop", "arguments": {"timeout_s": 30}}
Answer   {"id": 7, "result": …}  or  {"id": 7, "error": {"type": "NotReady", "arguments": {…}}}
The first line of the host has id 0: the facts of the cluster it built, or why it could not.
"""

import json
from typing import Any

from harness import errors
from harness.errors import HarnessFailed, NotReady, ProzessError

FACTS_ID = 0
CLUSTER_METHODS = frozenset({"setup", "wait_ready", "describe", "collect_logs", "teardown"})
NODE_METHODS = frozenset(
    {
        "state",
        "os_pid",
        "start",
        "kill",
        "stop",
        "pause",
        "resume",
        "block",
        "unblock",
        "receives_from",
        "impair",
        "repair",
        "impaired",
        "harm",
    }
)


def encode(message: dict[str, Any]) -> bytes:
    """One line."""
    return json.dumps(message, ensure_ascii=False).encode() + b"\n"


def error_to_json(error: BaseException) -> dict[str, Any]:
    """An exception, such that the other side can raise its like."""
    if isinstance(error, NotReady):
        fields = {"awaited": error.awaited, "timeout_s": error.timeout_s, "last_seen": error.last_seen}
        return {"type": "NotReady", "arguments": fields}
    if isinstance(error, ProzessError):
        return {"type": type(error).__name__, "text": str(error)}
    return {"type": "HarnessFailed", "text": f"{type(error).__name__}: {error}"}


def error_from_json(told: dict[str, Any]) -> ProzessError:
    """The exception that the other side raised."""
    if told["type"] == "NotReady":
        return NotReady(**told["arguments"])
    kind = getattr(errors, told["type"], HarnessFailed)
    assert isinstance(kind, type), kind
    assert issubclass(kind, ProzessError), kind
    return kind(told["text"])
