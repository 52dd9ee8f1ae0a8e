"""Clients whose cluster nobody reaches end in time, and what they say is unknown."""

from prozess.harness.schema import Isolation, Outcome
from tests.support.log_workload import RESUME, bench, plan_of


def test_clients_of_a_cluster_that_nobody_reaches_end_in_time_and_claim_nothing(tmp_path):
    plan = plan_of(acks=["all"], rate_hz=50, delivery_timeout_ms=[1500])
    with bench(plan, tmp_path, before=lambda kafka: kafka.down()) as made:
        made.workload.command(RESUME)
        made.until(lambda: made.total("info") >= 20, "sends given up")
        made.workload.finish_sends(timeout_s=6)
        sends = made.rows("sends", made.producer)
        audited = made.workload.audit(timeout_s=4)
        assert made.workload.dead_clients() == {}
    assert len(sends) >= 20
    assert (sends["outcome"] == Outcome.INFO).all()
    assert audited.complete == {}
    levels = (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED)
    assert set(audited.incomplete) == {(p.partition, level) for p in plan.partitions for level in levels}
    assert all(audited.incomplete.values())
