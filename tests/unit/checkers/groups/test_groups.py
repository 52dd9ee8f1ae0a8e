"""Kernels of consumer groups: each with the smallest bad history, and the one next to it that is good."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.checkers.groups.owners_and_commits import commit_ahead, commit_regression, orphaned, two_owners
from prozess.checkers.groups.processing import reprocessed, unprocessed
from prozess.harness.interfaces.witnesses import GroupCase
from prozess.harness.schema import MISSING, NONE, Outcome, Role
from tests.support.cells.evidence import state
from tests.support.cells.groups import LOST, REVOKE, A, B, S, cases, cell, client, commit, event, read, seen, span, step
from tests.support.cells.partitions import PARTITION, table
from tests.support.examples import examples

READER = 99

# --- unprocessed ----------------------------------------------------------------------------------------------------


def test_a_record_committed_past_and_never_processed_is_unprocessed():
    bad = cell(commits=[commit(A, 3, 1)], processed=[step(A, 0, 1.1), step(A, 1, 1.2)])
    found = unprocessed(bad)
    assert found.witnesses["log_offset"].tolist() == [2]
    assert cases(found) == [GroupCase.NO_CAUSE]
    assert found.judged == 3
    good = cell(commits=[commit(A, 2, 1)], processed=[step(A, 0, 1.1), step(A, 1, 1.2)])
    assert unprocessed(good).count == 0


def test_a_step_that_names_another_record_than_the_log_has_there_did_not_process_that_one():
    right = [step(A, 0, 1.1), step(A, 1, 1.2)]
    found = unprocessed(cell(commits=[commit(A, 2, 2)], processed=[right[0], step(A, 1, 1.2, sequence=3)]))
    assert (cases(found), found.judged) == ([GroupCase.MISTAKEN], 2)
    [witness] = found.witnesses
    assert (witness["log_offset"], witness["sequence"], witness["other_sequence"]) == (1, 1, 3)
    assert unprocessed(cell(commits=[commit(A, 2, 2)], processed=right)).count == 0
    for mended in (
        step(A, 1, 1.2, sequence=NONE),  # a program that does not say which record it was
        step(A, 77, 1.2, sequence=3),  # no record stands there
    ):
        assert unprocessed(cell(commits=[commit(A, 2, 2)], processed=[*right, mended])).count == 0
    again = [*right, step(B, 1, 1.3, sequence=3)]
    assert unprocessed(cell(commits=[commit(A, 2, 2)], processed=again)).count == 0, "one of the two is right"
    begun = [right[0], step(A, 1, 1.2, sequence=3, done=False)]
    assert cases(unprocessed(cell(commits=[commit(A, 2, 2)], processed=begun))) == [GroupCase.NO_CAUSE]


def test_a_position_that_a_member_was_committing_for_the_topic_before_is_of_that_topic():
    def made_at(at_s, *, life=1, **facts):
        given = cell(positions=[span(A, at_s, 0), span(B, 14, 3)], processed=[step(B, 3, 15)], **facts)
        made = table("metadata", [state(at_s, PARTITION, 1, 0, (1,))])
        partition = replace(given.partitions[PARTITION], metadata=made)
        return replace(given, cell=given.cell.model_copy(update={"life": life}), partitions={PARTITION: partition})

    late = {"commits": [commit(A, 3, 12.9, took_s=0.4), commit(B, 4, 16)]}
    assert cases(unprocessed(made_at(13, **late))) == [GroupCase.OF_ANOTHER_TOPIC] * 3
    assert cases(unprocessed(made_at(13, life=0, **late))) == [GroupCase.NO_CAUSE] * 3, "its name had no topic before"
    early = {"commits": [commit(A, 3, 12.5, took_s=0.4), commit(B, 4, 16)]}
    assert cases(unprocessed(made_at(13, **early))) == [GroupCase.NO_CAUSE] * 3, "answered before the topic was made"
    another = {"commits": [commit(A, 2, 12.9, took_s=0.4), commit(B, 4, 16)]}
    assert cases(unprocessed(made_at(13, **another))) == [GroupCase.NO_CAUSE] * 3, "another offset"
    given = {**late, "reads": [read(A, 1, 13.5), read(B, 3, 14.5)]}
    assert cases(unprocessed(made_at(13, **given))).count(GroupCase.OF_ANOTHER_TOPIC) == 1, (
        "0 is before what A was given"
    )
    elsewhere = {**late, "reads": [read(A, 2, 13.5)]}
    assert GroupCase.OF_ANOTHER_TOPIC not in cases(unprocessed(made_at(13, **elsewhere))), (
        "it went on from another offset"
    )


def test_an_offset_that_nobody_asked_for_was_committed_for_the_topic_before_it_was_made_again():
    """The member stands still: it was given nothing of the new topic, and only a look-up shows what the group has."""

    def case_of(invoked_s, *, offset=3, **group):
        commits = [] if group else [commit(A, offset, invoked_s, took_s=0.4)]
        given = cell(positions=[span(A, 13, 0)], commits=commits, observations=[seen(3, 90)], group=group or None)
        partition = replace(given.partitions[PARTITION], metadata=table("metadata", [state(13, PARTITION, 1, 0, (1,))]))
        again = given.cell.model_copy(update={"life": 1})
        return set(cases(unprocessed(replace(given, cell=again, partitions={PARTITION: partition}))))

    assert case_of(12.9) == {GroupCase.OF_ANOTHER_TOPIC}
    assert case_of(13.5) == {GroupCase.NO_CAUSE}, "the topic was there when the commit began"
    assert case_of(12.9, offset=2) == {GroupCase.NO_CAUSE}, "another offset"
    assert case_of(0, client="java", commit="auto") == {GroupCase.OF_ANOTHER_TOPIC}, "such commits are not recorded"


def test_a_mistaken_step_counts_wherever_the_group_has_committed():
    mistaken = [step(A, 0, 1.1), step(A, 2, 1.2, sequence=0)]
    found = unprocessed(cell(commits=[commit(A, 1, 2)], processed=mistaken))
    assert (cases(found), found.witnesses["log_offset"].tolist(), found.judged) == ([GroupCase.MISTAKEN], [2], 2)


def test_a_step_that_never_finished_has_processed_nothing_and_the_crash_is_told():
    facts = {"commits": [commit(A, 1, 1)], "reads": [read(A, 0, 0.9)], "clients": [client(A, killed=True), client(B)]}
    assert cases(unprocessed(cell(processed=[step(A, 0, 1.1, done=False)], **facts))) == [GroupCase.CRASHED]
    assert unprocessed(cell(processed=[step(A, 0, 1.1, done=False), step(B, 0, 9)], **facts)).count == 0


def test_what_a_member_had_in_hand_when_it_gave_the_partition_up_is_told_as_released():
    bad = cell(commits=[commit(A, 1, 1)], reads=[read(A, 0, 0.9)], assignments=[event(A, REVOKE, 2)])
    assert cases(unprocessed(bad)) == [GroupCase.RELEASED]


def test_a_look_up_counts_as_a_commit_that_nobody_recorded():
    assert unprocessed(cell(observations=[seen(2, 5)], processed=[step(A, 0, 1)])).count == 1
    assert unprocessed(cell(observations=[seen(1, 5)], processed=[step(A, 0, 1)])).count == 0


def test_latest_owes_nothing_before_its_first_position():
    positions = [span(A, 0, NONE), span(A, 1, 2, kind=3)]
    latest = cell(
        commits=[commit(A, 3, 2)], processed=[step(A, 2, 1)], positions=positions, group={"auto_offset_reset": "latest"}
    )
    assert unprocessed(latest).count == 0
    earliest = cell(commits=[commit(A, 3, 2)], processed=[step(A, 2, 1)], positions=positions)
    assert unprocessed(earliest).count == 2


def test_where_a_plain_reader_begins_says_nothing_about_the_group():
    facts = {"commits": [commit(A, 3, 2)], "processed": [step(A, 2, 1)], "group": {"auto_offset_reset": "latest"}}
    own = [span(A, 1, 2, kind=3)]
    of_reader = [span(READER, 0.5, 0), *own]
    clients = [client(A), client(B), {"client": READER, "role": Role.READER, "complete": 1, "exit_code": 0}]
    assert unprocessed(cell(positions=of_reader, clients=clients, **facts)).judged == 1
    assert unprocessed(cell(positions=[span(B, 0.5, 0), *own], **facts)).judged == 3, "a member's position counts"
    assert unprocessed(cell(positions=of_reader[:1], clients=clients, **facts)).judged == 0, (
        "the group has begun nowhere"
    )


def test_a_reset_of_a_plain_reader_jumps_over_nothing_for_the_group():
    facts = {"processed": [step(A, 0, 1), step(B, 3, 6)], "commits": [commit(A, 1, 2), commit(B, 4, 7)]}
    clients = [client(A), client(B), {"client": READER, "role": Role.READER, "complete": 1, "exit_code": 0}]
    of_reader = cell(positions=[span(A, 0, 0), span(READER, 6, 3, kind=3)], clients=clients, **facts)
    assert cases(unprocessed(of_reader)) == [GroupCase.NO_CAUSE, GroupCase.NO_CAUSE]
    of_member = cell(positions=[span(A, 0, 0), span(B, 6, 3, kind=3)], clients=clients, **facts)
    assert cases(unprocessed(of_member)) == [GroupCase.RESET, GroupCase.RESET]


def test_of_a_partition_that_was_added_latest_owes_what_came_before_its_discovery():
    facts = {
        "positions": [span(A, 0, NONE), span(A, 1, 2, kind=3)],
        "processed": [step(A, 2, 1), step(A, 3, 1.1)],
        "commits": [commit(A, 4, 2)],
        "group": {"auto_offset_reset": "latest"},
    }
    assert cases(unprocessed(cell(late=True, **facts))) == [GroupCase.RESET, GroupCase.RESET]
    assert unprocessed(cell(**facts)).count == 0


def test_what_a_reset_out_of_range_jumped_over_is_told_as_reset():
    facts = {
        "positions": [span(A, 0, 0), span(B, 5, 1), span(B, 6, 3, kind=3)],
        "processed": [step(A, 0, 1), step(B, 3, 6)],
        "commits": [commit(A, 1, 2), commit(B, 4, 7)],
        "group": {"auto_offset_reset": "latest"},
    }
    assert cases(unprocessed(cell(**facts))) == [GroupCase.RESET, GroupCase.RESET]


def test_what_a_member_had_in_hand_when_a_later_reset_jumped_over_it_is_told_as_reset():
    """It read 1, held it back, and left; what it had committed was deleted, and its successor began at the end."""
    facts = {
        "reads": [read(A, 0, 0.9), read(A, 1, 0.9)],
        "assignments": [event(A, REVOKE, 2)],
        "positions": [span(A, 0, 0), span(B, 5, 1), span(B, 6, 3, kind=3)],
        "processed": [step(A, 0, 1), step(B, 3, 6)],
        "group": {"auto_offset_reset": "latest"},
    }
    after = cell(commits=[commit(A, 1, 2), commit(B, 4, 7)], **facts)
    assert cases(unprocessed(after)) == [GroupCase.RESET, GroupCase.RESET]
    before = cell(commits=[commit(A, 2, 2), commit(B, 4, 7)], **facts)  # whoever commits past it has given it up
    assert cases(unprocessed(before)) == [GroupCase.RELEASED, GroupCase.RESET]


def test_who_is_told_that_there_is_no_position_owes_everything():
    facts = {
        "positions": [span(A, 0, NONE), span(A, 1, NONE, 1, kind=2)],
        "processed": [step(A, 1, 1), step(A, 2, 1)],
        "commits": [commit(A, 3, 2)],
    }
    assert unprocessed(cell(group={"auto_offset_reset": "error"}, **facts)).count == 1
    assert unprocessed(cell(group={"auto_offset_reset": "earliest"}, **facts)).judged == 0


def test_an_unfinished_audit_concludes_nothing_from_absence():
    assert unprocessed(cell(commits=[commit(A, 3, 1)], sentinel=None)).incomplete
    assert not unprocessed(cell(commits=[commit(A, 3, 1)])).incomplete


def test_a_group_that_commits_nothing_is_not_judged():
    assert unprocessed(cell(group={"commit": "none"})).judged == 0


# --- reprocessed ----------------------------------------------------------------------------------------------------


TWICE = [step(A, 0, 1), step(B, 0, 5)]
SPANS = [span(A, 0, 0), span(B, 4, 0)]


@pytest.mark.parametrize(
    ("facts", "case"),
    [
        ({"clients": [client(A, killed=True), client(B)]}, GroupCase.CRASHED),
        ({"assignments": [event(A, REVOKE, 2)]}, GroupCase.RELEASED),
        ({"assignments": [event(A, LOST, 8)]}, GroupCase.EVICTED),
        ({}, GroupCase.NO_CAUSE),
        ({"commits": [commit(A, 1, 2)], "assignments": [event(A, REVOKE, 3)]}, GroupCase.COVERED),
        ({"commits": [commit(A, 1, 2, took_s=3)], "assignments": [event(A, REVOKE, 3)]}, GroupCase.RELEASED),
        ({"commits": [commit(A, 0, 2)], "assignments": [event(A, REVOKE, 3)]}, GroupCase.RELEASED),
    ],
)
def test_why_a_record_was_processed_again(facts, case):
    found = reprocessed(cell(processed=TWICE, positions=SPANS, **facts))
    assert cases(found) == [case]
    assert (found.witnesses["reader"][0], found.witnesses["other_client"][0]) == (B, A)


@pytest.mark.parametrize(
    ("told", "case"),
    [
        ([event(A, REVOKE, 2)], GroupCase.RELEASED),
        ([event(A, REVOKE, 8)], GroupCase.EVICTED),
        ([event(B, REVOKE, 8)], GroupCase.NO_CAUSE),
        ([], GroupCase.NO_CAUSE),
    ],
)
def test_a_java_member_that_gave_up_after_its_successor_had_begun_had_lost_the_partition(told, case):
    """VerifiableConsumer reports lost partitions as revoked."""
    facts = {"processed": TWICE, "positions": SPANS, "assignments": told}
    assert cases(reprocessed(cell(group={"client": "java"}, **facts))) == [case]
    alike = {GroupCase.EVICTED: GroupCase.NO_CAUSE}.get(case, case)
    assert cases(reprocessed(cell(group={"client": "librdkafka"}, **facts))) == [alike]


def test_who_was_fenced_by_its_twin_had_lost_the_partition_and_ends_without_a_word_of_it():
    """Classic protocol: a fenced member goes on with what it was given before it is reported (KIP-345)."""
    twins = [client(A) | {"planned": 7, "exit_code": 3}, client(B) | {"planned": 7}]
    facts = {"processed": [step(B, 0, 4.5), step(A, 0, 5)], "positions": SPANS, "clients": twins}
    static = {"static_membership": True, "protocol": "classic-cooperative"}
    assert cases(reprocessed(cell(group=static, **facts))) == [GroupCase.EVICTED]
    refused = {"static_membership": True, "protocol": "consumer"}
    assert cases(reprocessed(cell(group=refused, **facts))) == [GroupCase.NO_CAUSE]
    others = facts | {"clients": [twins[0] | {"planned": 8}, twins[1]]}
    assert cases(reprocessed(cell(group=static, **others))) == [GroupCase.NO_CAUSE]


def test_a_lower_commit_under_way_may_have_undone_a_greater_one():
    """librdkafka sends what timed out again: an older commit may be written after a younger one was acknowledged."""
    unsure = commit(A, 0, 1.5) | {"outcome": int(Outcome.INFO), "completed_ns": MISSING}
    facts = {"positions": SPANS, "assignments": [event(A, REVOKE, 3)]}
    assert cases(reprocessed(cell(processed=TWICE, commits=[commit(A, 1, 2), unsure], **facts))) == [GroupCase.RELEASED]
    late = unsure | {"invoked_ns": 6 * S}
    assert cases(reprocessed(cell(processed=TWICE, commits=[commit(A, 1, 2), late], **facts))) == [GroupCase.COVERED]


def test_records_processed_once_or_begun_twice_are_no_repetition():
    assert reprocessed(cell(processed=[step(A, 0, 1), step(B, 1, 5)])).count == 0
    assert reprocessed(cell(processed=[step(A, 0, 1, done=False), step(B, 0, 5)])).count == 0


def test_within_one_span_nothing_excuses_a_repetition_and_a_seek_does():
    again = [step(A, 0, 1), step(A, 0, 2)]
    assert cases(reprocessed(cell(processed=again, assignments=[event(A, REVOKE, 1.5)]))) == [GroupCase.NO_CAUSE]
    sought = [step(A, 0, 1), step(A, 0, 2, span=1)]
    spans = [span(A, 0, 0), span(A, 1.5, 0, number_of=1, kind=2)]
    assert cases(reprocessed(cell(processed=sought, positions=spans))) == [GroupCase.SOUGHT]


def test_two_copies_of_a_record_in_the_log_are_told_apart():
    found = reprocessed(cell(processed=[step(A, 0, 1), step(A, 1, 2, sequence=0)]))
    assert cases(found) == [GroupCase.DUPLICATE]


def test_another_record_at_an_offset_that_the_log_gave_away_again_is_no_repetition():
    """After an unclean election. Seen: 282 offsets of a partition whose log had been cut, and no record processed twice."""
    before, after = (
        [step(A, offset, 1) for offset in range(3)],
        [step(A, offset, 9, sequence=7 + offset) for offset in range(3)],
    )
    assert reprocessed(cell(processed=[*before, *after])).count == 0
    assert reprocessed(cell(processed=[*before, *after, step(A, 1, 12)])).count == 1
    unnamed = step(A, 1, 9, sequence=NONE)
    assert reprocessed(cell(processed=[*before, unnamed])).count == 1, "nothing says that it is another one"


def test_a_step_that_does_not_say_which_record_it_was_is_of_the_one_at_its_offset_and_no_copy_of_others():
    silent = [step(A, 0, 1, sequence=NONE), step(A, 1, 2, sequence=NONE)]
    assert reprocessed(cell(processed=silent)).count == 0
    assert reprocessed(cell(processed=[*silent, step(B, 1, 3)])).count == 1


# --- commits --------------------------------------------------------------------------------------------------------


def test_a_commit_invoked_after_a_greater_one_was_acknowledged_is_a_regression():
    found = commit_regression(cell(commits=[commit(A, 5, 1), commit(B, 3, 2)]))
    assert found.witnesses[["log_offset", "other_offset", "reader"]].tolist() == [(3, 5, B)]
    assert commit_regression(cell(commits=[commit(A, 5, 1, took_s=2), commit(B, 3, 2)])).count == 0
    assert commit_regression(cell(commits=[commit(A, 3, 1), commit(B, 5, 2)])).count == 0
    assert commit_regression(cell(commits=[commit(A, 5, 1), commit(B, 3, 2, outcome=int(Outcome.INFO))])).count == 0


def test_a_seek_is_told_with_the_lower_commit():
    found = commit_regression(cell(commits=[commit(A, 5, 1), commit(A, 3, 3)], positions=[span(A, 2, 3, kind=2)]))
    assert cases(found) == [GroupCase.SOUGHT]


def test_who_goes_on_from_where_another_went_back_to_does_not_go_back():
    sought = [commit(A, 5, 1), commit(A, 2, 3)]
    assert (
        len(commit_regression(cell(commits=[*sought, commit(B, 3, 4)], positions=[span(A, 2, 3, kind=2)])).witnesses)
        == 1
    )
    assert commit_regression(cell(commits=[*sought, commit(B, 1, 4)], positions=[span(A, 2, 3, kind=2)])).count == 2
    refused = commit(A, 2, 3, outcome=int(Outcome.FAIL))
    assert commit_regression(cell(commits=[commit(A, 5, 1), refused, commit(B, 3, 4)])).count == 1


def test_a_look_up_below_an_acknowledged_commit_is_a_regression_unless_a_lower_one_explains_it():
    assert cases(commit_regression(cell(commits=[commit(A, 5, 1)], observations=[seen(3, 2)]))) == [GroupCase.OBSERVED]
    assert commit_regression(cell(commits=[commit(A, 5, 1)], observations=[seen(5, 2)])).count == 0
    assert commit_regression(cell(commits=[commit(A, 5, 1)], observations=[seen(3, 1.005)])).count == 0
    unsure = {"outcome": int(Outcome.INFO), "completed_ns": MISSING}
    assert (
        commit_regression(cell(commits=[commit(A, 5, 1), commit(B, 3, 1.5, **unsure)], observations=[seen(3, 2)])).count
        == 0
    )


def test_a_greater_commit_of_what_its_member_was_never_given_in_a_topic_made_again_is_of_the_topic_before():
    def found(*, life=1, reads=(), **tables):
        given = cell(commits=[commit(A, 5, 1, took_s=0.5), commit(B, 3, 2)], reads=reads, **tables)
        again = given.cell.model_copy(update={"life": life})
        return set(cases(commit_regression(replace(given, cell=again))))

    assert found() == {GroupCase.OF_ANOTHER_TOPIC}
    assert found(reads=[read(A, 3, 0.9)]) == {GroupCase.OF_ANOTHER_TOPIC}, "4 is in front of what was committed"
    assert found(reads=[read(A, 4, 1.6)]) == {GroupCase.OF_ANOTHER_TOPIC}, "after its acknowledgement"
    assert found(reads=[read(B, 4, 0.9)]) == {GroupCase.OF_ANOTHER_TOPIC}, "another member"
    assert found(reads=[read(A, 4, 0.9)]) == {GroupCase.NO_CAUSE}
    assert found(life=0) == {GroupCase.NO_CAUSE}, "its name had no topic before"
    asked = {"commits": [commit(A, 5, 1)], "observations": [seen(3, 2)]}
    again = cell(**asked).cell.model_copy(update={"life": 1})
    assert cases(commit_regression(replace(cell(**asked), cell=again))) == [GroupCase.OF_ANOTHER_TOPIC]
    given = cell(**asked, reads=[read(A, 4, 0.9)])
    assert cases(commit_regression(replace(given, cell=again))) == [GroupCase.OBSERVED]


def test_a_commit_beyond_the_members_own_position_is_ahead():
    assert commit_ahead(cell(commits=[commit(A, 5, 1, position=4)])).count == 1
    assert commit_ahead(cell(commits=[commit(A, 5, 1, position=5)])).count == 0
    assert commit_ahead(cell(commits=[commit(A, 5, 1, position=NONE)])).judged == 0


# --- against a model ------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 30), st.integers(1, 9), st.sampled_from([A, B])), max_size=12)
)
@settings(max_examples=examples(100), deadline=None)
def test_regressions_are_what_the_definition_says(rows):
    commits = [commit(who, offset, at, took_s=took) for offset, at, took, who in rows]
    expected = 0
    for one in commits:
        before = [other for other in commits if other["completed_ns"] < one["invoked_ns"]]
        greatest = max((other["log_offset"] for other in before), default=0)
        reached_ns = min((o["completed_ns"] for o in before if o["log_offset"] == greatest), default=0)
        as_low = [o for o in commits if o["completed_ns"] > reached_ns and o["invoked_ns"] < one["invoked_ns"]]
        expected += greatest > one["log_offset"] and all(o["log_offset"] > one["log_offset"] for o in as_low)
    assert commit_regression(cell(commits=commits, observations=[])).count == expected


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 40), st.sampled_from([A, B]), st.sampled_from([NONE, 20, 21, 22])),
        max_size=15,
    )
)
@settings(max_examples=examples(100), deadline=None)
def test_repetitions_are_all_finished_steps_but_the_first_of_each_record_of_an_offset(rows):
    steps = [
        step(who, offset, at, sequence=sequence + offset if sequence > 0 else NONE)
        for offset, at, who, sequence in rows
    ]
    unnamed = {offset for offset, _, _, sequence in rows if sequence == NONE}
    records = {(offset, NONE if offset in unnamed else sequence) for offset, _, _, sequence in rows}
    found = reprocessed(cell(processed=steps))
    again = found.witnesses["case"] != GroupCase.DUPLICATE
    assert int(again.sum()) == len(rows) - len(records)


def test_empty_tables_crash_nothing():
    for kernel in (unprocessed, reprocessed, commit_regression, commit_ahead, two_owners, orphaned):
        assert kernel(cell(records=0, clients=(), positions=(), heartbeats=())).count == 0
