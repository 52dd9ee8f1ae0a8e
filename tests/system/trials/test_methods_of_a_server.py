"""Calls of methods in a real server, as plain processes: counted, woken, refused by Byteman, and through a restart."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from prozess.clusters.install.kafka_jars import METHODS_AGENT, ensure_extra, ensure_jars
from prozess.clusters.install.tools import find_java
from prozess.clusters.local.cluster import LocalCluster
from prozess.clusters.machine.processes import sweep_pids
from prozess.clusters.methods import planned
from prozess.clusters.methods.agents import ask_agent, listed_rules
from prozess.clusters.methods.planned import refuse_bad_rules
from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.config.impairments import MethodRule
from prozess.harness.config.methods import CallNumbers, MeantCalls
from prozess.harness.errors import BadInput, HarnessFailed
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import Tristate

pytestmark = pytest.mark.cluster
HEARTBEAT = "org.apache.kafka.controller.QuorumController#processBrokerHeartbeat"
PAUSE = {"do": "pause"}
READY_S = 120.0
TRIAL = {
    "name": "contract",
    "title": "A node whose methods are called",
    "base": {"topic.replication_factor": 1},
    "variant": {
        "brokers": 1,
        "metadata_mode": "kraft-combined",
        "properties": {"broker.heartbeat.interval.ms": "300", "broker.session.timeout.ms": "6000"},
    },
    "steps": [
        {
            "name": "so that servers have the agent",
            "do": {
                "kind": "fault",
                "fault": "method",
                "targets": ["brokers"],
                "parameters": {"match": {"method": HEARTBEAT}, "action": PAUSE},
            },
        }
    ],
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, need: Callable[[str], None]) -> Iterator[LocalCluster]:
    need("java")
    run = RunDirectory(tmp_path_factory.mktemp("run"))
    run.create()
    plan = make_plan(parse_trial(TRIAL, source="contract"), seed=1)
    run.plan.write_text(plan.model_dump_json())
    ensure_extra(METHODS_AGENT)
    ensure_jars(plan.variant.kafka_version)
    built = LocalCluster(plan, run, clock=SystemClock(), isolation="signals")
    try:
        built.setup()
        built.wait_ready(timeout_s=READY_S)
        yield built
    finally:
        built.teardown()
        assert sweep_pids(run) == []


def rule(name: str, action: dict[str, Any] = PAUSE, method: str = HEARTBEAT, **more: Any) -> MethodRule:
    return MethodRule(
        rule=name,
        meant=MeantCalls(method=method, **{k: v for k, v in more.items() if k in MeantCalls.model_fields}),
        numbers=CallNumbers(**{k: v for k, v in more.items() if k in CallNumbers.model_fields}),
        action=action,  # type: ignore[arg-type] # as a trial has it
    )


def awaited(what: Callable[[], tuple[Tristate, str]], words: str) -> str:
    """What was seen when these words are in it."""
    wait_until(
        lambda: words in what()[1],
        awaited=words,
        timeout_s=60,
        clock=SystemClock(),
        last_seen=lambda: what()[1],
    )
    return what()[1]


def test_a_call_stands_still_until_the_rule_is_taken_away_and_nothing_of_it_is_left(cluster: LocalCluster) -> None:
    (node,) = cluster.nodes
    paused = rule("a pause", nth=2)
    node.impair(paused)
    node.impair(paused)
    assert "the method was called 2 times" in awaited(lambda: node.impaired(paused), "1 stands still now")
    node.repair(paused)
    node.repair(paused)
    assert node.impaired(paused) == (Tristate.NO, "no rule is in the JVM")


def test_without_a_call_there_is_no_effect(cluster: LocalCluster) -> None:
    (node,) = cluster.nodes
    for never in (
        rule("never called", method="kafka.cluster.Partition#truncateTo"),
        rule("no such", naming="nobody's"),
    ):
        node.impair(never)
        seen = node.impaired(never)
        assert seen == (Tristate.NO, "the method was never called")
        node.repair(never)


@pytest.mark.long
def test_a_server_that_is_killed_has_the_rule_again_and_goes_on_counting(cluster: LocalCluster) -> None:
    (node,) = cluster.nodes
    third = rule("every third", {"do": "delay", "seconds": 0.2}, every=3)
    node.impair(third)
    awaited(lambda: node.impaired(third), "1 of the calls was delayed, for 0.")
    node.kill()
    seen = node.impaired(third)
    assert seen[0] is Tristate.YES, "what it had counted is not lost"
    node.start()
    awaited(lambda: node.impaired(third), "3 of the calls were delayed")
    node.repair(third)
    assert node.impaired(third)[0] is Tristate.NO
    cluster.wait_ready(timeout_s=READY_S)
    node.kill()
    node.start()
    cluster.wait_ready(timeout_s=READY_S)
    assert node.impaired(third) == (Tristate.NO, "no rule is in the JVM"), "a process that starts later has none"


def test_a_call_that_throws_counts_and_does_not_stand_still(cluster: LocalCluster) -> None:
    (node,) = cluster.nodes
    thrown = rule("an exception", {"do": "throw", "exception": "java.lang.IllegalStateException"}, nth=1)
    node.impair(thrown)
    seen = awaited(lambda: node.impaired(thrown), "1 of the calls threw java.lang.IllegalStateException")
    assert "stand still" not in seen
    node.repair(thrown)
    assert node.impaired(thrown) == (Tristate.NO, "no rule is in the JVM")


def test_what_byteman_refuses_is_told_in_its_words(cluster: LocalCluster) -> None:
    (place,) = cluster._agent_addresses().values()
    with pytest.raises(HarnessFailed, match=r"refused to load a rule: EXCEPTION .*invalid target location"):
        ask_agent(place, "LOAD", "RULE odd\nCLASS a.B\nMETHOD c\nAT ENTRYY\nIF true\nDO return\nENDRULE")
    owner, _, method = HEARTBEAT.partition("#")
    checked = (
        f"RULE checked\nCLASS {owner}\nMETHOD {method}\nAT ENTRY\nIF true\nDO throw new java.io.IOException()\nENDRULE"
    )
    ask_agent(place, "LOAD", checked)
    wait_until(
        lambda: listed_rules(ask_agent(place, "LIST"))["checked"].failed,
        awaited="Byteman to check the types of a rule whose method is called",
        timeout_s=30,
        clock=SystemClock(),
    )
    failed = listed_rules(ask_agent(place, "LIST"))["checked"].failed
    assert "exception type not declared by trigger method java.io.IOException" in failed
    ask_agent(place, "DELETE", "RULE checked")
    assert listed_rules(ask_agent(place, "LIST")) == {}


def test_bytemans_own_checker_takes_the_rules_of_a_plan_and_refuses_others(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan(parse_trial(TRIAL, source="contract"), seed=1)
    given = {"agent": ensure_extra(METHODS_AGENT), "java": find_java().executable}
    ensure_jars(plan.variant.kafka_version)
    refuse_bad_rules(plan, **given)
    made = planned.rules_text
    monkeypatch.setattr(planned, "rules_text", lambda *words: made(*words).replace("waitFor", "waitForever"))
    with pytest.raises(BadInput, match=r"Byteman does not take its rule for Kafka .*: .*invalid method waitForever"):
        refuse_bad_rules(plan, **given)
