"""The decoder of ZooKeeper's logs, against those of a real ensemble and what ZooKeeper's own tool says of them."""

import gzip
import json
import re
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.clusters.files.metadata_log import decode_ground_truth
from prozess.clusters.files.zookeeper_log import (
    VERSION_DIRECTORY,
    TreeReplay,
    ZnodeChange,
    ZooKeeperOperation,
    changes_of,
    closed_paths,
    committed_transactions,
    read_transactions,
)
from prozess.clusters.protocol import zookeeper
from prozess.clusters.protocol.client import Malformed
from prozess.clusters.protocol.zookeeper import JuteCursor, ServerState, parse_srvr
from prozess.harness.errors import HistoryUnreadable
from prozess.harness.schema import METADATA, NONE, MetadataKind
from tests.support.paths import DATA

IDS = {("alpha", 0): 0, ("alpha", 1): 1, ("beta", 0): 2, ("gone", 0): 3}
WALL_MINUS_MONOTONIC_NS = 1_795_170_000_000_000_123
HEADER = b"ZKLG" + zookeeper.integer(2) + zookeeper.long(0)


def unzipped(name: str) -> bytes:
    return gzip.decompress((DATA / name).read_bytes())


def directories(tmp_path: Path, servers=(1, 2, 3)) -> list[Path]:
    """The data directories of the real ensemble."""
    found = []
    for server in servers:
        directory = tmp_path / f"zookeeper-{server}" / VERSION_DIRECTORY
        directory.mkdir(parents=True)
        for path in DATA.glob(f"zookeeper-3.8.4.{server}.log.*.gz"):
            (directory / path.name.partition(f".{server}.")[2].removesuffix(".gz")).write_bytes(unzipped(path.name))
        if server == 3:
            (directory / "snapshot.100000002").touch()  # it was given; only its name is read
        found.append(directory.parent)
    return found


def decode(of, ids=IDS):
    columns = decode_ground_truth(
        of, partition_ids=ids, wall_minus_monotonic_ns=WALL_MINUS_MONOTONIC_NS, metadata_mode="zookeeper"
    ).metadata
    assert {name: str(values.dtype)[0] for name, values in columns.items()} == {c.name: "i" for c in METADATA.columns}
    return columns


def rows(columns, *names, kind=None):
    every = list(zip(columns["kind"].tolist(), *(columns[name].tolist() for name in names), strict=True))
    return [row[1:] for row in every if kind in (None, row[0])]


def mask(brokers) -> int:
    return sum(1 << broker for broker in brokers)


# --- against ZooKeeper's own tool


def told_by_the_tool() -> list[tuple[int, str, int, dict]]:
    """(zxid, topic, number, state) of every state node that was written, from the text of TxnLogToolkit."""
    found = []
    for entry in re.split(r"\n(?=\d+/\d+/\d+, )", unzipped("zookeeper-3.8.4.1.dump.gz").decode(errors="replace")):
        head = re.search(r"zxid (0x[0-9a-f]+) multi", entry)
        if head is None or "error:" in entry:
            continue
        for topic, number, state in re.findall(
            r"/brokers/topics/([^/]+)/partitions/(\d+)/state[^{/]*(\{[^}]*\})", entry
        ):
            found.append((int(head[1], 16), topic, int(number), json.loads(state)))
    return found


def test_every_state_of_a_partition_is_what_zookeepers_own_tool_says(tmp_path):
    columns = decode(directories(tmp_path))
    told = [
        (zxid, IDS[topic, number], state["leader"], state["leader_epoch"], mask(state["isr"]))
        for zxid, topic, number, state in told_by_the_tool()
        if (topic, number) in IDS
    ]
    ours = rows(columns, "log_position", "partition", "leader", "leader_epoch", "isr", kind=MetadataKind.PARTITION)
    assert len(told) > 30
    assert ours == told
    gone = rows(columns, "partition", "leader", "isr", "replicas", kind=MetadataKind.DELETED)
    assert gone == [(3, NONE, 0, 0)], "a deleted topic's partition has no replicas any more"
    replicas = dict(rows(columns, "partition", "replicas", kind=MetadataKind.PARTITION))
    assert replicas == {0: mask((1, 2, 3)), 1: mask((1, 2, 3)), 2: mask((1, 3)), 3: mask((1, 2))}


