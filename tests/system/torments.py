"""Trials to be killed in: on each backend, with each sort of thing that could be left."""

from dataclasses import dataclass

_HEAD = """
name = "torture"
title = "Something is broken while the harness is killed"
{head}

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
    head: str = ""
    """Lines at the top of the trial file."""
    needs: tuple[str, ...] = ()
    """Parts of the machine, as `need` of `tests/conftest.py` knows them; namespaces go with the isolation."""

    @property
    def text(self) -> str:
        """The trial file."""
        steps = [
            _STEP.format(number=number, fault=fault, target=target, parameters=f", {more}" if more else "")
            for number, (fault, target, more) in enumerate(self.faults)
        ]
        return _HEAD.format(head=self.head) + "".join(steps) + _HEAL

    @property
    def steps(self) -> list[str]:
        """Names of the steps that break something, and of the heal."""
        return [f"break {number}" for number in range(len(self.faults))] + ["mend"]


_CUT = 'parameters = { others = "followers", direction = "both" }'
TORMENTS = (
    Torment("pause and kill", (("pause", "followers(0)", ""), ("kill", "leader(0)", ""))),
    Torment("partition", (("partition", "leader(0)", _CUT),)),
    Torment("stop", (("stop", "leader(0)", ""), ("pause", "active-controller", ""))),
    Torment("signals: pause and kill", (("pause", "followers(0)", ""), ("kill", "leader(0)", "")), "signals"),
    Torment("signals: stop", (("stop", "leader(0)", ""), ("pause", "active-controller", "")), "signals"),
    Torment(
        "disks", (("disk-hang", "leader(0)", ""), ("disk-full", "node:controller-3001", "")), needs=("loop-disks",)
    ),
    Torment(
        "compose",
        (("partition", "leader(0)", _CUT), ("kill", "leader(0)", ""), ("pause", "active-controller", "")),
        "signals",
        head='backend = "compose"',
        needs=("docker",),
    ),
)
