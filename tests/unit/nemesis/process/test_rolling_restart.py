"""rolling-restart on the cluster in memory: each broker in turn, in an order that the seed fixes; nothing stays open."""

import pytest

from prozess.harness.errors import BadInput, ClusterFailed
from prozess.harness.interfaces import NodeState
from prozess.harness.plan.checks import check_parameters
from prozess.harness.run_directory import read_json
from prozess.harness.schema import Tristate
from prozess.nemesis.journal import read_journal
from tests.support.nemesis_bench import FakeBench


class Bench(FakeBench):
    """Three brokers in memory; every end and start is noted with how many replicas were in sync."""

    def __init__(self, path, seed=1, **variant):
        super().__init__(path, seed=seed, **variant)
        self.ended = []
        for node in self.cluster.nodes:
            self._watch(node)

    def _watch(self, node):
        def noting(end):
            def noted(*given, **named):
                views = [v["cell-000", 0] for v in self.admin.views(["cell-000"]).values() if v]
                self.ended.append((node.name, min(len(view.isr) for view in views)))
                end(*given, **named)

            return noted

        node.stop, node.kill = noting(node.stop), noting(node.kill)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_each_broker_gets_a_new_process_once_all_are_in_sync_again(tmp_path, how):
    bench = Bench(tmp_path / "run")
    before = {node.name: node.os_pid for node in bench.cluster.nodes}
    struck = bench.strike("roll", "rolling-restart", "brokers", how=how)
    assert struck.effective is Tristate.YES
    assert sorted(name for name, _ in bench.ended) == ["broker-1", "broker-2", "broker-3"]
    assert [isr for _, isr in bench.ended] == [3, 3, 3]
    changed = {node.name for node in bench.cluster.nodes if node.os_pid != before[node.name]}
    assert changed == {"broker-1", "broker-2", "broker-3"}, "the controller was not named"
    assert all(node.state() is NodeState.RUNNING for node in bench.cluster.nodes)
    assert read_journal(bench.run.journal).open == (), "it is over: nothing is left to heal"


def test_without_waiting_the_next_one_ends_before_the_last_is_in_sync(tmp_path):
    bench = Bench(tmp_path / "run")
    bench.strike("roll", "rolling-restart", "brokers", wait="none")
    assert min(isr for _, isr in bench.ended) < 3


def test_the_same_seed_gives_the_same_order_and_another_one_another(tmp_path):
    orders = []
    for number, seed in enumerate((1, 1, 2, 3, 4, 5)):
        bench = Bench(tmp_path / str(number), seed=seed)
        bench.strike("roll", "rolling-restart", "brokers")
        orders.append([name for name, _ in bench.ended])
    assert orders[0] == orders[1]
    assert any(order != orders[0] for order in orders)


def test_the_order_that_the_targets_name_is_kept_if_asked_for(tmp_path):
    bench = Bench(tmp_path / "run")
    bench.strike("roll", "rolling-restart", "brokers", order="named")
    assert [name for name, _ in bench.ended] == ["broker-1", "broker-2", "broker-3"]


def test_controllers_are_restarted_one_after_the_other_with_a_quorum_all_the_time(tmp_path):
    bench = Bench(tmp_path / "run", controllers=3)
    assert bench.strike("roll", "rolling-restart", "controllers", how="kill").effective is Tristate.YES
    assert len(bench.ended) == 3
    assert bench.admin.active_controller() is not None


def test_who_is_down_already_is_not_restarted_and_what_held_it_still_does(tmp_path):
    bench = Bench(tmp_path / "run")
    bench.strike("kill", "kill", "node:broker-2")
    with pytest.raises(ClusterFailed, match="broker-2 cannot be restarted"):
        bench.strike("roll", "rolling-restart", "brokers")
    assert bench.ended == [("broker-2", 3)]
    assert [entry.step for entry in read_journal(bench.run.journal).open] == ["kill"]


def test_a_kill_after_it_is_undone_by_its_own_heal(tmp_path):
    bench = Bench(tmp_path / "run")
    bench.strike("roll", "rolling-restart", "brokers")
    bench.strike("kill", "kill", "node:broker-2")
    (effect,) = bench.nemesis.heal("kill")
    assert (effect.node, effect.effect) == ("broker-2", Tristate.YES)


def test_one_that_does_not_come_back_in_time_is_an_error_and_is_started_again_by_the_heal(tmp_path):
    bench = Bench(tmp_path / "run")
    bench.clock.sleep(1)
    with pytest.raises(ClusterFailed, match="unfenced"):
        bench.strike("roll", "rolling-restart", "brokers", how="kill", timeout_s=0.1)
    assert read_journal(bench.run.journal).open == ()
    assert len(bench.ended) == 1


def test_resolved_json_names_every_broker_that_the_role_meant(tmp_path):
    bench = Bench(tmp_path / "run")
    bench.strike("roll", "rolling-restart", "brokers")
    (entry,) = read_json(bench.run.resolved)
    assert entry["nodes"] == ["broker-1", "broker-2", "broker-3"]


def test_a_parameter_that_there_is_not_is_refused_when_planned():
    with pytest.raises(BadInput, match="wait"):
        check_parameters("rolling-restart", {"wait": "forever"})
    check_parameters("rolling-restart", {"wait": "none", "away_s": 2, "how": "kill"})


# --- upgrades


def test_an_upgrade_installs_the_version_on_each_broker_in_turn_while_the_others_are_in_sync(tmp_path):
    bench = Bench(tmp_path / "run")
    struck = bench.strike("upgrade", "upgrade", "brokers", version="4.4.0", order="named")
    assert struck.effective is Tristate.YES
    assert bench.ended == [("broker-1", 3), ("broker-2", 3), ("broker-3", 3)]
    brokers = [node for node in bench.cluster.nodes if "broker" in node.roles]
    assert [node.log[-2:] for node in brokers] == [["install", "started"]] * 3


def test_versions_that_are_none_are_refused_when_the_trial_is_planned():
    with pytest.raises(BadInput, match="version"):
        check_parameters("upgrade", {"version": "newest"})


def test_features_are_raised_to_the_level_that_is_named_or_the_highest_and_an_unknown_one_is_refused(tmp_path):
    bench = Bench(tmp_path / "run")
    bench.admin.update_feature("metadata.version", 25, timeout_s=1)
    struck = bench.strike("features", "finalize-features", "brokers", features={"metadata.version": "latest"})
    assert struck.effective is Tristate.YES
    with pytest.raises(ClusterFailed, match="already; there is nothing to switch on"):
        bench.strike("again", "finalize-features", "brokers", features={"metadata.version": "latest"})
    with pytest.raises(ClusterFailed, match="refuses nonsense = 3"):
        bench.strike("nonsense", "finalize-features", "brokers", features={"nonsense": 3})