def test_who_was_the_controller_and_which_brokers_lived_is_told(tmp_path):
    columns = decode(directories(tmp_path))
    controllers = rows(columns, "node", "leader_epoch", kind=MetadataKind.CONTROLLER)
    assert controllers == [(1, 1), (3, 2), (2, 3)]
    lived = rows(columns, "kind", "node")
    assert lived.count((MetadataKind.BROKER_FENCED, 1)) == 2
    assert lived.count((MetadataKind.BROKER_UNFENCED, 1)) == 3
    assert (columns["time_ns"] > 0).all()
    assert columns["log_position"].tolist() == sorted(columns["log_position"].tolist())
    assert not columns["elr"].any(), "eligible leader replicas are KRaft's"


def test_an_unclean_election_is_there_with_its_recovery_state(tmp_path):
    of_beta = [r for r in rows(decode(directories(tmp_path)), "partition", "leader", "isr", "recovering") if r[0] == 2]
    unclean = next(i for i, row in enumerate(of_beta) if row[3] == 1)
    assert of_beta[unclean - 1][1:3] == (NONE, mask([1])), "broker 1 alone was in sync, and dead"
    assert of_beta[unclean][1:3] == (3, mask([3]))


# --- which transactions were committed


def encoded(zxid, operation=ZooKeeperOperation.SET_DATA, body=None, session=7, time_ms=1):
    if body is None:
        body = zookeeper.text("/x") + zookeeper.buffer(b"y") + zookeeper.integer(1)
    head = (
        zookeeper.long(session)
        + zookeeper.integer(1)
        + zookeeper.long(zxid)
        + zookeeper.long(time_ms)
        + zookeeper.integer(operation)
    )
    record = head + body
    return zookeeper.long(zlib.adler32(record)) + zookeeper.buffer(record) + b"B"


def server(directory: Path, *zxids: int, given: tuple[int, ...] = ()) -> Path:
    """A server whose log has these transactions, and that was `given` snapshots of those states."""
    (directory / VERSION_DIRECTORY).mkdir(parents=True)
    for zxid in given:
        (directory / VERSION_DIRECTORY / f"snapshot.{zxid:x}").touch()
    log = HEADER + b"".join(encoded(zxid) for zxid in zxids) + bytes(100)
    (directory / VERSION_DIRECTORY / f"log.{zxids[0]:x}").write_bytes(log)
    return directory


def epoch(number: int, *counts: int) -> list[int]:
    return [number << 32 | count for count in counts]


def committed(tmp_path, *logs, given=((), (), ())):
    servers = [server(tmp_path / str(i), *zxids, given=given[i]) for i, zxids in enumerate(logs)]
    return [transaction.zxid for transaction in committed_transactions(servers)]


def test_what_a_majority_has_not_is_left_out(tmp_path):
    both = epoch(1, 1, 2, 3)
    assert committed(tmp_path, [*both, *epoch(1, 4, 5)], [*both, *epoch(1, 4)], both) == [*both, *epoch(1, 4)]


def test_what_a_deposed_leader_proposed_alone_is_left_out(tmp_path):
    ours = [*epoch(1, 1, 2), *epoch(2, 1)]
    assert committed(tmp_path, epoch(1, 1, 2, 3, 4), ours, ours) == ours


def test_who_joined_late_counts_but_does_not_tell_the_beginning(tmp_path):
    whole = [*epoch(1, 1, 2, 3), *epoch(2, 1)]
    late = [*epoch(1, 3), *epoch(2, 1)]
    assert committed(tmp_path, whole, late, epoch(1, 1), given=((), epoch(1, 2), ())) == whole


