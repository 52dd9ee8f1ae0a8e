"""Clients of several versions, and clients on which nothing is set, on one real cluster whose leader dies."""

import json

import pytest

from prozess.harness.verdict import AnomalyOutcome, Verdict

pytestmark = [pytest.mark.cluster, pytest.mark.long]

STEPS = """
[[steps]]
name = "the followers are frozen"
after = { condition = "elapsed", seconds = 5 }
do = { kind = "fault", fault = "pause", targets = ["followers(0)"] }

[[steps]]
name = "the leader is killed"
after = { condition = "elapsed", seconds = 3 }
do = { kind = "fault", fault = "kill", targets = ["leader(0)"] }

[[steps]]
name = "heal"
after = { condition = "elapsed", seconds = 5 }
do = { kind = "heal" }
"""
OF_LIBRDKAFKA = """
name = "versions-of-librdkafka"
title = "Producers and members of several versions of librdkafka"
metrics = false

[[workloads]]
kind = "log"
topics = { partitions = 1 }
base = { "topic.min_insync_replicas" = 2 }

[workloads.axes]
"producer.client_version" = ["2.3.0", "2.8.0", "default"]
"producer.defaults" = ["prozess", "library"]

[[workloads]]
kind = "group"
topics = { partitions = 1 }
base = { "topic.min_insync_replicas" = 2, "group.members" = 1 }

[workloads.axes]
"group.client_version" = ["2.3.0", "default"]
"""
OF_JAVA = """
name = "versions-of-java"
title = "Producers of several versions of Kafka on which nothing is set"
metrics = false

[[workloads]]
kind = "verifiable"
topics = { partitions = 1 }

[workloads.base]
"producer.client" = "java"
"producer.defaults" = "library"
"topic.min_insync_replicas" = 2

[workloads.axes]
"producer.client_version" = ["2.8.2", "3.1.2", "default"]
"""
PERMITTED = (AnomalyOutcome.POSSIBLE, AnomalyOutcome.PERMITTED)


def test_clients_of_several_versions_of_librdkafka_keep_what_their_settings_promise(run_trial, need):
    need("java")
    need("namespaces")
    finished = run_trial(OF_LIBRDKAFKA + STEPS, "--engine", "local")
    verdict = finished.verdict
    assert verdict.verdict is Verdict.HELD, verdict.sentence
    assert len(verdict.cells) == 8
    for cell in verdict.cells:
        if cell.workload == "log":
            assert cell.anomalies["lost"].outcome is AnomalyOutcome.HELD, cell.name
            assert cell.anomalies["duplicate"].outcome in PERMITTED, (
                "no librdkafka is idempotent unless it is asked to be"
            )
    clients = json.loads(finished.run.versions.read_text(encoding="utf-8"))["clients"]
    told = {one["version"]: one.get("verified") for one in clients}
    assert (told.pop("2.3.0"), told.pop("2.8.0")) == (True, True)
    assert set(told.values()) == {None}, "the installed one"


def test_what_nothing_set_promises_depends_on_the_version_of_the_java_client(run_trial, need):
    need("java")
    need("namespaces")
    finished = run_trial(OF_JAVA + STEPS, "--engine", "local")
    verdict = finished.verdict
    assert verdict.verdict is Verdict.HELD, verdict.sentence
    by_version = {cell.axes["producer.client_version"]: cell.anomalies for cell in verdict.cells}
    assert by_version["2.8.2"]["lost"].outcome in PERMITTED, "acks=1 before 3.0 (KIP-679)"
    assert by_version["2.8.2"]["duplicate"].outcome in PERMITTED
    for version in ("3.1.2", "default"):
        assert by_version[version]["lost"].outcome is AnomalyOutcome.HELD, version
        assert by_version[version]["duplicate"].outcome is AnomalyOutcome.HELD, version


STORES_ENDS = """
name = "ends-that-are-stored"
title = "Members of two versions of librdkafka that commit by themselves"
control = "optional"
metrics = false

[[workloads]]
kind = "group"

[workloads.topics]
partitions = 1

[workloads.traffic]
rate_hz = 4

[workloads.base]
"topic.min_insync_replicas" = 2
"group.members" = 1
"group.commit" = "auto"
"group.auto_commit_interval_ms" = 100

[workloads.axes]
"group.client_version" = ["2.8.0", "default"]
"group.properties.enable.partition.eof" = [true, "default"]

[[steps]]
name = "a while"

[[steps]]
name = "long enough to be at the end of the partition again and again"
after = { condition = "elapsed", seconds = 15 }
"""


def test_a_member_that_takes_the_end_of_a_partition_for_a_record_commits_ahead_and_its_defect_is_named(run_trial, need):
    need("java")
    need("namespaces")
    finished = run_trial(STORES_ENDS, "--engine", "local", seeds=(1,))
    axes = ("group.client_version", "group.properties.enable.partition.eof")
    of = {tuple(cell.axes[axis] for axis in axes): cell.anomalies["commit-ahead"] for cell in finished.verdict.cells}
    old = of.pop(("2.8.0", "true"))
    assert old.outcome is AnomalyOutcome.VIOLATED
    assert old.by_known_defects
    assert [defect for defect in old.defects if "librdkafka#4844" in defect]
    # Without that property it asks for one record at a time, and is not brought to store an end.
    assert {key: one.outcome for key, one in of.items()} == dict.fromkeys(of, AnomalyOutcome.HELD)
    assert finished.verdict.by_known_defects, finished.verdict.sentence
