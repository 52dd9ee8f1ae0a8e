"""Trial files and plans: what is accepted, what is refused and how, and that a plan is the same every time."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.harness.errors import BadInput
from prozess.harness.plan.plan import parse_plan
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial import Trial
from prozess.harness.plan.trial_files import known_trials, lay_over, load_trial, parse_trial

BASE = {"name": "x", "title": "t"}


def one_step(**do):
    return {"steps": [{"name": "a", "do": do}]}


def plan_of(**document):
    return make_plan(parse_trial(BASE | document, source="x.toml"), seed=1)


@pytest.mark.parametrize("name", sorted(known_trials()))
@given(seed=st.integers(0, 2**32))
@settings(max_examples=5, deadline=None)
def test_every_trial_that_ships_plans_round_trips_and_repeats(name, seed):
    trial = load_trial(name)
    plan = make_plan(trial, seed=seed)
    assert plan == make_plan(trial, seed=seed)
    assert parse_plan(plan.model_dump_json(), source="plan.json") == plan


def test_smoke_has_every_valid_combination_and_says_why_the_others_are_left_out():
    plan = make_plan(load_trial("smoke"), seed=1)
    assert len(plan.cells) == 28
    assert len(plan.excluded) == 20
    assert all("idempotence" in exclusion.reason for exclusion in plan.excluded)
    assert len({cell.name for cell in plan.cells}) == 28
    assert {p.assignment for p in plan.partitions} == {(1, 2, 3)}


def test_a_producer_serves_only_cells_of_one_configuration_and_one_fate():
    plan = make_plan(load_trial("smoke"), seed=1)
    for client in (c for c in plan.clients if c.role == "producer"):
        cells = [plan.cells[plan.partitions[p].cell] for p in client.partitions]
        assert all(cell.producer == client.producer for cell in cells)
        assert len({cell.topic.model_dump_json() for cell in cells}) == 1


def test_how_many_partitions_a_topic_has_is_a_setting_of_its_cell():
    workload = {"kind": "log", "topics": {"partitions": 2}, "axes": {"topic.partitions": [1, 5]}}
    plan = plan_of(workloads=[workload])
    assert [len(cell.partitions) for cell in plan.cells] == [1, 5]
    counts = {cell.name: [plan.partitions[p].number for p in cell.partitions] for cell in plan.cells}
    assert [name.rpartition("_")[2] for name in counts] == ["1", "5"]
    assert list(counts.values()) == [[0], [0, 1, 2, 3, 4]]


def test_late_partitions_come_after_as_many_as_the_cell_has():
    topics = {"partitions": 2, "late_partitions": 1}
    workload = {"kind": "log", "topics": topics, "base": {"topic.partitions": 3}}
    (cell,) = plan_of(workloads=[workload], **one_step(kind="add_partitions")).cells
    assert list(cell.late_partitions) == [3]


def test_a_topic_that_is_made_again_has_as_many_partitions_as_its_step_sets():
    steps = [
        {"name": "gone", "do": {"kind": "delete_topics"}},
        {"name": "back", "do": {"kind": "make_topics", "settings": {"topic.partitions": 4}}},
        {"name": "gone again", "do": {"kind": "delete_topics"}},
        {"name": "back again", "do": {"kind": "make_topics"}},
    ]
    plan = plan_of(workloads=[{"kind": "log", "topics": {"partitions": 2}}], steps=steps)
    assert [len(cell.partitions) for cell in plan.cells] == [2, 4, 4]


@pytest.mark.parametrize("count", [0, 10_001, "many"])
def test_a_topic_has_from_1_to_10_000_partitions(count):
    with pytest.raises(BadInput, match="partitions"):
        plan_of(workloads=[{"kind": "log", "base": {"topic.partitions": count}}])


def test_every_partition_has_exactly_one_producer_and_every_reader():
    plan = make_plan(load_trial("smoke"), seed=1)
    written = sorted(p for c in plan.clients if c.role == "producer" for p in c.partitions)
    assert written == [p.partition for p in plan.partitions]
    readers = [c for c in plan.clients if c.role == "reader"]
    assert [c.isolation_level for c in readers] == ["read_uncommitted", "read_committed"]
    assert [c.client for c in plan.clients] == list(range(len(plan.clients)))


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"axez": {}}, "axez is not a known key; did you mean 'axes'?"),
        ({"traffic": {"rate_hz": "fast"}}, "traffic.rate_hz = 'fast'"),
        ({"traffic": {"rate_hertz": 5}}, "did you mean 'rate_hz'?"),
        ({"backend": "docker"}, "backend 'docker' is not known. Known:"),
        ({"base": {"producer.acks": 2}}, "producer.acks = '2'"),
        ({"base": {"producer.ack": 1}}, "'producer.ack' is not a setting of a log cell"),
        ({"axes": {"producer.ack": [1]}}, "did you mean 'producer.acks'?"),
        ({"base": {"topic.properties.segment.byte": 1}}, "Did you mean 'segment.bytes'?"),
        ({"base": {"producer.properties.bach.size": 1}}, "is no property of Kafka's. Did you mean 'batch.size'?"),
        ({"variant": {"properties": {"replica.lag.time.max.m": 1}}}, "Did you mean 'replica.lag.time.max.ms'?"),
        ({"axes": {"producer.acks": []}}, "axes.producer.acks is empty"),
        ({"base": {"producer.acks": 1, "producer.enable_idempotence": True}}, "needs acks=all, not acks=1"),
        ({"base": {"topic.min_insync_replicas": 4}}, "min.insync.replicas=4 exceeds replication.factor=3"),
        ({"base": {"topic.replication_factor": 5}}, "needs as many brokers"),
        ({"topics": {"placement": [[1, 1, 2]]}}, "different brokers out of"),
        ({"topics": {"placement": [[1, 2]]}}, "at least replication.factor=3"),
        ({"control": "required"}, "names none in [[controls]]"),
        ({"controls": [{"anomaly": "lots", "cells": {}}]}, "anomaly 'lots' is not known"),
        ({"controls": [{"anomaly": "lost", "cells": {"producer.acks": "7"}}]}, "no cell matches"),
        ({"steps": [{"name": "a"}, {"name": "a"}]}, "two steps are named 'a'"),
        ({"steps": [{"name": "a", "do": {"kind": "heal", "step": "b"}}]}, "which is no earlier step"),
        (one_step(kind="fault", fault="flood", targets=["leader(0)"]), "fault 'flood' is not known"),
        (one_step(kind="fault", fault="kill", targets=["leader(9)"]), "names partition 9"),
        (one_step(kind="fault", fault="kill", targets=["node:broker-9"]), "there is no node 'broker-9'"),
        (one_step(kind="send", count=1, cells={"producer.acks": "1"}), "no cell matches"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence_with_value_rule_and_way_out(document, words):
    with pytest.raises(BadInput) as caught:
        plan_of(**document)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_wrong_key_is_told_alone_and_not_what_only_follows_from_it():
    with pytest.raises(BadInput) as caught:
        plan_of(traffic={"rate_hertz": 5})
    assert str(caught.value).endswith("traffic.rate_hertz is not a known key; did you mean 'rate_hz'?")


def test_an_unknown_trial_names_the_nearest():
    with pytest.raises(BadInput, match="did you mean 'smoke'"):
        load_trial("smok")


def test_a_missing_file_and_a_broken_one_are_said_plainly(tmp_path):
    with pytest.raises(BadInput, match="does not exist"):
        load_trial(str(tmp_path / "none.toml"))
    broken = tmp_path / "broken.toml"
    broken.write_text("name = ")
    with pytest.raises(BadInput, match="is not TOML"):
        load_trial(str(broken))


def test_overrides_are_laid_over_the_file():
    trial = load_trial("smoke", {"traffic.rate_hz": 7, "base.topic.flush_messages": 1})
    assert trial.workloads[0].traffic.rate_hz == 7
    assert all(cell.topic.flush_messages == 1 for cell in make_plan(trial, seed=1).cells)


def test_an_override_names_an_entry_of_a_list_by_its_number():
    given = {
        "steps.1.do.parameters.version": "4.2.1",
        "steps.1.do.targets": ["node:broker-2"],
        "steps.2.expect.0.node": "broker-2",
        "workloads.0.base.transaction.records": 4,
    }
    document = {"steps": [{}, {"do": {"parameters": {"version": "4.2.0"}}}, {"expect": [{"node": "broker-1"}]}]}
    document |= {"workloads": [{}, {}]}
    for key, value in given.items():
        lay_over(document, key, value)
    assert document["steps"][1] == {"do": {"parameters": {"version": "4.2.1"}, "targets": ["node:broker-2"]}}
    assert document["steps"][2] == {"expect": [{"node": "broker-2"}]}
    assert document["workloads"] == [{"base": {"transaction.records": 4}}, {}]
    trial = load_trial("kafka-20322", {"steps.1.do.parameters.version": "4.2.1"})
    assert [step.do.parameters["version"] for step in trial.steps if step.do is not None] == ["4.2.1"]


@pytest.mark.parametrize(
    ("key", "why"),
    [
        (
            "steps.9.name",
            r"--set steps\.9\.name: 'steps' has \d entries in this trial. Name one by its number, from 0 on",
        ),
        ("steps.-1.name", "Name one by its number, from 0 on"),
        ("steps.first.name", "Name one by its number, from 0 on"),
        ("steps.1", "'steps' is not a table in this trial"),
        ("steps.1.do.targets.0", "'targets' is not a table in this trial"),
    ],
)
def test_an_override_of_an_entry_that_is_not_there_is_refused(key, why):
    with pytest.raises(BadInput, match=why):
        load_trial("kafka-20322", {key: "x"})


def test_a_plan_of_another_version_is_refused():
    plan = plan_of()
    text = plan.model_copy(update={"format_version": 99}).model_dump_json()
    with pytest.raises(BadInput, match="format version 99"):
        parse_plan(text, source="plan.json")
    with pytest.raises(BadInput, match="is not a plan of this version"):
        parse_plan("{}", source="plan.json")
    with pytest.raises(BadInput, match="is damaged, or half written"):
        parse_plan(text[:-9], source="plan.json")


def test_an_exclusion_by_the_author_carries_its_reason():
    plan = plan_of(
        axes={"producer.acks": ["1", "all"]}, exclude=[{"when": {"producer.acks": "1"}, "reason": "not of interest"}]
    )
    assert [c.axes["producer.acks"] for c in plan.cells] == ["all"]
    assert [e.reason for e in plan.excluded] == ["not of interest"]


def test_a_trial_is_frozen():
    trial = Trial.model_validate(BASE | {"workloads": [{"kind": "log"}]})
    with pytest.raises(ValueError, match="frozen"):
        trial.name = "y"


def test_a_condition_or_command_on_what_is_not_there_is_refused():
    behind = {"condition": "behind", "node": "broker-1", "records": {"broker-4": 1}}
    with pytest.raises(
        BadInput, match=r"Step 'a': there is no broker 'broker-4'\. Brokers: broker-1, broker-2, broker-3\."
    ):
        plan_of(steps=[{"name": "a", "after": behind}])
    second = one_step(kind="send", count=1, producer=2)
    with pytest.raises(BadInput, match=r"producer = 2, but there are 1 alike\. Raise traffic\.producers\."):
        plan_of(**second)
    assert plan_of(**second, traffic={"producers": 2}).steps
    nobody = {"condition": "acked", "count": 1, "cells": {"producer.acks": "7"}}
    looked = {"kind": "inspect", "cells": {"producer.acks": "all"}}
    with pytest.raises(BadInput, match="no cell matches"):
        plan_of(steps=[{"name": "a", "after": nobody, "do": looked}], axes={"producer.acks": ["all"]})


def test_producers_that_are_alike_serve_the_same_partitions_under_different_names():
    plan = plan_of(traffic={"producers": 3})
    alike = [client for client in plan.clients if client.role == "producer"]
    assert [client.number for client in alike] == [1, 2, 3]
    assert len({client.name for client in alike}) == 3
    assert len({client.partitions for client in alike}) == 1


def test_two_workloads_of_one_kind_share_no_name():
    workload = {"kind": "transactions", "base": {"transaction.standby": True}}
    trial = parse_trial({"name": "two", "title": "two", "workloads": [workload, workload]}, source="test")
    plan = make_plan(trial, seed=1)
    for names in ([c.name for c in plan.clients], [c.name for c in plan.cells], [c.topic_name for c in plan.cells]):
        assert len(set(names)) == len(names)
    ids = [c.transactional_id for c in plan.clients if c.transactional_id and not c.instance]
    assert len(set(ids)) == len(ids)
    assert {c.name for c in plan.clients if c.role == "fencer"} == {"transactions-fencer", "transactions-2-fencer"}


# --- kinds of clusters

ZOOKEEPER = {"metadata_mode": "zookeeper", "kafka_version": "3.9.2"}


def test_a_trial_put_on_zookeeper_keeps_the_length_of_sessions_under_the_name_that_they_have_there():
    properties = load_trial("smoke", {"variant.metadata_mode": "zookeeper"}).variant.properties
    assert properties["zookeeper.session.timeout.ms"] == "4000"
    assert "broker.session.timeout.ms" not in properties
    properties = load_trial("safe-zookeeper", {"variant.metadata_mode": "kraft-isolated"}).variant.properties
    assert properties["broker.session.timeout.ms"] == "4000"
    assert load_trial("smoke").variant.properties["broker.session.timeout.ms"] == "4000", "where it was made for"


@pytest.mark.parametrize(
    ("variant", "workload", "values", "why"),
    [
        (ZOOKEEPER, "group", {"group.protocol": ["consumer", "classic-eager"]}, "which ZooKeeper mode has not"),
        (
            {"versions": {"broker-1": "3.9.2"}},
            "group",
            {"group.protocol": ["consumer", "classic-eager"]},
            "4.0 or later, not 3.9.2",
        ),
        (
            ZOOKEEPER,
            "errors",
            {"provocation.error": ["not-authorised", "too-large-for-client"]},
            "KRaft's metadata log",
        ),
    ],
)
def test_what_a_kind_of_cluster_has_not_is_left_out_with_the_reason(variant, workload, values, why):
    base = {"producer.properties.batch.num.messages": 1} if workload == "errors" else {}
    plan = plan_of(workload=workload, variant=variant, axes=values, base=base)
    assert len(plan.cells) == 1
    (left_out,) = plan.excluded
    assert why in left_out.reason


@pytest.mark.parametrize(
    ("variant", "target", "why"),
    [
        ({}, "zookeeper-leader", 'needs metadata_mode = "zookeeper"'),
        ({}, "minority(controllers)", "nobody: the variant has 1 controllers"),
        ({"controllers": 3}, "majority(zookeepers)", "nobody: the variant has 0 zookeepers"),
        (ZOOKEEPER, "majority(controllers)", "nobody: the variant has 0 controllers"),
        ({}, "rack(east)", "no rack with a broker. Racks: none"),
        ({"racks": ["a", "b", "c", "d"]}, "rack(d)", "Racks: a, b, c"),
        (ZOOKEEPER, "node:controller-3001", "no node"),
    ],
)
def test_a_role_that_can_mean_no_server_of_the_variant_is_refused(variant, target, why):
    fault = one_step(kind="fault", fault="kill", targets=[target])
    with pytest.raises(BadInput, match=why):
        plan_of(variant=variant, **fault)


@pytest.mark.parametrize(
    ("variant", "target"),
    [
        (ZOOKEEPER, "zookeeper-leader"),
        (ZOOKEEPER, "majority(zookeepers)"),
        ({"controllers": 3}, "minority(controllers)"),
        ({"metadata_mode": "kraft-combined"}, "minority(controllers)"),
        ({"racks": ["a", "b"]}, "rack(b)"),
        (ZOOKEEPER, "node:zookeeper-1"),
    ],
)
def test_a_role_that_can_mean_a_server_of_the_variant_is_planned(variant, target):
    assert plan_of(variant=variant, **one_step(kind="fault", fault="kill", targets=[target])).steps


def faulty(fault, targets, variant=None, **parameters):
    do = {"kind": "fault", "fault": fault, "targets": targets, "parameters": parameters}
    document = {"name": "x", "title": "", "variant": variant or {}, "steps": [{"name": "s", "do": do}]}
    return make_plan(parse_trial(document, source="x"), seed=1)


ZOOKEEPER = {"metadata_mode": "zookeeper", "kafka_version": "3.9.2"}


@pytest.mark.parametrize(
    ("fault", "targets", "variant", "parameters", "says"),
    [
        ("migrate", ["brokers"], {}, {"stage": "migrating"}, "fault 'migrate': the cluster is kraft-isolated"),
        (
            "migrate",
            ["brokers"],
            ZOOKEEPER | {"migration_controllers": 3},
            {"stage": "kraft"},
            'no earlier one to "migr',
        ),
        ("finalize-features", ["brokers"], ZOOKEEPER, {}, "fault 'finalize-features': features are finalized by KRaft"),
        ("move-controller", ["active-controller"], {}, {}, "it needs 3 controllers, and there are 1"),
        (
            "partition",
            ["leader(0)"],
            {},
            {"others": "zookeepers"},
            "others = 'zookeepers' is nobody: the variant has no",
        ),
        ("partition", ["leader(0)"], ZOOKEEPER, {"others": "controllers"}, "others = 'controllers' is nobody"),
        ("latency", ["leader(0)"], {}, {"latency_ms": "slow"}, "fault 'latency': latency_ms = 'slow'"),
        ("upgrade", ["brokers"], {}, {"version": "4.4.0"}, "is no newer than 4.4.0"),
    ],
)
def test_a_fault_that_cannot_be_meant_is_refused_when_it_is_planned(fault, targets, variant, parameters, says):
    with pytest.raises(BadInput, match=says):
        faulty(fault, targets, variant, **parameters)


def test_controllers_of_a_migration_that_no_step_starts_are_refused_on_every_backend():
    document = load_trial("migration").model_dump(mode="json", exclude_none=True)
    assert make_plan(parse_trial(document, source="x.toml"), seed=1).variant.migration_controllers == 3
    others = [step for step in document["steps"] if step.get("do", {}).get("fault") != "migrate"]
    for backend in ("local", "compose"):
        without = document | {"steps": others[:1], "backend": backend}
        with pytest.raises(BadInput, match=r"migration_controllers = 3.* no step of this trial does"):
            make_plan(parse_trial(without, source="x.toml"), seed=1)


def test_a_setting_of_cells_at_the_top_of_the_file_is_refused_with_where_it_belongs():
    with pytest.raises(
        BadInput, match=r"producer is not a known key; settings of cells are in base.*--set base.producer"
    ):
        load_trial("smoke", {"producer.acks": "1"})


def test_a_campaign_that_is_run_as_a_trial_is_refused_with_how_it_is_run(tmp_path):
    path = tmp_path / "orders.toml"
    path.write_text('name = "orders"\ntitle = ""\n[[entries]]\ntrial = "smoke"\n')
    for name in ("nightly", str(path)):
        with pytest.raises(BadInput, match=f"is a campaign of many trials: .*prozess run {name} --for 8h"):
            load_trial(name)


# ----------------------------------------------------------------------------------------------------------------------
# plan.json as somebody may have edited it: what it names must be there, and of a size that can be.


HUGE = 2**40


def edited(path, value):
    document = json.loads(make_plan(load_trial("smoke"), seed=1).model_dump_json())
    at = document
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return json.dumps(document)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("clients", 1, "role"), "nonsense", "client 1: role = 'nonsense' is not known"),
        (("clients", 1, "client"), HUGE, "numbers of clients: 1099511627776 is none of 0…999999"),
        (("clients", 1, "client"), 2**70, "numbers of clients: 1180591620717411303424 is none of"),
        (("clients", 1, "client"), -5, "numbers of clients: -5 is none of"),
        (("clients", 1, "client"), 0, "two clients have the same number"),
        (("clients", 1, "partitions"), [HUGE], "client 1: its partitions: 1099511627776 is none of"),
        (("clients", 1, "cell"), HUGE, "client 1: its cell: 1099511627776 is none of"),
        (("cells", 0, "cell"), HUGE, "cell 1099511627776 stands in place 0"),
        (("cells", 0, "partitions"), [HUGE], "cell 0: its partitions: 1099511627776 is none of"),
        (("clients", 1, "role"), "reader", "client 1: isolation_level is not given, and a client with the role reader"),
        (("cells",), [], "it has no cells"),
        (("partitions",), [], "it has no cells, or no partitions"),
        (("partitions", 0, "partition"), HUGE, "partition 1099511627776 stands in place 0"),
        (("partitions", 0, "cell"), HUGE, "partition 0: its cell: 1099511627776 is none of"),
        (("partitions", 0, "number"), 2**31, "partition 0: number = 2147483648, and Kafka's are from 0 to 2147483647"),
        (("partitions", 0, "assignment"), [2**31], "brokers of its assignment: 2147483648 is none of"),
        (("partitions", 0, "topic_name"), "a\x1bb", r"topic_name = 'a\\x1bb' has characters that no topic's name has"),
        (("backend",), "nonsense", "backend = 'nonsense' is not known"),
        (("trial",), "../../x", "trial = '../../x' is no name of a trial"),
        (("controls", 0, "anomaly"), "nonsense", "controls: anomaly = 'nonsense' is not known"),
        (("controls", 0, "cells"), [HUGE], "its cells: 1099511627776 is none of"),
    ],
)
def test_a_plan_that_names_what_cannot_be_is_refused_with_the_value_and_the_rule(path, value, says):
    with pytest.raises(
        BadInput, match=r"x\.json is no plan that can be run or checked: .*Put back the file"
    ) as refused:
        parse_plan(edited(path, value), source="x.json")
    assert says.replace("\\\\", "\\") in str(refused.value)


@pytest.mark.parametrize("name", sorted(known_trials()))
def test_every_plan_that_prozess_makes_is_one(name):
    made = make_plan(load_trial(name), seed=1)
    assert parse_plan(made.model_dump_json(), source="x.json") == made


@pytest.mark.parametrize(
    ("client", "version", "why"),
    [
        ("java", "2.13.2", "is no release of Kafka; the nearest are 2.8.2 and 3.0.0"),
        ("librdkafka", "3.9.2", "is no version of librdkafka, whose newest are 2.x"),
        ("java", "2.7.0", "Java clients from 2.8 on"),
        ("java", "2.8.2", None),
        ("java", "4.5.0", None),
        ("librdkafka", "2.8.0", None),
    ],
)
def test_a_version_of_one_client_is_not_taken_for_one_of_the_other(client, version, why):
    axes = {"group.client": ["librdkafka", "java"], "group.client_version": ["default", version]}
    exclude = [{"when": {"group.client": {"java": "librdkafka", "librdkafka": "java"}[client]}, "reason": "the other"}]
    plan = plan_of(workloads=[{"kind": "group", "axes": axes, "exclude": exclude}])
    reasons = [exclusion.reason for exclusion in plan.excluded if "client_version" in exclusion.reason]
    assert (why is None) == (len(plan.cells) == 2)
    assert all(why in reason for reason in reasons) if why else not reasons


def test_a_producer_beside_another_sends_to_the_same_topic_and_has_no_consumer():
    plan = plan_of(
        workloads=[{"kind": "verifiable", "base": {"producer.client": "java", "producer.beside": "librdkafka"}}]
    )
    producers = [client for client in plan.clients if client.role == "verifiable-producer"]
    assert [client.producer.client for client in producers] == ["java", "librdkafka"]
    assert producers[0].partitions == producers[1].partitions
    assert len({client.name for client in producers}) == 2
    assert len([client for client in plan.clients if client.role == "verifiable-consumer"]) == 1


@pytest.mark.parametrize(
    ("kind", "base", "why"),
    [
        (
            "log",
            {"producer.beside": "java"},
            "producer.beside is for verifiable and verifiable-share workloads, not for log",
        ),
        ("verifiable", {"producer.command": ["x"], "producer.beside": "java"}, "beside are not for it"),
    ],
)
def test_a_producer_beside_another_is_refused_where_nothing_would_use_it(kind, base, why):
    with pytest.raises(BadInput, match=why):
        plan_of(workloads=[{"kind": kind, "base": base}])


@pytest.mark.parametrize("kind", ["verifiable", "compaction", "transactions"])
def test_a_second_topic_is_refused_for_clients_that_would_not_find_it(kind):
    with pytest.raises(BadInput, match="one topic a cell"):
        plan_of(workloads=[{"kind": kind, "topics": {"late_topic_partitions": 1}}], **one_step(kind="add_partitions"))
