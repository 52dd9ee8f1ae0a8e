"""Who led and who was in sync where two logs report it: ZooKeeper's until the controllers take over, then theirs."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from prozess.clusters.files.metadata_log import join_after_migration
from prozess.harness.columns import empty_rows
from prozess.harness.guarantees.evidence.ground_truth import timelines
from prozess.harness.schema import METADATA, NONE, MetadataKind, MetadataSource

FIRST_ZXID = 1 << 32


def rows(*told, partition=0):
    """(time, position, leader) …; partition NONE: of a broker."""
    table = {name: column.copy() for name, column in empty_rows(METADATA).items()}
    kind = MetadataKind.PARTITION if partition != NONE else MetadataKind.BROKER_REGISTERED
    values = {"partition": partition, "kind": kind, "source": MetadataSource.CONTROLLER_LOG}
    for name in table:
        given_ = {"time_ns": 0, "log_position": 1, "leader": 2}.get(name)
        column = [row[given_] for row in told] if given_ is not None else [values.get(name, 0)] * len(told)
        table[name] = np.array(column, dtype=table[name].dtype)
    return table


def leaders(told):
    return [(int(t), int(leader)) for t, leader in zip(told["time_ns"], told["leader"], strict=True)]


def test_zookeeper_tells_until_the_log_first_speaks_of_a_partition():
    told = join_after_migration(
        rows((10, FIRST_ZXID, 1), (20, FIRST_ZXID + 1, 2), (40, FIRST_ZXID + 2, 3)), rows((30, 5, 2), (39, 6, 3))
    )
    assert leaders(told) == [(10, 1), (20, 2), (30, 2), (39, 3)], "what follows in ZooKeeper is a copy of it"


def test_as_long_as_the_log_speaks_of_brokers_alone_zookeeper_decides():
    zookeeper = rows((10, FIRST_ZXID, 1), (20, FIRST_ZXID + 1, 2))
    assert leaders(join_after_migration(zookeeper, rows((5, 1, NONE), partition=NONE))) == leaders(zookeeper)


def test_who_controlled_by_zookeeper_is_left_out_since_its_epochs_are_not_those_of_the_quorum():
    """Seen: broker 2 controlled in epoch 3 of ZooKeeper, and 3002 in epoch 3 of the quorum: they were two-controllers."""
    zookeeper = rows((10, FIRST_ZXID, 1), (20, FIRST_ZXID + 1, 2))
    zookeeper["kind"][1] = MetadataKind.CONTROLLER
    for log in (rows((30, 5, 2)), rows((5, 1, NONE), partition=NONE)):
        assert MetadataKind.CONTROLLER not in join_after_migration(zookeeper, log)["kind"]


@given(st.lists(st.integers(0, 99), min_size=1, max_size=6), st.lists(st.integers(100, 199), min_size=1, max_size=6))
def test_a_timeline_over_both_goes_through_them_in_order_of_time(before, after):
    zookeeper = rows(*((t, FIRST_ZXID + i, 1 + i % 3) for i, t in enumerate(sorted(before))))
    log = rows(*((t, i, 1 + i % 3) for i, t in enumerate(sorted(after))))
    timeline = timelines(join_after_migration(zookeeper, log))[0]
    assert (np.diff(timeline.time_ns) >= 0).all()
    assert len(timeline.time_ns) == len(before) + len(after)
