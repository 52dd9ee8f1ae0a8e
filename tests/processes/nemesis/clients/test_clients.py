"""Faults of clients: rolling restarts, rebalance storms; on real clients and a mock Kafka."""

from typing import Any

import numpy as np
import pytest

from prozess.harness.errors import BadInput
from prozess.harness.interfaces import CLIENT_NODE, FaultContext, NodeState, Undo
from prozess.harness.plan.checks import check_parameters
from prozess.harness.plan.plan import Plan
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.schema import NONE, SENDING, Outcome, Tristate
from prozess.nemesis.clients import DuplicateMember, RebalanceStorm, RestartClients, RestartParameters, rounds
from prozess.nemesis.registry import FAULTS
from prozess.nemesis.roles import TargetMissing
from prozess.workloads.record.members import ASSIGN, LOST
from tests.processes.workloads.group.test_member import group_plan, members
from tests.support.clock import FakeClock
from tests.support.log_workload import CLOCK, RESUME, ClientBench, bench, on_client, stall


class Place:
    """A place of a client without a process."""

    node_id = CLIENT_NODE

    def __init__(self, name: str, *, role: str = "member", cell: int | None = 0, deaf: bool = False) -> None:
        self.name, self.client_role, self.cell, self.deaf = name, role, cell, deaf
        self.client, self.alive, self.log = 1, True, []

    def state(self) -> NodeState:
        return NodeState.RUNNING if self.alive else NodeState.STOPPED

    def kill(self) -> None:
        self.log.append("kill")
        self.alive = self.alive and self.deaf

    def stop(self, *, timeout_s: float) -> None:
        self.log.append("stop")
        self.alive = self.alive and self.deaf

    def start(self) -> None:
        if not self.alive:
            self.log.append("start")
            self.alive, self.client = True, self.client + 1

    def at_work(self) -> bool:
        return self.alive


def strike(fault: Any, places: list[Any], clock: Any = None, **parameters: Any) -> list[Any]:
    clock = clock or FakeClock()
    checked = fault.parameters_model.model_validate(parameters)
    context = FaultContext(None, None, clock, targets=tuple(places))
    fault.undos(context, checked)
    fault.apply(context, checked)
    return list(fault.verify(context, checked))


def test_the_first_of_every_group_is_restarted_before_any_second_one():
    places = [Place("a0"), Place("a1"), Place("b0", cell=1), Place("p0", role="producer"), Place("p1", role="producer")]
    assert [[p.name for p in turn] for turn in rounds(places)] == [["a0", "b0", "p0"], ["a1", "p1"]]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_restarted_client_is_ended_once_and_its_successor_proves_it(how):
    places = [Place("a"), Place("b")]
    effects = strike(RestartClients(), places, how=how)
    assert [p.log for p in places] == [[how, "start"], [how, "start"]]
    assert [e.effect for e in effects] == [Tristate.YES, Tristate.YES]


def test_a_restart_that_ended_nobody_had_no_effect():
    (effect,) = strike(RestartClients(), [Place("a", deaf=True)], how="kill")
    assert effect.effect is Tristate.NO


def test_a_node_of_the_cluster_and_a_dead_client_cannot_be_restarted():
    broker = type("Broker", (), {"name": "broker-1", "node_id": 1, "state": lambda self: NodeState.RUNNING})()
    dead = Place("a")
    dead.alive = False
    for target in (broker, dead):
        with pytest.raises(TargetMissing):
            strike(RestartClients(), [target])


def test_what_is_undone_is_the_absence_of_each_client():
    places = [Place("a"), Place("b")]
    context = FaultContext(None, None, FakeClock(), targets=tuple(places))
    assert RestartClients().undos(context, RestartParameters()) == [Undo(action="start", node=name) for name in "ab"]


def test_a_storm_is_the_same_for_the_same_seed_and_leaves_everybody_there():
    logs = []
    for seed in ("1 storm", "1 storm", "2 storm"):
        places = [Place(name) for name in "abc"]
        effects = strike(RebalanceStorm(), places, duration_s=10, rate_hz=2, seed=seed)
        logs.append([p.log for p in places])
        assert all(p.alive for p in places)
        assert {e.effect for e in effects} == {Tristate.YES}
    assert logs[0] == logs[1] != logs[2]
    assert {"stop", "kill", "start"} <= {word for log in logs[0] for word in log}