def test_what_a_deposed_leader_had_proposed_alone_is_no_past_though_it_is_in_the_log_of_who_has_the_end(tmp_path):
    # Seen: cut off in epoch 2, server 2 could not be asked to truncate, and was given a snapshot instead.
    ours = [*epoch(1, 1, 2), *epoch(3, 1, 2), *epoch(4, 1, 2)]
    deposed = [*epoch(1, 1, 2), *epoch(2, 1, 2), *epoch(4, 1, 2, 3)]
    given = ((), (*epoch(1, 2), *epoch(3, 2)), ())
    assert committed(tmp_path, ours[:-1], deposed, ours, given=given) == ours


def test_the_past_is_put_together_from_logs_none_of_which_has_all_of_it(tmp_path):
    every = [*epoch(1, 1, 2, 3, 4), *epoch(2, 1, 2)]
    logs = (epoch(1, 1, 2, 3), [*epoch(1, 1), *epoch(1, 3, 4), *epoch(2, 1, 2)], [*epoch(1, 1), *epoch(2, 2)])
    assert committed(tmp_path, *logs, given=((), epoch(1, 2), epoch(2, 1))) == every


@pytest.mark.parametrize(
    ("logs", "why"),
    [
        ([epoch(1, 1, 3), epoch(1, 1, 3), epoch(1, 1, 3)], "what was before transaction 0x100000003"),
        ([epoch(1, 2), epoch(1, 2)], "what was before transaction 0x100000002"),
        ([epoch(1, 1, 2), epoch(2, 1)], "what 2 of 2 ZooKeeper servers have in their logs, and nothing is"),
    ],
)
def test_what_no_log_tells_is_not_guessed(tmp_path, logs, why):
    with pytest.raises(HistoryUnreadable, match=why):
        committed(tmp_path, *logs)


@given(
    counts=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    away=st.lists(st.tuples(st.integers(0, 24), st.integers(0, 24)), min_size=3, max_size=3),
    stale=st.integers(0, 2),
)
def test_whatever_snapshots_servers_were_given_the_past_is_whole_or_not_told(tmp_path_factory, counts, away, stale):
    """Server by server a part of the log is missing, covered by a snapshot; before it, one has proposals of its own."""
    every = [zxid for number, count in enumerate(counts, start=1) for zxid in epoch(2 * number, *range(1, count + 1))]
    directories = []
    for index, (begin, length) in enumerate(away):
        missing = every[begin : begin + length]
        mine = [zxid for zxid in every if zxid not in missing]
        if index == 0 and missing and missing[0] & 0xFFFFFFFF == 1:
            mine += epoch((missing[0] >> 32) - 1, *range(1, stale + 1))
        given_now = (missing[-1],) if missing and missing[-1] != every[-1] else ()
        if mine:
            directories.append(server(tmp_path_factory.mktemp("s"), *sorted(mine), given=given_now))
        else:
            directories.append(tmp_path_factory.mktemp("wiped"))
    try:
        found = [transaction.zxid for transaction in committed_transactions(directories)]
    except HistoryUnreadable:
        return
    assert found == every[: len(found)]


AT = 0x100000175
"""Of what the real snapshot is the state."""


def after_a_snapshot(tmp_path, snapshot: bytes) -> Path:
    """Server 3, whose log begins behind a snapshot that it was given."""
    log = unzipped("zookeeper-3.8.4.3.log.100000003.gz")
    head = log[: len(HEADER)]
    first = next(i for i, t in enumerate(read_transactions(log)) if t.zxid > AT)
    position = len(HEADER)
    for _ in range(first):
        position += 8 + 4 + int.from_bytes(log[position + 8 : position + 12], "big") + 1
    directory = tmp_path / "late" / VERSION_DIRECTORY
    directory.mkdir(parents=True)
    (directory / f"log.{AT + 1:x}").write_bytes(head + log[position:])
    (directory / f"snapshot.{AT:x}").write_bytes(snapshot)
    return directory.parent


