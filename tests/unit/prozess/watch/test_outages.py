"""Outages of a watch: what is one, what is not, and what the metadata says of it."""

from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.clock import NS_PER_S
from prozess.harness.interfaces import PartitionView
from prozess.watch.outages import (
    OUTAGE_S,
    Complaints,
    OutageChange,
    OutageLines,
    Silences,
    describe_partition,
    describe_partitions,
    named_partitions,
)

TOPIC = "prozess-watch-x"
KEY = (TOPIC, 0)


def looked_at(since_s, until_s, silences, *, step_s=0.05, begin_s=0.0):
    """What is reported if somebody looks every `step_s` from `begin_s` on while something has been awaited since
    `since_s`."""
    found, moment_s = [], begin_s
    while moment_s < until_s:
        found += silences.look({0: int(since_s * NS_PER_S)}, int(moment_s * NS_PER_S))
        moment_s += step_s
    return found


def test_a_silence_up_to_the_limit_is_no_outage():
    silences = Silences()
    assert looked_at(0, OUTAGE_S, silences) == []
    assert (silences.count, silences.open) == (0, {})


def test_a_longer_silence_is_one_outage_which_is_told_within_a_look_and_again_when_it_is_over():
    silences = Silences()
    (begun,) = looked_at(0, 20, silences)
    assert begun.begins
    assert OUTAGE_S < begun.lasted_s < OUTAGE_S + 0.1
    (over,) = silences.look({0: int(20.1 * NS_PER_S)}, int(20.2 * NS_PER_S))
    assert (over.begins, round(over.lasted_s, 1)) == (False, 20.2)
    assert (silences.count, silences.open, round(silences.lasted_s(0), 1)) == (1, {}, 20.2)


def test_an_outage_is_over_too_if_nothing_is_awaited_any_more():
    silences = Silences()
    looked_at(0, 10, silences)
    (over,) = silences.look({0: None}, 11 * NS_PER_S)
    assert not over.begins
    assert silences.silent_s(0, 12 * NS_PER_S) == 0


def test_a_watch_that_stood_still_does_not_blame_the_cluster():
    silences = Silences()
    assert looked_at(0, 3, silences) == []
    assert looked_at(0, 63, silences, begin_s=60) == []  # and then it goes on: 3 s + 3 s were seen
    assert [change.begins for change in looked_at(0, 70, silences, begin_s=63)] == [True]


def test_partitions_are_judged_alone():
    silences = Silences(limit_s=1)
    for tenth in range(30):
        now_ns = tenth * NS_PER_S // 10
        silences.look({0: now_ns, 1: 0}, now_ns)
    assert silences.open.keys() == {1}


@given(acknowledged_s=st.lists(st.floats(0, 60), max_size=12), step_s=st.floats(0.01, 0.9), limit_s=st.floats(1, 20))
def test_an_outage_is_told_exactly_for_each_silence_that_is_longer_than_the_limit(acknowledged_s, step_s, limit_s):
    silences, found, moments = Silences(limit_s=limit_s), [], [*sorted(acknowledged_s), 200.0]
    now_s = since_s = 0.0
    for moment_s in moments:
        while now_s < moment_s:
            found += silences.look({0: int(since_s * NS_PER_S)}, int(now_s * NS_PER_S))
            now_s += step_s
        since_s = moment_s
    gaps = [later - before for before, later in zip([0.0, *moments], moments, strict=False)]
    begun = sum(change.begins for change in found)
    assert sum(gap > limit_s + 2 * step_s for gap in gaps) <= begun <= sum(gap > limit_s - step_s for gap in gaps)
    assert begun == silences.count


def test_brokers_that_say_the_same_are_named_together_and_the_silent_ones_too():
    leaderless = PartitionView(-1, 7, (1, 2, 3), (1,))
    text = describe_partition(KEY, {1: None, 2: {KEY: leaderless}, 3: {KEY: leaderless}}, min_in_sync=2)
    assert text == (
        "brokers 2, 3 say: nobody leads in epoch 7, in sync: 1 of 1, 2, 3, fewer than min.insync.replicas=2; "
        "broker 1 does not answer from here"
    )


def test_a_leader_that_does_not_answer_is_named():
    view = PartitionView(1, 4, (1, 2, 3), (1, 2, 3))
    text = describe_partition(KEY, {1: None, 2: {KEY: view}}, min_in_sync=2)
    assert "broker 1 leads in epoch 4 and does not answer" in text
    assert "offline: 1" in text


def test_no_view_at_all_is_said_and_so_is_a_topic_that_is_gone():
    assert describe_partition(KEY, {}, min_in_sync=1) == "no broker is known"
    assert describe_partition(KEY, {1: {}}, min_in_sync=1) == "broker 1 says: there is no such topic"


def changed(partition, *, begins, at_s, lasted_s=6.5):
    return OutageChange(partition, begins, int((at_s - lasted_s) * NS_PER_S), lasted_s)


