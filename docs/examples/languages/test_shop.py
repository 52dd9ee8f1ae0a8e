"""A shop in Node on a real cluster, which is broken while it works. `npm install` here, then `pytest`."""

import shutil
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
DURABLE = {"acks": "all", "enable.idempotence": True, "delivery.timeout.ms": 120_000}
LEADER_ALONE = {
    "acks": 1,
    "enable.idempotence": False,
    "delivery.timeout.ms": 120_000,
    "retries": 30,
    "max.in.flight.requests.per.connection": 1,
}
"""As shop.js has it, in librdkafka's words."""
SENT = "producer_send_success"


@pytest.fixture
def shop(kafka_cluster, recorded_command):
    if shutil.which("node") is None or not (HERE / "node_modules" / "kafkajs").is_dir():
        pytest.skip("the shop needs Node and kafkajs: run `npm install` in docs/examples/languages")

    def start(topic, count, configuration):
        words = ["node", "shop.js", kafka_cluster.bootstrap_servers, topic, str(count), str(configuration["acks"])]
        return recorded_command(words, role="producer", configuration=configuration, name="shop", cwd=HERE)

    return start


def test_no_order_of_the_shop_is_lost_although_a_leader_dies(kafka_cluster, nemesis, shop):
    orders = kafka_cluster.create_topic("orders", config={"min.insync.replicas": 2})
    program = shop(orders, 300, DURABLE)
    program.wait_printed(SENT, count=50)
    with nemesis.kill(f"leader({orders}/0)"):
        assert program.wait(timeout_s=120) == 0
    assert program.printed(SENT) == 300


@pytest.mark.prozess(forbid=["lost"])
@pytest.mark.xfail(strict=True, reason="acks=1 loses what only the dead leader had", raises=pytest.fail.Exception)
def test_demonstration_the_shop_with_acks_1_loses_orders(kafka_cluster, nemesis, shop):
    """Followers that stand still while the leader acknowledges, and a leader that dies then: nobody else has the orders."""
    orders = kafka_cluster.create_topic("orders")
    program = shop(orders, 100_000, LEADER_ALONE)
    program.wait_printed(SENT, count=20)
    frozen = nemesis.pause(f"followers({orders}/0)")
    nemesis.wait("elapsed", seconds=0.6)  # a fetch that waits at the leader would still be answered
    program.wait_printed(SENT, count=program.printed(SENT) + 50)
    program.kill()
    nemesis.kill(f"leader({orders}/0)")
    frozen.heal()
    nemesis.wait("leader-moved", timeout_s=60)