def test_where_no_log_tells_the_beginning_a_snapshot_does(tmp_path):
    names = ("partition", "leader", "leader_epoch", "isr", "replicas", "node", "kind")
    whole = decode(directories(tmp_path))
    late = decode([after_a_snapshot(tmp_path, unzipped("zookeeper-3.8.4.3.snapshot.100000175.gz"))])
    behind = [rows(c, *names)[i] for c in (whole, late) for i in range(len(c["kind"])) if c["log_position"][i] > AT]
    assert behind[: len(behind) // 2] == behind[len(behind) // 2 :], "what came after it learns alike"
    before = {p: state for p, *state in rows(whole, *names[:5], kind=MetadataKind.PARTITION)[: _rows_until(whole)]}
    told = rows(late, *names[:5], kind=MetadataKind.PARTITION)[: _rows_until(late)]
    assert {p: state for p, *state in told} == {p: state for p, state in before.items() if p != 3}
    assert len(told) == 3, "once each; what was deleted is not there"
    assert rows(late, "node", "leader_epoch", kind=MetadataKind.CONTROLLER) == [(2, 3)]


def _rows_until(columns) -> int:
    of_partitions = columns["log_position"][columns["kind"] == MetadataKind.PARTITION]
    return int((of_partitions <= AT).sum())


@pytest.mark.parametrize("cut", [0, 10, 20, 2000])
def test_a_snapshot_that_is_cut_off_tells_nothing(tmp_path, cut):
    snapshot = unzipped("zookeeper-3.8.4.3.snapshot.100000175.gz")
    with pytest.raises(HistoryUnreadable, match=r"snapshot\.100000175"):
        decode([after_a_snapshot(tmp_path, snapshot[:cut])])


def test_a_minority_of_the_ensemble_is_not_enough(tmp_path):
    missing = [tmp_path / "never", tmp_path / "there"]
    with pytest.raises(HistoryUnreadable, match=r"what 2 of 3 ZooKeeper servers have.*readable: 1"):
        decode([*directories(tmp_path, servers=(1,)), *missing])


def test_one_server_alone_has_what_it_has(tmp_path):
    assert committed(tmp_path, [1, 2, 3]) == [1, 2, 3], "standalone, ZooKeeper counts from 1 in epoch 0"


@given(cut=st.integers(0, 3000))
def test_a_log_that_is_cut_off_anywhere_tells_what_is_whole(cut):
    whole = HEADER + b"".join(encoded(zxid) for zxid in range(1, 30))
    found = [transaction.zxid for transaction in read_transactions(whole[:cut])]
    assert found == list(range(1, len(found) + 1))
    each = (len(whole) - len(HEADER)) // 29
    assert len(found) == min(29, max(0, cut - len(HEADER)) // each)


def test_a_time_of_more_than_64_bits_is_refused(tmp_path):
    directory = tmp_path / "version-2"
    directory.mkdir()
    told = [("/controller", b'{"brokerid":1}'), ("/controller_epoch", b"1")]
    bodies = [zookeeper.text(path) + zookeeper.buffer(data) + zookeeper.integer(1) for path, data in told]
    log = b"".join(encoded((1 << 32) + n, body=body, time_ms=2**62) for n, body in enumerate(bodies, start=1))
    (directory / "log.100000001").write_bytes(HEADER + log)
    with pytest.raises(HistoryUnreadable, match="holds a number of more than 64 bits"):
        decode([directory.parent])


def test_a_file_of_another_kind_is_refused(tmp_path):
    directory = server(tmp_path, 1)
    (directory / VERSION_DIRECTORY / "log.1").write_bytes(b"ZKSN" + bytes(40))
    with pytest.raises(HistoryUnreadable, match="no transaction log of version 2"):
        decode([directory])


# --- jute


PATHS = st.text(max_size=20).map(lambda text: "/" + text)
ACL = zookeeper.vector(zookeeper.integer(31) + zookeeper.text("world") + zookeeper.text("anyone"))


@given(path=PATHS, data=st.binary(max_size=50), ephemeral=st.booleans())
def test_what_is_written_as_jute_is_read_again(path, data, ephemeral):
    create = zookeeper.text(path) + zookeeper.buffer(data) + ACL + zookeeper.boolean(ephemeral) + zookeeper.integer(1)
    delete, write = zookeeper.text(path), zookeeper.text(path) + zookeeper.buffer(data) + zookeeper.integer(3)
    made = ZnodeChange(ZooKeeperOperation.CREATE, path, data, ephemeral=ephemeral)
    gone, written = ZnodeChange(ZooKeeperOperation.DELETE, path), ZnodeChange(ZooKeeperOperation.SET_DATA, path, data)
    assert list(changes_of(ZooKeeperOperation.CREATE, create)) == [made]
    assert list(changes_of(ZooKeeperOperation.CREATE2, create + bytes(12))) == [made], "a digest may follow"
    assert list(changes_of(ZooKeeperOperation.DELETE, delete)) == [gone]
    assert list(changes_of(ZooKeeperOperation.SET_DATA, write)) == [written]
    parts = [
        (ZooKeeperOperation.CREATE, create),
        (ZooKeeperOperation.SET_DATA, write),
        (ZooKeeperOperation.DELETE, delete),
    ]
    multi = zookeeper.vector(*(zookeeper.integer(kind) + zookeeper.buffer(body) for kind, body in parts))
    assert list(changes_of(ZooKeeperOperation.MULTI, multi)) == [made, written, gone]
    failed = zookeeper.vector(
        *(
            zookeeper.integer(kind) + zookeeper.buffer(body)
            for kind, body in [*parts, (ZooKeeperOperation.ERROR, b"xxxx")]
        )
    )
    assert list(changes_of(ZooKeeperOperation.MULTI, failed)) == [], "all of it or nothing"
    assert closed_paths(zookeeper.vector(zookeeper.text(path))) == [path]


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1), st.text(), st.binary())
def test_every_value_of_jute_comes_back(integer, long, text, data):
    cursor = JuteCursor(
        zookeeper.integer(integer) + zookeeper.long(long) + zookeeper.text(text) + zookeeper.buffer(data)
    )
    assert (cursor.int32(), cursor.int64(), cursor.text(), cursor.buffer()) == (integer, long, text, data)


