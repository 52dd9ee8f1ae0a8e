"""The links of the trial's clients to a leader on real Kafka: late and narrow towards it alone, and back from it alone."""

import numpy as np
import pytest

from prozess.harness.history.convert import History
from prozess.harness.schema import FaultPhase, Outcome, Tristate
from prozess.harness.verdict import Verdict

pytestmark = [pytest.mark.cluster, pytest.mark.long]

MS, NS_PER_S = 1_000_000, 1_000_000_000
BYTES, NARROW = 1000, 20_000
LATE_MS = 300
TRIAL = """
name = "links-of-clients"
title = "What clients send to a leader is late or narrow, and then what it sends to them is"
control = "optional"
metrics = false

[variant]
metadata_mode = "kraft-combined"

[topics]
partitions = 1
placement = [[1, 2, 3]]

[traffic]
rate_hz = 40
value_bytes = 1000

[base]
"topic.min_insync_replicas" = 2
"producer.linger_ms" = 0
"""
FAULTS = (
    ("towards", "latency", "latency_ms = 300, back_ms = 0"),
    ("back", "latency", "latency_ms = 0, back_ms = 300"),
    ("narrow-towards", "bandwidth", "back_bytes_per_s = 20000"),
    ("narrow-back", "bandwidth", "bytes_per_s = 20000"),
)
STEP = """
[[steps]]
name = "{name}"
after = {{ condition = "elapsed", seconds = 3 }}
do = {{ kind = "fault", fault = "{fault}", targets = ["leader(0)"], parameters = {{ others = "clients", {parameters} }} }}

[[steps]]
name = "{name} is over"
after = {{ condition = "elapsed", seconds = 6 }}
do = {{ kind = "heal" }}

[[steps]]
name = "quick after {name}"
after = {{ condition = "settled" }}
"""


def test_each_way_of_the_links_of_clients_is_late_or_narrow_by_itself(run_trial, need):
    for part in ("java", "namespaces", "toxiproxy", "iptables"):
        need(part)
    steps = "".join(STEP.format(name=name, fault=fault, parameters=given) for name, fault, given in FAULTS)
    finished = run_trial(TRIAL + steps, "--engine", "local")
    assert finished.verdict.verdict is Verdict.HELD, finished.verdict.sentence
    history = History.open(finished.run)
    faults, sends, reads = (history.table(name) for name in ("faults", "sends", "reads"))
    names = [step.name for step in history.plan.steps]
    acknowledged = sends["outcome"] == Outcome.OK

    def held(name):
        """From when to when the fault was proven."""
        mine = faults["step"] == names.index(name)
        proven = mine & (faults["phase"] == FaultPhase.VERIFIED)
        assert set(faults["effect"][proven].tolist()) == {Tristate.YES}, name
        return int(faults["time_ns"][proven].max()), int(
            faults["time_ns"][mine & (faults["phase"] == FaultPhase.UNDONE)].min()
        )

    for name in ("towards", "back"):
        begin_ns, end_ns = held(name)
        rows = acknowledged & (sends["invoked_ns"] > begin_ns) & (sends["completed_ns"] < end_ns)
        took_ms = (sends["completed_ns"][rows] - sends["invoked_ns"][rows]) / MS
        assert len(took_ms) > 20, name
        assert took_ms.min() > 0.95 * LATE_MS, "one way is late, whichever it is"
        assert np.median(took_ms) < 2 * LATE_MS, "and the other is not"
    begin_ns, end_ns = held("narrow-towards")
    seconds = (end_ns - begin_ns) / NS_PER_S
    sent = np.count_nonzero(acknowledged & (sends["invoked_ns"] > begin_ns) & (sends["completed_ns"] < end_ns))
    assert 0 < sent * BYTES < NARROW * (seconds + 1), "no more was acknowledged than could be sent"
    begin_ns, end_ns = held("narrow-back")
    seconds = (end_ns - begin_ns) / NS_PER_S
    readers = [client.client for client in history.plan.clients if client.role == "reader"]
    given = np.isin(reads["client"], readers) & (reads["read_ns"] > begin_ns) & (reads["read_ns"] < end_ns)
    assert 0 < np.count_nonzero(given) * BYTES < NARROW * (seconds + 1), "no more was read than the leader could send"
