"""What only the compose backend promises: cuts spare the observer, nothing is left in the engine, errors with a way out."""

import gc
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from prozess.app.wiring import heal_run
from prozess.clusters.compose.cluster import ComposeCluster
from prozess.clusters.compose.engine import RUN_LABEL, connect, find_image, has_tools, run_label, sweep_run
from prozess.clusters.protocol.client import WireClient
from prozess.clusters.protocol.requests import metadata_request
from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.config.configuration import ComposeOptions
from prozess.harness.errors import BadInput, ClusterFailed
from prozess.harness.interfaces import Capability, NodeState
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import Tristate
from tests.contract.test_local_cluster import with_checkout, write_and_read
from tests.support.servers.clusters import READY_S, ensure_images, new_run, plan_of

pytestmark = [pytest.mark.cluster, pytest.mark.docker]
CLOCK = SystemClock()
END_S = 60.0
VERSION = "4.4.0"


@pytest.fixture(scope="module", autouse=True)
def engine(need: Callable[[str], None]) -> None:
    need("docker")
    ensure_images(VERSION)


def left_of(run: RunDirectory) -> list[str]:
    """Names of everything in the engine that is of that run."""
    wanted = {"label": f"{RUN_LABEL}={run_label(run)}"}
    with closing(connect()) as client:
        containers = [name for c in client.api.containers(all=True, filters=wanted) for name in c["Names"]]
        networks = [network["Name"] for network in client.api.networks(filters=wanted)]
        volumes = [volume["Name"] for volume in client.api.volumes(filters=wanted)["Volumes"] or []]
    return containers + networks + volumes


def connects(server: tuple[str, int]) -> bool:
    try:
        socket.create_connection(server, 1.0).close()
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def compose(tmp_path_factory: pytest.TempPathFactory, engine: None) -> Iterator[ComposeCluster]:
    """Two combined nodes, ready."""
    run = new_run(tmp_path_factory.mktemp("run"))
    built = ComposeCluster(plan_of(metadata_mode="kraft-combined", brokers=2), run, clock=CLOCK)
    try:
        built.setup()
        built.wait_ready(timeout_s=READY_S)
        yield built
    finally:
        built.teardown()
    assert left_of(run) == []


def test_clients_on_the_host_write_and_read(compose: ComposeCluster) -> None:
    assert write_and_read(compose.bootstrap_servers, 200) == 200


def test_no_cut_touches_the_observers_link(compose: ComposeCluster) -> None:
    clients = [(host, int(port)) for host, _, port in (s.partition(":") for s in compose.bootstrap_servers.split(","))]
    assert all(connects(server) for server in clients)
    for node in compose.nodes:
        node.block_address(compose.client_address)
        for source in compose.nodes:
            if source is not node:
                node.block(source)
    assert not any(connects(server) for server in clients), "a client got through the cut"
    wire = WireClient(lambda: compose.observer_servers, name="broker", clock=CLOCK)
    with closing(wire):
        for node in compose.nodes:
            assert wire.ask(node.node_id, metadata_request([]), timeout_s=60) is not None, node.name
    for node in compose.nodes:
        node.unblock_address(compose.client_address)
        for source in compose.nodes:
            if source is not node:
                node.unblock(source)
    assert all(connects(server) for server in clients)
    compose.wait_ready(timeout_s=READY_S)


def test_what_faults_are_built_on_runs_as_root_in_the_nodes_network(compose: ComposeCluster) -> None:
    node = compose.nodes[0]
    seen = node.network.run_as_root(["ip", "-4", "-brief", "address", "show"])
    assert seen.returncode == 0
    assert node.address in seen.stdout
    assert node.network.run_as_root(["id", "-u"]).stdout == "0\n"


@pytest.mark.long
def test_two_clusters_at_a_time_have_nothing_in_common(compose: ComposeCluster, tmp_path: Path) -> None:
    run = new_run(tmp_path)
    other = ComposeCluster(plan_of(metadata_mode="kraft-combined", brokers=1), run, clock=CLOCK)
    try:
        other.setup()
        other.wait_ready(timeout_s=READY_S)
        assert not {node.address for node in other.nodes} & {node.address for node in compose.nodes}
        assert write_and_read(other.bootstrap_servers, 20) == 20
    finally:
        other.teardown()
    assert left_of(run) == []
    assert {node.state() for node in compose.nodes} == {NodeState.RUNNING}
    assert (run.nodes / "broker-1" / "data" / "meta.properties").is_file(), "data stays readable"
    assert "started" in (run.logs / "broker-1.log").read_text(), "and so does the log"


def test_a_server_that_dies_at_once_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    plan = plan_of(metadata_mode="kraft-combined", brokers=1, properties={"num.network.threads": "many"})
    cluster = ComposeCluster(plan, run, clock=CLOCK)

    def bring_up() -> None:
        cluster.setup()
        cluster.wait_ready(timeout_s=READY_S)

    try:
        with pytest.raises(ClusterFailed, match=r"ended by itself \(exit 1\)(.|\n)*num\.network\.threads"):
            bring_up()
    finally:
        cluster.teardown()
    assert left_of(run) == []


