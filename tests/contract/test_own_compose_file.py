"""A person's own Compose file under trial: found, broken, healed, and gone; the person's own things are left alone."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from prozess.clusters.compose.cluster import compose_cluster
from prozess.clusters.compose.engine import connect, find_image
from prozess.clusters.compose.user_cluster import OwnComposeCluster
from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.config.configuration import ComposeOptions
from prozess.harness.errors import BadInput, ClusterFailed
from prozess.harness.interfaces import NodeState
from prozess.harness.schema import Tristate
from tests.contract.test_compose_cluster import left_of
from tests.contract.test_local_cluster import write_and_read
from tests.support.servers.clusters import READY_S, ensure_images, new_run, numbered_from_zero, plan_of

pytestmark = [pytest.mark.cluster, pytest.mark.docker]
CLOCK = SystemClock()
EXTERNAL = "prozess-test-external"


@pytest.fixture(scope="module")
def own(
    tmp_path_factory: pytest.TempPathFactory, need: Callable[[str], None]
) -> Iterator[tuple[OwnComposeCluster, Path]]:
    """Two combined nodes, numbered from 0, of a file that says nothing of prozess, with another service and an external
    volume; ready."""
    need("docker")
    ensure_images("4.4.0")
    image = find_image("kafka", "4.4.0")
    other = f'services:\n  other:\n    image: "{image}"\n    command: ["sleep", "100000"]\n'
    text = numbered_from_zero(2, image).replace("services:\n", other, 1)
    file = tmp_path_factory.mktemp("own") / "mine.yaml"
    file.write_text(f"{text}  {EXTERNAL}:\n    external: true\n", encoding="utf-8")
    run = new_run(tmp_path_factory.mktemp("run"))
    plan = plan_of(metadata_mode="kraft-combined", brokers=2)
    plan = plan.model_copy(update={"compose": ComposeOptions(file=str(file))})
    subprocess.run(["docker", "volume", "create", EXTERNAL], check=True, capture_output=True)
    built = compose_cluster(plan, run, clock=CLOCK)
    assert isinstance(built, OwnComposeCluster)
    try:
        built.setup()
        built.wait_ready(timeout_s=READY_S)
        yield built, run.path
    finally:
        built.teardown()
        left = left_of(run)
        with closing(connect()) as client:
            client.api.remove_volume(EXTERNAL)  # raises if the person's own volume was removed
    assert left == []
    assert (run.nodes / "broker-0" / "data" / "meta.properties").is_file(), "data is copied before its volume goes"
    assert (run.nodes / "broker-1" / "data" / "__cluster_metadata-0").is_dir()
    assert (run.logs / "broker-0.log").stat().st_size > 0


def test_its_brokers_are_found_by_their_environment_and_reached(own: tuple[OwnComposeCluster, Path]) -> None:
    cluster, _ = own
    assert [node.name for node in cluster.nodes] == ["broker-0", "broker-1"]
    assert cluster.broker_ids == (0, 1)
    assert all(node.roles == {"broker", "controller"} for node in cluster.nodes)
    assert write_and_read(cluster.bootstrap_servers, 50) == 50
    assert cluster.describe()["features"]["metadata.version"] > 0


def test_a_cut_is_one_way_and_is_made_again_when_the_server_starts(own: tuple[OwnComposeCluster, Path]) -> None:
    cluster, _ = own
    one, two = cluster.nodes
    assert one.receives_from(two) is Tristate.YES
    one.block(two)
    assert (one.receives_from(two), two.receives_from(one)) == (Tristate.NO, Tristate.YES)
    one.kill()
    assert one.state() is NodeState.STOPPED
    one.start()
    assert one.receives_from(two) is Tristate.NO, "its network is a new one"
    two.kill()
    one.unblock(two)  # it has no address now
    with pytest.raises(ClusterFailed, match="broker-1 has no network now"):
        one.block(two)
    two.start()
    wait_until(lambda: one.receives_from(two) is Tristate.YES, awaited="datagrams to arrive", timeout_s=60, clock=CLOCK)
    cluster.wait_ready(timeout_s=READY_S)


def test_a_paused_server_goes_on(own: tuple[OwnComposeCluster, Path]) -> None:
    cluster, _ = own
    cluster.nodes[0].pause()
    assert cluster.nodes[0].state() is NodeState.PAUSED
    cluster.nodes[0].resume()
    cluster.wait_ready(timeout_s=READY_S)


def test_a_file_that_is_none_is_refused(tmp_path: Path, need: Callable[[str], None]) -> None:
    need("docker")
    broken = tmp_path / "broken.yaml"
    broken.write_text("services: 7\n", encoding="utf-8")
    for file, said in ((tmp_path / "absent.yaml", "does not exist"), (broken, "Compose does not take it")):
        plan = plan_of().model_copy(update={"compose": ComposeOptions(file=str(file))})
        with pytest.raises(BadInput, match=said):
            compose_cluster(plan, new_run(tmp_path / file.stem), clock=CLOCK)