def test_a_storm_in_which_nobody_left_had_no_effect():
    effects = strike(RebalanceStorm(), [Place("a")], duration_s=0.001, rate_hz=0.001, seed="x")
    assert [e.effect for e in effects] == [Tristate.NO]


@pytest.mark.parametrize("fault", ["restart-clients", "rebalance-storm", "duplicate-member"])
def test_faults_of_clients_are_refused_on_nodes_when_the_trial_is_planned(fault):
    parameters = {"duration_s": 1} if fault == "rebalance-storm" else {}
    check_parameters(fault, parameters, targets=["member(*,0)", "producers", "client:x"])
    with pytest.raises(BadInput, match="is for clients"):
        check_parameters(fault, parameters, targets=["leader(0)"])


class Twins(Place):
    """A place in which a second client is started. `fenced`: which of the two Kafka ends (its index), None = neither."""

    def __init__(self, *, fenced: int | None) -> None:
        super().__init__("a")
        self.both, self.fenced = [1], fenced

    def duplicate(self) -> None:
        self.both.append(2)

    @property
    def clients_alive(self) -> list[int]:
        return [client for index, client in enumerate(self.both) if index != self.fenced or len(self.both) == 1]


@pytest.mark.parametrize(
    ("fenced", "effect", "says"),
    [(0, Tristate.YES, "the older one was fenced"), (1, Tristate.YES, "refused"), (None, Tristate.NO, "both live")],
)
def test_of_two_clients_with_one_instance_id_one_must_end_and_which_is_told(fenced, effect, says):
    (seen,) = strike(DuplicateMember(), [Twins(fenced=fenced)])
    assert seen.effect is effect
    assert says in seen.detail


# --- with real clients ----------------------------------------------------------------------------------------------


def client_nodes_of(b: ClientBench, role: str) -> list[Any]:
    return [node for node in b.workload.nodes() if node.client_role == role]


def flowing(b: ClientBench, count: int = 20) -> None:
    b.workload.command(RESUME)
    b.until(lambda: b.total("ok") >= count, "acknowledgements")
    b.until(lambda: all(p.at_work() for p in client_nodes_of(b, "member")), "members at work")


def test_members_are_restarted_in_turn_and_each_successor_has_its_partitions(tmp_path):
    with bench(group_plan(members=2), tmp_path) as b:
        flowing(b)
        places = client_nodes_of(b, "member")
        effects = strike(RestartClients(), places, CLOCK)
        assert [e.effect for e in effects] == [Tristate.YES, Tristate.YES]
        first, second = (b.rows("assignments", place.client) for place in places)
        assert (first["partition"] != NONE).any()
        assert second["started_ns"].min() > first["started_ns"][first["event"] == ASSIGN].min()
        assert [b.rows("clients", old)["exit_code"][0] for old in members(b)] == [0, 0]
        assert b.workload.dead_clients() == {}


def test_a_producer_that_is_stopped_in_order_has_every_record_answered(tmp_path):
    with bench(group_plan(members=1), tmp_path) as b:
        flowing(b)
        (place,) = client_nodes_of(b, "producer")
        (effect,) = strike(RestartClients(), [place], CLOCK)
        assert effect.effect is Tristate.YES
        sent = b.rows("sends", b.producer)
        assert (sent["outcome"] == Outcome.OK).all()
        assert b.rows("clients", b.producer)["complete"][0] == 1
        new = b.rows("sends", place.client)
        assert new["sequence"][0] == 0
        assert np.count_nonzero(new["outcome"] == Outcome.OK)