@given(st.sampled_from(sorted(ZooKeeperOperation)), st.binary(max_size=80))
def test_bytes_that_mean_nothing_are_refused_and_never_loop(operation, body):
    try:
        list(changes_of(operation, body))
        closed_paths(body)
    except Malformed:
        pass


@given(
    st.binary(max_size=60),
    st.sampled_from(["/controller", "/brokers/topics/a", "/brokers/topics/a/partitions/0/state"]),
)
def test_what_is_not_kafkas_is_refused(data, path):
    replay = TreeReplay({("a", 0): 0}, wall_minus_monotonic_ns=0)
    body = zookeeper.text(path) + zookeeper.buffer(data) + zookeeper.integer(1)
    (transaction,) = read_transactions(HEADER + encoded(1, body=body))
    with pytest.raises(Malformed, match="which is not Kafka's"):
        replay.transaction(transaction)


# --- four-letter words


@pytest.mark.parametrize(
    ("told", "state"),
    [
        (
            "Zookeeper version: 3.8.4\nOutstanding: 0\nZxid: 0x100000043\nMode: follower\nNode count: 9\n",
            ("follower", False),
        ),
        ("Zxid: 0x5\nMode: standalone\n", ("standalone", True)),
        ("Zxid: 0x5\nMode: leader\n", ("leader", True)),
        ("This ZooKeeper instance is not currently serving requests\n", None),
        ("", None),
    ],
)
def test_a_server_leads_if_it_says_so_and_serves(told, state):
    found = parse_srvr(told)
    assert (None if found is None else (found.mode, found.leads)) == state
    if "43" in told:
        assert found == ServerState("follower", 0x100000043)
