"""Each assignor of a group reaches its members, of either client, and one that there is not is refused with its rule."""

import pytest

from prozess.harness.config.configuration import GroupConfiguration, ProducerConfiguration, TopicConfiguration, Variant
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import known_trials, load_trial
from prozess.harness.plan.validity import ASSIGNORS_OF, Combination, why_invalid_scope
from prozess.workloads.group.member import member_properties
from prozess.workloads.verifiable.settings import _protocol

NAMED = [(protocol, name) for protocol, names in ASSIGNORS_OF.items() for name in ("default", *names)]


def why_not(**settings):
    made = Combination(
        topic=TopicConfiguration(), producer=ProducerConfiguration(), own=GroupConfiguration(**settings), axes={}
    )
    return why_invalid_scope(made, Variant())


def of_librdkafka(**settings):
    same = {"bootstrap_servers": "b:1", "client_name": "m", "group_id": "g", "instance": 0, "heartbeat_ms": 1000}
    return member_properties(GroupConfiguration(**settings), **same)


@pytest.mark.parametrize(("protocol", "assignor"), NAMED)
def test_librdkafka_is_given_the_assignor_by_its_name(protocol, assignor):
    made = of_librdkafka(protocol=protocol, assignor=assignor)
    default = {"classic-eager": "range", "classic-cooperative": "cooperative-sticky", "consumer": None}[protocol]
    wanted = default if assignor == "default" else assignor
    by_brokers = protocol == "consumer"
    assert made.get("group.remote.assignor") == (wanted if by_brokers else None)
    assert made.get("partition.assignment.strategy") == (None if by_brokers else wanted)


@pytest.mark.parametrize(("protocol", "assignor"), NAMED)
def test_a_java_member_is_given_the_class_or_the_brokers_name(protocol, assignor):
    options = _protocol(GroupConfiguration(client="java", protocol=protocol, assignor=assignor))
    if protocol == "consumer":
        assert options[2:] == (() if assignor == "default" else ("--group-remote-assignor", assignor))
        return
    named = options[options.index("--assignment-strategy") + 1]
    package, _, name = named.rpartition(".")
    assert package == "org.apache.kafka.clients.consumer"
    if assignor != "default":
        assert name.removesuffix("Assignor").lower() == assignor.replace("-", "")


def test_an_assignor_that_its_protocol_or_its_client_has_not_is_refused():
    for protocol, assignor in NAMED:
        refused = why_not(client="java", protocol=protocol, assignor=assignor)
        assert refused is None or "group.protocol=consumer needs" in refused
    assert "none of those for protocol=consumer" in str(why_not(protocol="consumer", assignor="sticky"))
    assert "librdkafka has no assignor sticky" in str(why_not(protocol="classic-eager", assignor="sticky"))
    twice = {"partition.assignment.strategy": "roundrobin"}
    assert "set one" in str(why_not(protocol="classic-eager", assignor="range", properties=twice))


def test_the_trial_of_assignors_has_every_one_of_them():
    plan = make_plan(load_trial(str(known_trials()["assignors"])), seed=1)
    tried = {(cell.group.configuration.protocol, cell.group.configuration.assignor) for cell in plan.cells}
    assert tried == {pair for pair in NAMED if pair[1] != "default"}
