"""Outages of a watch: what is one, what is not, and what the metadata says of it."""

from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.app.watch.outages import OUTAGE_S, Silences, describe_partition
from prozess.harness.clock import NS_PER_S
from prozess.harness.interfaces import PartitionView

KEY = ("prozess-watch-x", 0)


def looked_at(since_s, until_s, silences, *, step_s=0.05, begin_s=0.0):
    """What is told if somebody looks every `step_s` from `begin_s` on while something has been awaited since `since_s`."""
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
