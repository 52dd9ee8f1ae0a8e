"""A client of another librdkafka has that library in its process, and works, on librdkafka's mock cluster."""

from pathlib import Path

import pytest

from prozess.app.wiring import TOOLBOX
from prozess.harness.errors import BadInput
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.schema import NONE, Outcome
from prozess.workloads.library_check import check_libraries, java_defaults
from tests.support.log_workload import RESUME, bench


def plan_of(**axes):
    trial = {"name": "t", "title": "t", "traffic": {"rate_hz": 50}, "topics": {"partitions": 1}, "axes": axes}
    return make_plan(parse_trial(trial, source="test"), seed=1)


def library_in(pid):
    maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines()
    mapped = {Path(line.split()[-1]) for line in maps if line.count("/")}
    return {path for path in mapped if path.name.startswith("librdkafka")}


def test_clients_of_two_versions_run_side_by_side_each_with_its_library(tmp_path):
    plan = plan_of(**{"producer.client_version": ["2.8.0", "default"], "producer.defaults": ["library"]})
    check_libraries(plan, toolbox=TOOLBOX)
    wheel = TOOLBOX.librdkafka("2.8.0")
    with bench(plan, tmp_path) as made:
        made.workload.command(RESUME)
        made.until(lambda: made.total("ok") >= 40, "40 acknowledgements")
        for name, client in made.producers.items():
            (library,) = library_in(made.pid(client))
            assert library.is_relative_to(wheel) == ("2.8.0" in name), (name, library)
        made.workload.finish_sends(timeout_s=30)
        for client in made.producers.values():
            assert (made.rows("sends", client)["outcome"] == 1).all()
        assert made.workload.dead_clients() == {}


def test_what_a_library_refuses_and_a_number_that_is_not_its_own_are_refused_before_a_run():
    plan = plan_of(**{"producer.client_version": ["2.2.0"], "producer.properties.retry.backoff.max.ms": [500]})
    with pytest.raises(BadInput, match=r"librdkafka 2\.2\.0 refuses its configuration: No such configuration property"):
        check_libraries(plan, toolbox=TOOLBOX)


@pytest.mark.cluster
@pytest.mark.parametrize(("version", "acks"), [("3.9.2", "all"), ("4.3.1", "all")])
def test_a_java_client_prints_the_defaults_that_the_table_has(version, acks):
    told = java_defaults(version, TOOLBOX)
    assert (told["producer"]["acks"], told["producer"]["delivery.timeout.ms"]) == (acks, "120000")
    assert told["consumer"]["auto.offset.reset"] == "latest"


@pytest.mark.parametrize("ends", [True, False])
def test_a_member_whose_library_stores_ends_commits_ahead_only_where_the_trial_asks_for_ends(tmp_path, ends):
    base = {"topic.replication_factor": 1, "group.members": 1, "group.commit": "auto"}
    base |= {"group.auto_commit_interval_ms": 100, "group.client_version": "2.8.0"}
    base |= {"group.properties.enable.partition.eof": True} if ends else {}
    document = {"name": "t", "title": "t", "workload": "group", "isolation_levels": [], "base": base}
    document |= {"topics": {"partitions": 1}, "traffic": {"rate_hz": 5}}
    plan = make_plan(parse_trial(document, source="test"), seed=1)
    (member,) = (client.client for client in plan.clients if client.role == "member")
    with bench(plan, tmp_path) as made:
        made.workload.command(RESUME)
        made.until(lambda: made.total("ok") >= 20, "20 acknowledgements")
        made.workload.finish_sends(timeout_s=30)

        def accepted():
            commits = made.rows("commits", member)
            return commits[commits["outcome"] == Outcome.OK]

        def beyond():
            known = accepted()[accepted()["position"] != NONE]
            ahead = known["log_offset"] - known["position"]
            return set(ahead[ahead > 0].tolist())

        made.until(lambda: len(accepted()) > 5 and accepted()["log_offset"].max() >= 20, "the commits")
        if ends:  # only a commit right after an end is beyond it, so the first may come late
            made.until(beyond, "a commit beyond the last record")
        assert beyond() == ({1} if ends else set()), "librdkafka#4844: one beyond, and no more"
