"""What crosses the socket into the sandbox: errors, as what they are."""

import json

import pytest

from prozess.clusters.local.hosted import encode, error_from_json, error_to_json
from prozess.harness.errors import BadInput, ClusterFailed, HarnessFailed, MissingTool, NotReady


@pytest.mark.parametrize(
    "error",
    [
        NotReady(awaited="x", timeout_s=3, last_seen="y"),
        ClusterFailed("broker-1 ended"),
        MissingTool("no ip"),
        BadInput("no"),
    ],
)
def test_an_error_crosses_the_socket_as_what_it_is(error: Exception) -> None:
    line = encode({"error": error_to_json(error)})
    assert line.endswith(b"\n")
    back = error_from_json(json.loads(line)["error"])
    assert type(back) is type(error)
    assert str(back) == str(error)


def test_a_foreign_error_crosses_as_a_failure_of_the_harness() -> None:
    back = error_from_json(error_to_json(OSError("disk on fire")))
    assert type(back) is HarnessFailed
    assert "OSError: disk on fire" in str(back)
