"""Impairments of nodes and links: held through restarts until healed; connections reset; a node that vanishes."""

import pytest

from prozess.harness.config.impairments import Bandwidth, FullDisk, Latency, Loss
from prozess.harness.errors import BadInput, ClusterFailed, HarnessFailed
from prozess.harness.interfaces import Capability, Undo
from prozess.harness.plan.checks import check_parameters
from prozess.harness.schema import Tristate
from prozess.nemesis.faults import ImpairingFault, NoParameters
from prozess.nemesis.healing import Repair
from prozess.nemesis.journal import read_journal
from prozess.nemesis.registry import FAULTS
from tests.support.nemesis_bench import bench as bench
from tests.support.nemesis_bench import really_cut


class Thirst(ImpairingFault):
    """The disks of the targets are full."""

    name = "thirst"
    needs = frozenset({Capability.FILL_DISK})
    parameters_model = NoParameters

    def impairments(self, context, parameters):
        return [(node, FullDisk(left_bytes=7)) for node in context.targets]


@pytest.fixture
def thirst(monkeypatch):
    monkeypatch.setitem(FAULTS, "thirst", Thirst)


def test_an_impairment_is_journaled_whole_and_repaired_by_a_nemesis_that_never_saw_it(thirst, bench):
    assert bench.strike("dry", "thirst", "node:broker-1").effective is Tristate.YES
    (entry,) = read_journal(bench.run.journal).open
    assert entry.undo.given == {"kind": "full-disk", "left_bytes": 7}
    assert [effect.effect for effect in bench.fresh_nemesis().heal(None)] == [Tristate.YES]
    assert not bench.cluster["broker-1"].impairments
    assert bench.open() == []


def test_an_impairment_that_two_steps_hold_stays_until_both_are_healed(thirst, bench):
    bench.strike("first", "thirst", "node:broker-1")
    bench.strike("second", "thirst", "node:broker-1")
    assert [effect.effect for effect in bench.nemesis.heal("first")] == [Tristate.NO]
    assert bench.cluster["broker-1"].impairments
    assert [effect.effect for effect in bench.nemesis.heal("second")] == [Tristate.YES]
    assert not bench.cluster["broker-1"].impairments


def test_an_impairment_that_silently_does_nothing_has_no_effect(thirst, bench):
    bench.world.deaf.add("impair")
    assert bench.strike("dry", "thirst", "node:broker-1").effective is Tristate.NO


@pytest.mark.parametrize(
    ("fault", "parameters", "wanted"),
    [
        ("loss", {"share": 0.1}, {Loss(share=0.1)}),
        ("loss", {"share": 0.1, "others": "clients"}, {Loss(share=0.1, source="clients")}),
        ("bandwidth", {"bytes_per_s": 20000}, {Bandwidth(bytes_per_s=20000)}),
        (
            "bandwidth",
            {"back_bytes_per_s": 20000, "others": "clients"},
            {Bandwidth(bytes_per_s=20000, peer="clients", way="to-node")},
        ),
        (
            "bandwidth",
            {"bytes_per_s": 30000, "back_bytes_per_s": 20000, "others": ["clients"]},
            {
                Bandwidth(bytes_per_s=30000, peer="clients"),
                Bandwidth(bytes_per_s=20000, peer="clients", way="to-node"),
            },
        ),
        (
            "latency",
            {"latency_ms": 0, "back_ms": 40, "others": "clients"},
            {Latency(peer="clients", latency_ms=0, back_ms=40)},
        ),
        (
            "latency",
            {"latency_ms": 40, "back_ms": 0, "others": "clients"},
            {Latency(peer="clients", latency_ms=40, back_ms=0)},
        ),
        (
            "bandwidth",
            {"bytes_per_s": 20000, "others": "followers"},
            {Bandwidth(bytes_per_s=20000, peer="broker-2"), Bandwidth(bytes_per_s=20000, peer="broker-3")},
        ),
    ],
)
def test_a_link_is_impaired_through_a_restart_until_it_is_healed(bench, fault, parameters, wanted):
    assert bench.strike("bad", fault, "leader(0)", **parameters).effective is Tristate.YES
    assert bench.cluster["broker-1"].impairments == wanted
    bench.strike("k", "kill", "node:broker-1")
    bench.nemesis.heal("k")
    assert bench.cluster["broker-1"].impairments == wanted
    assert bench.nemesis.unhealed() == {1}
    bench.fresh_nemesis().heal(None)
    assert not bench.cluster["broker-1"].impairments


