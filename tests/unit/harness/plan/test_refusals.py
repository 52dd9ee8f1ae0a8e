"""What a run would refuse, the plan refuses, in a sentence that names the value, the rule and the way out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from prozess.clusters.machine.server_properties import OURS, check_variant
from prozess.harness.config.configuration import COUNT_MAX, WAIT_MAX_S, Variant
from prozess.harness.config.existing_clusters import refuse_bad_servers
from prozess.harness.config.messages.match import BETWEEN_SERVERS, OF_CLIENTS, OF_KRAFT, OF_ZOOKEEPER
from prozess.harness.config.messages.names import api_names
from prozess.harness.errors import BadInput
from prozess.harness.plan.mistakes import annotations_at, truths_for_numbers
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial import Trial
from prozess.harness.plan.trial_files import parse_trial

LOSE = {"do": "lose"}
ATTACH = {"backend": "attach", "attach": {"bootstrap_servers": ["h:9092"]}}


def plan(*steps, **more):
    named = [{"name": f"step {number}", **step} for number, step in enumerate(steps)]
    document = {"name": "x", "title": "t", "steps": named, "workload": "log", **more}
    return make_plan(parse_trial(document, source="x.toml"), seed=1)


def message(match, action=LOSE, **more):
    parameters = {"match": match, "action": action, **more}
    return {"do": {"kind": "fault", "fault": "message", "targets": ["brokers"], "parameters": parameters}}


def method(**match):
    parameters = {"match": {"method": "a.B#c", **match}, "action": {"do": "delay", "seconds": 1}}
    return {"do": {"kind": "fault", "fault": "method", "targets": ["brokers"], "parameters": parameters}}


def features(**levels):
    named = {name.replace("_", "."): level for name, level in levels.items()}
    parameters = {"features": named} if named else {}
    return {"do": {"kind": "fault", "fault": "finalize-features", "targets": ["brokers"], "parameters": parameters}}


def elapsed(seconds):
    return {"after": {"condition": "elapsed", "seconds": seconds}}


@pytest.mark.parametrize(
    ("steps", "more", "words"),
    [
        # A backend without what it needs to know, and addresses that cannot be.
        ([], {"backend": "attach"}, r'backend = "attach" needs to know where the cluster is: \[attach\]'),
        ([], {"backend": "ssh"}, r'backend = "ssh" needs to know the machines: \[\[ssh.nodes\]\]'),
        ([], ATTACH | {"attach": {"bootstrap_servers": ["h:99999"]}}, "'h:99999' is not HOST:PORT, with a port from 1"),
        ([], ATTACH | {"attach": {"bootstrap_servers": ["h:0"]}}, "'h:0' is not HOST:PORT"),
        # Numbers that nothing has, and truth values for numbers.
        ([message({"api": "Produce", "nth": 10**23})], {}, r"match\.nth = 10+: .*less than or equal to 1000000000"),
        ([message({"api": "Produce", "nth": True})], {}, r"match\.nth = true: it must be a number"),
        ([method(nth=True)], {}, r"match\.nth = true: it must be a number"),
        ([message({"api": "Produce", "every": 3, "until": 2})], {}, "no match up to number 2 counts; raise until"),
        ([method(every=3, until=2)], {}, "no call up to number 2 counts; raise until"),
        ([], {"topics": {"partitions": True}}, r"topics\.partitions = true: it must be a number"),
        ([], {"topics": {"placement": [[1, True]]}}, r"topics\.placement\.0\.1 = true: it must be a number"),
        ([], {"traffic": {"rate_hz": 1e12}}, r"traffic\.rate_hz = 1000000000000\.0: .*less than"),
        ([], {"base": {"topic.replication_factor": True}}, r"topic\.replication_factor = true: it must be a number"),
        ([elapsed(1e300)], {}, r"after\.seconds = 1e\+300: .*less than or equal to 604800"),
        ([elapsed({"between": [1, 1e300]})], {}, r"between\.1 = 1e\+300"),
        ([{"at_s": 1e300}], {}, r"at_s = 1e\+300"),
        ([], {"settle_s": 1e300}, r"settle_s = 1e\+300"),
        ([], {"limits": {"audit_s": 1e9}}, r"limits\.audit_s"),
        ([{"do": {"kind": "send", "count": 10**23}}], {}, r"do\.count = 10+"),
        ([], {"base": {"topic.min_insync_replicas": 2**31}}, r"min_insync_replicas = 2147483648: .*2147483647"),
        ([], {"base": {"producer.delivery_timeout_ms": 10**23}}, r"delivery_timeout_ms = 10+: .*2147483647"),
        ([], {"base": {"producer.linger_ms": 1e300}}, r"linger_ms = 1e\+300: .*less than"),
        ([{"after": {"condition": "isr", "brokers": [2**31]}}], {}, r"brokers\.0 = 2147483648"),
        ([{"after": {"condition": "offline", "partition": -1}}], {}, r"partition = -1"),
        ([], {"name": "x" * 300}, r"name = 'x{50,}…: .*at most 100 characters"),
        # Whom and what no link ever carries.
        (
            [message({"api": "Produce", "client": "nobody"})],
            {},
            "client = 'nobody' means no client of the plan. Some clients",
        ),
        ([message({"api": "Produce", "client": "nob*"})], {}, "means no client of the plan"),
        (
            [{"after": {"condition": "message", "match": {"api": "SyncGroup", "client": "nobody"}}}],
            {},
            "client = 'nobody' means no client of the plan",
        ),
        (
            [message({"api": "Produce"}, {"do": "hold", "until": {"api": "LeaderAndIsr"}})],
            {},
            "LeaderAndIsr is never sent in a cluster whose metadata_mode is 'kraft",
        ),
        (
            [message({"api": "Produce"}, {"do": "hold", "until": {"api": "Vote"}})],
            {"variant": {"metadata_mode": "zookeeper", "kafka_version": "3.9.2"}},
            "Vote is never sent in a cluster whose metadata_mode is 'zookeeper'",
        ),
        (
            [message({"api": "Produce"}, others="brokers")],
            {},
            'only clients send Produce, and no server does. .*"clients"',
        ),
        # Levels go up alone.
        ([features(metadata_version=1)], {}, r"metadata\.version = 1 is lower than 7"),
        (
            [features(transaction_version=0)],
            {"variant": {"features": {"transaction.version": 2}}},
            r"transaction\.version = 0 is lower than 2, which the cluster has by then",
        ),
        (
            [features(metadata_version=25), features(metadata_version=20)],
            {},
            r"metadata\.version = 20 is lower than 25",
        ),
        # Keys within keys.
        (
            [message({"api": "Produce", "partiton": 0})],
            {},
            r"match\.partiton is not a known key; did you mean 'partition'",
        ),
        (
            [message({"api": "Produce"}, {"do": "hold", "until": {"api": "Produce", "nht": 2}})],
            {},
            r"action\.until\.nht is not a known key; did you mean 'nth'",
        ),
        ([message({"api": "Produce"}, {"do": "lose", "conection": "keep"})], {}, r"action\.conection .* 'connection'"),
        ([message({"api": "Prodcue"})], {}, r"match\.api = 'Prodcue': .*the nearest: Produce"),
    ],
)
def test_a_value_that_no_run_takes_is_refused_by_the_plan(steps, more, words):
    with pytest.raises(BadInput, match=words):
        plan(*steps, **more)


@pytest.mark.parametrize("servers", ["h:99999", "h", "a:1,b:0", "a:1,", "h:-1", "h:9092x"])
def test_an_address_that_cannot_be_is_refused_before_anybody_connects(servers):
    with pytest.raises(BadInput, match=r"--cluster .*is not HOST:PORT"):
        refuse_bad_servers(servers, "--cluster")
    refuse_bad_servers("a:1, [::1]:65535", "--cluster")


def test_near_misses_are_planned():
    assert plan(message({"api": "Produce", "nth": COUNT_MAX, "client": "producer-*"}), elapsed(WAIT_MAX_S))
    assert plan(message({"api": "Produce", "every": 2, "until": 2}, {"do": "hold", "until": {"api": "Vote"}}))
    assert plan(features(metadata_version=20), features(metadata_version=25), features())
    assert plan(message({"api": "Produce"}, others="everybody"))
    assert plan(**ATTACH)


@pytest.mark.parametrize("name", sorted(OURS))
def test_a_property_that_prozess_sets_is_refused_by_name(name):
    with pytest.raises(BadInput, match=rf"variant\.properties sets '{name}', which prozess sets for each server"):
        check_variant(Variant(properties={name: "x"}))


def test_apis_of_one_side_are_apis_of_kafka_and_of_one_side_alone():
    known = set(api_names().values())
    for apis in (OF_CLIENTS, OF_KRAFT, OF_ZOOKEEPER, BETWEEN_SERVERS):
        assert apis <= known
    assert not OF_CLIENTS & BETWEEN_SERVERS
    assert OF_KRAFT | OF_ZOOKEEPER <= BETWEEN_SERVERS
    assert not OF_KRAFT & OF_ZOOKEEPER


def numbers_of(model: type[BaseModel], path=()):
    """Every path of a trial file at which a number stands, in tables within tables."""
    for name in model.model_fields:
        for kind in annotations_at([model], (name,)):
            if kind in (int, float):
                yield (*path, name)
            elif isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from numbers_of(kind, (*path, name))


@given(st.sampled_from(sorted(set(numbers_of(Trial)))), st.booleans())
def test_true_is_no_number_anywhere_in_a_trial_file(path, value):
    document: object = value
    for key in reversed(path):
        document = {key: document}
    assert truths_for_numbers(Trial, document) == [(path, value)]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (
            {"steps": [{"name": "a", "after": {"condition": "elapsed", "seconds": 1e300}}]},
            "steps.0.after.seconds = 1e+300: Input should be less than or equal to 604800.",
        ),
        ({"topics": 3}, "topics = 3: it must be a table."),
        (
            {"backend": "attach", "attach": {"bootstrap_servers": "h:9092"}},
            "attach.bootstrap_servers = 'h:9092': it must be a list.",
        ),
    ],
)
def test_a_value_of_another_kind_is_refused_in_the_words_of_the_file_and_one_mistake_is_reported_once(more, says):
    with pytest.raises(BadInput) as refused:
        parse_trial({"name": "x", "title": "t", "workload": "log", **more}, source="x.toml")
    assert str(refused.value) == f"x.toml: {says}"


@pytest.mark.parametrize("kind", ["log", "group", "compaction", "share", "exactly-once"])
def test_a_java_producer_is_refused_by_the_plan_where_the_workload_runs_librdkafkas(kind):
    with pytest.raises(BadInput, match=f"the producers of workload {kind} use librdkafka, not producer.client=java"):
        make_plan(
            parse_trial({"name": "x", "title": "x", "workload": kind, "base": {"producer.client": "java"}}, source="x"),
            seed=1,
        )
