"""The example backend of docs/extending.md, on a real cluster: as a subclass of the local backend it can partition nodes."""

import pytest

from prozess.clusters.registry import BACKENDS, LOCAL
from tests.support.added_package import extend
from tests.support.command import OURS

pytestmark = pytest.mark.cluster

TRIAL = """
name = "slow"
title = "a broker of an added backend is cut off"
backend = "slow"
metrics = false
topics = { partitions = 1 }

[[steps]]
name = "cut the leader off"
after = { condition = "acked", count = 20 }
do = { kind = "fault", fault = "partition", targets = ["leader(0)"], parameters = { others = "all" } }

[[steps]]
name = "go on"
after = { condition = "leader-moved", partition = 0 }

[[steps]]
name = "heal"
after = { condition = "elapsed", seconds = 1 }
do = { kind = "heal" }
"""


@pytest.mark.long  # tests/unit/test_extending.py makes this backend, and starts nothing
def test_an_added_backend_prepares_isolates_and_partitions_like_its_base(run_trial, tmp_path_factory, monkeypatch):
    monkeypatch.setitem(BACKENDS, "slow", LOCAL)  # for this process, which only reads the plan
    program = ("env", f"PYTHONPATH={extend(tmp_path_factory.mktemp('extended'))}", *OURS)
    ran = run_trial(TRIAL, "--engine", "local", program=program)
    (fault,) = ran.verdict.faults
    assert (fault.fault, fault.effective) == ("partition", True)
    assert fault.end_s is not None
    assert ran.history.plan.backend == "slow"
    assert ran.verdict.verdict == "held", ran.verdict.sentence