def test_a_reset_is_over_at_once_and_says_what_was_reset(bench):
    struck = bench.strike("r", "reset", "leader(0)", others="followers", times=3, every_s=0.5)
    assert struck.effective is Tristate.YES
    assert {e.detail for e in struck.effects} == {"reset-connections done; 3 rounds"}
    assert bench.open() == []
    assert bench.recorder.phases()[-1][0] == "UNDO_VERIFIED"
    assert len([entry for entry in bench.world.log if entry[0] == "harm"]) == 6


def test_a_reset_of_what_is_not_connected_fails_and_leaves_nothing(bench):
    bench.world.broken["harm", "broker-1"] = HarnessFailed("no open connection")
    with pytest.raises(ClusterFailed, match="no open connection"):
        bench.strike("r", "reset", "leader(0)")
    assert bench.open() == []


@pytest.mark.parametrize("silent", [True, False])
def test_a_node_that_vanishes_is_cut_off_before_it_is_killed_and_joined_again(bench, silent):
    struck = bench.strike("v", "half-open", "leader(0)", silent=silent)
    assert struck.effective is Tristate.YES
    done = [entry[0] for entry in bench.world.log]
    assert done.index("harm") > max(i for i, what in enumerate(done) if what in ("block", "impair"))
    assert len(really_cut(bench.cluster)) == (6 if silent else 0)
    assert bool(bench.cluster["broker-1"].impairments) is silent
    bench.fresh_nemesis().heal(None)
    assert bench.cluster.is_whole()
    assert not bench.cluster["broker-1"].impairments


def test_a_node_that_vanishes_and_is_heard_all_the_same_is_put_together_again(bench):
    bench.world.broken["harm", "broker-1"] = HarnessFailed("each was informed of its end")
    with pytest.raises(ClusterFailed, match="each was informed"):
        bench.strike("v", "half-open", "leader(0)")
    assert bench.cluster.is_whole()
    bench.cluster["broker-2"].kill()
    with pytest.raises(ClusterFailed, match="no process now"):
        bench.strike("w", "half-open", "node:broker-2")


def test_a_link_that_is_late_is_late_for_connections_of_both_ends_and_clients_take_none(bench):
    bench.strike("late", "latency", "leader(0)", others=["broker-2", "clients"], latency_ms=50, jitter_ms=10)
    late = {"latency_ms": 50, "jitter_ms": 10}
    assert bench.cluster["broker-1"].impairments == {Latency(peer=p, **late) for p in ("broker-2", "clients")}
    assert bench.cluster["broker-2"].impairments == {Latency(peer="broker-1", **late)}
    bench.fresh_nemesis().heal(None)
    assert not any(node.impairments for node in bench.cluster.nodes)
    with pytest.raises(BadInput, match="must be less than the latency, 5 ms"):
        check_parameters("latency", {"latency_ms": 5, "jitter_ms": 5})


def test_the_two_ways_of_a_link_may_be_late_by_their_own_times_whoever_opened_the_connection(bench):
    bench.strike("late", "latency", "leader(0)", others=["broker-2"], latency_ms=50, jitter_ms=30, back_ms=10)
    (to_target,) = bench.cluster["broker-1"].impairments
    (from_target,) = bench.cluster["broker-2"].impairments
    assert to_target.streams == {"upstream": (50, 30), "downstream": (10, 10)}, "what the target sends is 10 ms late"
    assert from_target.streams == {"upstream": (10, 10), "downstream": (50, 30)}, "and so it is where it opened"
    bench.fresh_nemesis().heal(None)
    assert not any(node.impairments for node in bench.cluster.nodes)


def test_the_two_ways_of_a_link_may_be_narrow_by_their_own_rates(bench):
    bench.strike("narrow", "bandwidth", "leader(0)", others="followers", bytes_per_s=20_000, back_bytes_per_s=90_000)
    followers = ("broker-2", "broker-3")
    assert bench.cluster["broker-1"].impairments == {Bandwidth(bytes_per_s=20_000, peer=name) for name in followers}
    for name in followers:
        assert bench.cluster[name].impairments == {Bandwidth(bytes_per_s=90_000, peer="broker-1")}
    bench.fresh_nemesis().heal(None)
    assert not any(node.impairments for node in bench.cluster.nodes)


@pytest.mark.parametrize(("kind", "held"), [("message", False), ("latency", True), ("loss", True)])
def test_a_node_to_whose_messages_something_is_done_works_as_ever(bench, kind, held):
    undo = Undo.of("repair", "broker-1", "clients", kind=kind)
    assert Repair().holds(undo, bench.nemesis._context) is held