def test_a_late_starter_is_not_there_until_a_step_starts_it_as_itself(tmp_path):
    with bench(group_plan(members=2, late_members=1), tmp_path) as b:
        late = members(b)[1]
        place = client_nodes_of(b, "member")[1]
        assert (place.state(), place.client, place.at_work()) == (NodeState.STOPPED, None, False)
        b.workload.command(on_client("start", "member(*,1)"))
        assert place.client == late
        b.until(place.at_work, "the late starter's partitions")
        b.workload.command(on_client("stop", "member(*,1)"))
        b.workload.command(on_client("start", "member(*,1)"))
        assert b.rows("clients", place.client)["planned"][0] == late


def test_a_member_that_stalls_beyond_its_poll_interval_loses_its_partitions_and_comes_back(tmp_path):
    plan = group_plan(members=1, session_timeout_ms=3000, max_poll_interval_ms=3000)
    with bench(plan, tmp_path) as b:
        flowing(b)
        (member,) = members(b)
        b.workload.command(stall("member(0,0)", seconds=4))
        begun_ns = CLOCK.monotonic_ns()
        b.until(lambda: (b.rows("assignments", member)["event"] == LOST).any(), "lost partitions")
        events = b.rows("assignments", member)
        assert events["started_ns"][events["event"] == LOST].min() - begun_ns > 3_000_000_000
        b.until(lambda: b.rows("assignments", member)["event"][-1] == ASSIGN, "a new assignment")
        beats = np.diff(b.rows("heartbeats", member)["time_ns"])
        assert beats.max() < 2_000_000_000


def test_a_place_with_two_clients_is_the_newer_ones_until_it_ends(tmp_path):
    with bench(group_plan(members=1), tmp_path) as b:
        (place,) = client_nodes_of(b, "member")
        place.duplicate()
        assert len(place.clients_alive) == 2
        assert place.client == place.clients_alive[-1]
        place.kill()
        assert place.clients_alive == members(b)
        assert place.client == members(b)[0]
        assert b.workload.dead_clients() == {}


def test_every_fault_of_the_catalogue_says_whether_it_is_for_clients():
    of_clients = {name for name, fault in FAULTS.items() if fault.of_clients}
    assert of_clients == {"restart-clients", "rebalance-storm", "duplicate-member", "client-clock"}


def plan_of(kind: str, **base: Any) -> Plan:
    document = {"name": "test", "title": "test", "workload": kind, "topics": {"partitions": 2}, "base": base}
    return make_plan(parse_trial(document | {"isolation_levels": []}, source="test"), seed=1)


def test_what_a_restarted_verifiable_producer_writes_names_it_and_not_its_predecessor(tmp_path):
    plan = plan_of("verifiable", **{"producer.client": "librdkafka", "producer.acks": "all"})
    with bench(plan, tmp_path) as b:
        b.workload.command(RESUME)
        (place,) = client_nodes_of(b, "verifiable-producer")
        b.until(place.at_work, "acknowledgements")
        first = place.client
        (effect,) = strike(RestartClients(), [place], CLOCK, how="kill")
        assert effect.effect is Tristate.YES
        assert place.client != first
        assert np.count_nonzero(b.rows("sends", place.client)["outcome"] == Outcome.OK)
        assert b.workload.dead_clients() == {}


def test_a_copier_is_restarted_as_a_member_is_and_is_no_producer(tmp_path):
    plan = plan_of("exactly-once", **{"copier.delivery": "at-least-once", "copier.members": 1})
    with bench(plan, tmp_path) as b:
        b.workload.command(RESUME)
        (place,) = client_nodes_of(b, "copier")
        b.until(place.at_work, "copies")
        (effect,) = strike(RestartClients(), [place], CLOCK)
        assert effect.effect is Tristate.YES
        assert {node.client_role for node in b.workload.nodes() if node.client_role in SENDING} == {"producer"}
        assert b.workload.dead_clients() == {}


def test_a_standby_is_at_work_while_it_waits(tmp_path):
    with bench(plan_of("transactions", **{"transaction.standby": True}), tmp_path) as b:
        b.workload.command(RESUME)
        standby = next(place for place in client_nodes_of(b, "transactor") if place.instance > 0)
        b.until(standby.at_work, "the standby")
        (effect,) = strike(RestartClients(), [standby], CLOCK, how="kill")
        assert effect.effect is Tristate.YES