def lines_until(lines, changes, until_s):
    """What is reported if somebody looks every tenth of a second, as (moment in s, line)."""
    told, left = [], sorted(changes, key=lambda change: change[0])
    for tenth in range(int(until_s * 10)):
        now_ns = tenth * NS_PER_S // 10
        while left and left[0][0] * NS_PER_S <= now_ns:
            at_s, kind, partition, begins = left.pop(0)
            lines.add(kind, changed(partition, begins=begins, at_s=at_s), now_ns)
        told += [(tenth / 10, line) for line in lines.due(now_ns)]
    return told


def test_the_death_of_one_broker_is_one_line_and_so_is_its_end():
    begin = [(1.0, "write", 0, True), (1.3, "write", 2, True), (1.5, "write", 1, True), (1.6, "read", 1, True)]
    end = [(5.0, "write", 0, False), (5.1, "read", 1, False), (6.0, "write", 1, False), (6.2, "write", 2, False)]
    (begun_s, begun), (over_s, over) = lines_until(OutageLines(gather_s=0.7), begin + end, 20)
    assert (begun_s, begun.partitions("write"), begun.partitions("read")) == (1.7, [0, 1, 2], [1])
    assert 7.1 < begun.lasted_s < 7.3
    assert (over_s, over.begins, over.partitions("write")) == (6.2, False, [0, 1, 2])


def test_partitions_that_come_back_are_told_although_another_stays_away():
    changes = [(1.0, "write", 0, True), (1.0, "write", 1, True), (3.0, "write", 0, False), (30.0, "write", 1, False)]
    told = lines_until(OutageLines(gather_s=0.7, rest_s=5.0), changes, 40)
    assert [(at_s, line.begins, line.partitions("write")) for at_s, line in told] == [
        (1.7, True, [0, 1]),
        (8.0, False, [0]),
        (30.0, False, [1]),
    ]


def test_nothing_is_waited_for_if_no_other_outage_can_begin():
    lines = OutageLines(gather_s=0.7)
    lines.add("write", changed(0, begins=True, at_s=1), NS_PER_S)
    assert [line.begins for line in lines.due(NS_PER_S, at_once=True)] == [True]


@given(
    changes=st.lists(
        st.tuples(st.integers(0, 300), st.sampled_from(["write", "read"]), st.integers(0, 3)), max_size=20
    ),
    rest_s=st.floats(0.5, 20),
)
def test_every_outage_is_told_once_when_it_begins_and_once_when_it_is_over(changes, rest_s):
    open_, played = set(), []
    for tenth, kind, partition in sorted(changes):
        begins = (kind, partition) not in open_
        (open_.add if begins else open_.discard)((kind, partition))
        played.append((tenth / 10, kind, partition, begins))
    lines = OutageLines(gather_s=0.7, rest_s=rest_s)
    told = [line for _, line in lines_until(lines, played, 32)] + lines.due(10**12, at_once=True)
    for begins in (True, False):
        wanted = {(kind, partition) for _, kind, partition, begun in played if begun is begins}
        assert {key for line in told if line.begins is begins for key in line.of} == wanted
        count = sum(len(line.of) for line in told if line.begins is begins)
        assert count <= sum(begun is begins for _, _, _, begun in played)


def test_of_several_partitions_it_is_told_who_leads_them_and_who_does_not_answer():
    view = {(TOPIC, 0): PartitionView(1, 4, (1, 2), (1,)), (TOPIC, 1): PartitionView(-1, 7, (2, 1), ())}
    text = describe_partitions(TOPIC, [0, 1], {1: view, 2: None}, min_in_sync=2)
    assert text == (
        "broker 2 does not answer from here; -0: broker 1 leads in epoch 4, in sync: 1; "
        "-1: nobody leads in epoch 7, in sync: nobody"
    )
    assert named_partitions(TOPIC, [2, 0]) == f"{TOPIC}-0, -2"


REFUSED = "sasl_ssl://localhost:9093/2: Connect to ipv4#127.0.0.1:9093 failed: Connection refused (after 0ms)"


def test_the_last_error_has_an_age_and_is_dropped_when_its_broker_answers_again():
    complaints = Complaints()
    complaints.heard(REFUSED, 10 * NS_PER_S)
    complaints.heard("3/3 brokers are down", 5 * NS_PER_S)
    assert complaints.last(13 * NS_PER_S) == f"{REFUSED} (3 s ago)"
    complaints.answered({1: {}, 2: None}, 11 * NS_PER_S)
    complaints.answered({1: {}, 2: {}}, 9 * NS_PER_S)  # asked before the error came
    assert complaints.last(13 * NS_PER_S).startswith(REFUSED)
    complaints.answered({1: {}, 2: {}, 3: None}, 14 * NS_PER_S)
    assert complaints.last(15 * NS_PER_S) == ""
    complaints.heard("Broker: Not enough in-sync replicas", 20 * NS_PER_S)
    complaints.answered({1: {}, 2: None}, 21 * NS_PER_S)
    assert complaints.last(22 * NS_PER_S) == "Broker: Not enough in-sync replicas (2 s ago)"
    complaints.answered({1: {}, 2: {}}, 23 * NS_PER_S)
    assert complaints.last(24 * NS_PER_S) == ""