def test_an_image_that_is_nowhere_is_refused_with_the_ways_out(tmp_path: Path) -> None:
    plan = plan_of().model_copy(update={"compose": ComposeOptions(kafka_image="prozess/no-such-image:{version}")})
    cluster = ComposeCluster(plan, new_run(tmp_path), clock=CLOCK)
    with pytest.raises(
        BadInput, match=r"'prozess/no-such-image:4\.4\.0' is not here.*prozess images build.*images list"
    ):
        cluster.setup()


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # docker's client leaves the socket of a failed connect open
def test_an_engine_that_does_not_answer_is_refused_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-engine.sock")
    cluster = ComposeCluster(plan_of(), new_run(tmp_path), clock=CLOCK)
    with pytest.raises(Exception, match=r"No Docker engine answers.*compose/engine\.sh"):
        cluster.setup()
    gc.collect()


_CALLER = """
import sys
from pathlib import Path
from prozess.clusters.compose.cluster import ComposeCluster
from prozess.harness.clock import SystemClock
from prozess.harness.plan.plan import parse_plan
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import Tristate
run = RunDirectory(Path(sys.argv[1]))
cluster = ComposeCluster(parse_plan(run.plan.read_text(), source="plan"), run, clock=SystemClock())
cluster.setup()
one, two = cluster.nodes[:2]
one.block(two)
two.pause()
print("up", flush=True)
sys.stdin.read()
"""


def test_heal_leaves_nothing_of_a_run_that_was_killed_in_the_middle_of_faults(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    run.plan.write_text(plan_of(metadata_mode="kraft-combined", brokers=2).model_dump_json())
    caller = subprocess.Popen(
        [sys.executable, "-c", _CALLER, str(run.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=with_checkout(),
    )
    try:
        assert caller.stdout is not None
        assert caller.stdin is not None
        assert caller.stdout.readline() == "up\n"
        os.kill(caller.pid, signal.SIGKILL)
        caller.wait(END_S)
        assert len(left_of(run)) == 6, "two nodes of two containers, two networks"
        report = heal_run(run, clock=CLOCK)
        assert report.clean, report
        assert len(report.done) == 6
        assert left_of(run) == []
        assert heal_run(run, clock=CLOCK).done == (), "safe to repeat"
    finally:
        caller.kill()
        caller.wait(END_S)
        caller.stdin.close()
        caller.stdout.close()
        sweep_run(run)
    assert (run.logs / "broker-1.log").is_file(), "kept before its container was removed"


@pytest.mark.long
def test_heal_after_an_up_that_was_killed_half_way(tmp_path: Path) -> None:
    """At any moment of it: what is there is labelled from its first moment on."""
    run = new_run(tmp_path)
    run.plan.write_text(plan_of(metadata_mode="kraft-combined", brokers=2).model_dump_json())
    caller = subprocess.Popen(
        [sys.executable, "-c", _CALLER, str(run.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env=with_checkout(),
        start_new_session=True,
    )
    try:
        wait_until(lambda: bool(left_of(run)), awaited="something in the engine", timeout_s=END_S, clock=CLOCK)
        os.killpg(caller.pid, signal.SIGKILL)
        caller.wait(END_S)
        seen: list[Any] = []

        def clean() -> bool:
            """The engine may still be about what it was asked before the kill."""
            seen.append(heal_run(run, clock=CLOCK))
            return bool(seen[-1].clean) and not left_of(run)

        wait_until(clean, awaited="nothing to be left", timeout_s=END_S, clock=CLOCK, last_seen=lambda: str(seen[-1]))
    finally:
        caller.kill()
        caller.wait(END_S)
        assert caller.stdin is not None
        caller.stdin.close()
        sweep_run(run)


def test_without_root_cuts_are_made_by_the_engine_and_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROZESS_CONTAINER_NETWORKS", "exec")
    if not has_tools(find_image("kafka", VERSION)):
        pytest.skip("this image has no iptables; `prozess images build` builds one")
    run = new_run(tmp_path)
    cluster = ComposeCluster(plan_of(metadata_mode="kraft-combined", brokers=2), run, clock=CLOCK)
    try:
        cluster.setup()
        cluster.wait_ready(timeout_s=READY_S)
        assert Capability.BLOCK in cluster.capabilities
        assert cluster.lacks[Capability.CUT_CLIENTS]
        one, two = cluster.nodes
        assert (one.receives_from(two), two.receives_from(one)) == (Tristate.YES, Tristate.YES)
        one.block(two)
        one.block(two)  # safe to repeat
        assert (one.receives_from(two), two.receives_from(one)) == (Tristate.NO, Tristate.YES)
        one.kill()
        one.start()
        assert one.receives_from(two) is Tristate.NO, "the cut survives a restart"
        one.unblock(two)
        one.unblock(two)
        assert one.receives_from(two) is Tristate.YES
        cluster.wait_ready(timeout_s=READY_S)
    finally:
        cluster.teardown()
    assert left_of(run) == []
