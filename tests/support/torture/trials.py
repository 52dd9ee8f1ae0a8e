"""Trials to be killed in: on each backend, with each sort of thing that could be left."""

from dataclasses import dataclass

_HEAD = """
name = "torture"
title = "Something is broken while the harness is killed"
backend = "{backend}"

[variant.properties]
"broker.session.timeout.ms" = 4000
"broker.heartbeat.interval.ms" = 500

[topics]
partitions = 1
placement = [[1, 2, 3]]

[base]
"topic.replication_factor" = 3
"topic.min_insync_replicas" = 2

[axes]
"producer.acks" = ["1", "all"]

[[steps]]
name = "steady"
after = {{ condition = "acked", count = 20 }}
"""
_STEP = """
[[steps]]
name = "break {number}"
do = {{ kind = "fault", fault = "{fault}", targets = ["{target}"]{parameters} }}

[[steps]]
name = "broken {number}"
after = {{ condition = "elapsed", seconds = 1 }}
"""
_HEAL = """
[[steps]]
name = "mend"
do = { kind = "heal" }

[[steps]]
name = "whole"
after = { condition = "isr" }
timeout_s = 60
"""


@dataclass(frozen=True)
class Torment:
    """A trial to be killed in. `faults`: (name, target, further keys of the step)."""

    name: str
    faults: tuple[tuple[str, str, str], ...]
    isolation: str = "namespaces"
    backend: str = "local"
    needs: tuple[str, ...] = ()
    """Parts of the machine, as `need` of `tests/conftest.py` knows them; namespaces go with the isolation."""

    def text(self, tail: str = "") -> str:
        """The trial file. `tail`: its end, of the cluster that it runs on."""
        steps = [
            _STEP.format(number=number, fault=fault, target=target, parameters=f", {more}" if more else "")
            for number, (fault, target, more) in enumerate(self.faults)
        ]
        return _HEAD.format(backend=self.backend) + "".join(steps) + _HEAL + tail

    @property
    def steps(self) -> list[str]:
        """Names of the steps that break something, and of the heal."""
        return [f"break {number}" for number in range(len(self.faults))] + ["mend"]


_CUT = 'parameters = { others = "followers", direction = "both" }'
_TO_FOLLOWERS = 'parameters = { others = "followers", %s }'
_HELD = 'parameters = { match = { %s }, action = { do = "hold" } }'
_HELD_BETWEEN = 'parameters = { others = "brokers", match = { %s }, action = { do = "hold" } }'
_APPEND = 'match = { method = "kafka.cluster.Partition#appendRecordsToLeader" }'
_PAUSED = f'parameters = {{ {_APPEND}, action = {{ do = "pause" }} }}'
_FETCH = 'match = { method = "org.apache.kafka.storage.internals.log.UnifiedLog#appendAsFollower", every = 2 }'
_DELAYED = f'parameters = {{ {_FETCH}, action = {{ do = "delay", seconds = 0.5 }} }}'
_LATE = 'parameters = { others = "%s", latency_ms = 100, jitter_ms = 50 }'
TORMENTS = (
    Torment("pause and kill", (("pause", "followers(0)", ""), ("kill", "leader(0)", ""))),
    Torment("signals: pause and kill", (("pause", "followers(0)", ""), ("kill", "leader(0)", "")), "signals"),
    Torment("signals: stop", (("stop", "leader(0)", ""), ("pause", "active-controller", "")), "signals"),
    Torment(
        "disks", (("disk-hang", "leader(0)", ""), ("disk-full", "node:controller-3001", "")), needs=("loop-disks",)
    ),
    Torment(
        "compose",
        (("partition", "leader(0)", _CUT), ("kill", "leader(0)", ""), ("pause", "active-controller", "")),
        "signals",
        "compose",
        needs=("docker",),
    ),
    Torment(
        "ssh",
        (
            ("bandwidth", "leader(0)", _TO_FOLLOWERS % "bytes_per_s = 50000"),
            ("partition", "leader(0)", _CUT),
            ("disk-full", "node:controller-3001", ""),
            ("pause", "followers(0)", ""),
        ),
        "signals",
        "ssh",
        needs=("namespaces", "sshd"),
    ),
    Torment(
        "attach",
        (
            ("latency", "leader(0)", _LATE % "clients"),
            ("client-clock", "producers", "parameters = { offset_ms = 60000 }"),
            ("partition", "followers(0)", 'parameters = { others = "clients" }'),
        ),
        "signals",
        "attach",
        needs=("namespaces", "toxiproxy", "shim"),
    ),
)
"""Those of CI: every backend, with and without a sandbox."""
MORE = (
    Torment("partition", (("partition", "leader(0)", _CUT),)),
    Torment("stop", (("stop", "leader(0)", ""), ("pause", "active-controller", ""))),
    Torment(
        "links",
        (
            ("loss", "leader(0)", "parameters = { share = 0.2 }"),
            ("latency", "leader(0)", _LATE % "everybody"),
            ("bandwidth", "followers(0)", "parameters = { bytes_per_s = 100000 }"),
        ),
        needs=("toxiproxy", "iptables"),
    ),
    Torment("ends of connections", (("reset", "leader(0)", ""), ("half-open", "leader(0)", ""))),
    Torment(
        "disks that fail",
        (("disk-slow", "leader(0)", ""), ("disk-error", "node:broker-3", ""), ("power-loss", "node:broker-2", "")),
        needs=("loop-disks",),
    ),
    Torment(
        "files",
        (
            ("corrupt-file", "node:broker-3", 'parameters = { file = "segment", partition = 0 }'),
            ("wipe", "node:broker-2", ""),
        ),
    ),
    Torment("clock", (("clock", "leader(0)", "parameters = { offset_ms = 5000 }"),), needs=("shim",)),
    Torment(
        "Kafka's own",
        (
            ("configure", "partition(0)", 'parameters = { properties = { "max.message.bytes" = "2000000" } }'),
            ("reassign", "partition(0)", 'parameters = { how = "rotate" }'),
            ("rolling-restart", "brokers", 'parameters = { wait = "none" }'),
        ),
    ),
    Torment(
        "compose: links",
        (
            ("latency", "leader(0)", _LATE % "everybody"),
            ("loss", "leader(0)", "parameters = { share = 0.2 }"),
            ("half-open", "leader(0)", ""),
        ),
        "signals",
        "compose",
        needs=("docker", "toxiproxy"),
    ),
    Torment(
        "compose: disks and clock",
        (
            ("clock", "leader(0)", "parameters = { offset_ms = 5000 }"),
            ("disk-hang", "leader(0)", ""),
            ("disk-full", "node:controller-3001", ""),
        ),
        "signals",
        "compose",
        needs=("docker", "loop-disks", "shim"),
    ),
    Torment(
        "ssh: loss and death",
        (
            ("loss", "leader(0)", _TO_FOLLOWERS % "share = 0.3"),
            ("stop", "followers(0)", ""),
            ("kill", "active-controller", ""),
        ),
        "signals",
        "ssh",
        needs=("namespaces", "sshd"),
    ),
    Torment(
        "messages",
        (
            ("message", "leader(0)", _HELD % 'direction = "answer", api = "Produce"'),
            ("message", "leader(0)", _HELD_BETWEEN % 'api = "Fetch"'),
        ),
        needs=("iptables",),
    ),
    Torment("methods", (("method", "leader(0)", _PAUSED), ("method", "node:broker-3", _DELAYED))),
    Torment("signals: methods", (("method", "leader(0)", _PAUSED), ("method", "node:broker-3", _DELAYED)), "signals"),
)
"""Further ones of `make torture`: every sort of thing that a fault could leave."""
