"""What happened around a record: every kind of event says who, what and when, and nothing that did not happen."""

import numpy as np
import pytest

from prozess.harness.report import stories
from prozess.harness.report.server_logs import ServerLogs
from prozess.harness.report.stories import EVENTS_MAX, Event, Story, StoryWriter, Subject, _fewer, brokers_of
from prozess.harness.report.words import ROWS_LEAST, rows_each, seen_groups, tallies
from prozess.harness.schema import MISSING, NONE, TABLES
from prozess.harness.verdict import AnomalyOutcome, CellAnomaly, CellVerdict, TrialVerdict, Verdict, WitnessShown
from tests.support.cells.partitions import FAIL, INFO, OK, PRODUCER, PRODUCER_ACKS_0, READER, read_row, send_row
from tests.support.small_runs import START_NS, make_small

S = 1_000_000_000
AUDITOR = 99


def name(client):
    return f"client {client}"


def table(kind, rows):
    """Columns of rows; what a row does not say is NONE."""
    names = ["client", *(column.name for column in TABLES[kind].columns)]
    return {column: np.array([row.get(column, NONE) for row in rows], dtype=np.int64) for column in names}


def texts(events):
    return [event.text for event in events]


def sent(outcomes):
    """One send per outcome, a second apart."""
    return table("sends", [send_row(PRODUCER, n, outcome, n, n * S) for n, outcome in enumerate(outcomes)])


def test_a_send_is_shown_with_its_answer_and_two_neighbours_on_each_side():
    events = list(stories.sends(sent([OK] * 9), [Subject(PRODUCER, 4, 4)], frozenset(), name))
    assert [event.text.split("#")[1][0] for event in events if event.kind == "sent"] == ["2", "3", "4", "5", "6"]
    assert [event.main for event in events if event.kind == "sent"] == [False, False, True, False, False]
    assert "client 1 learns after 0 ms that #4 is acknowledged at offset 4" in texts(events)
    pairs = [event.pair for event in events]
    assert all(pairs.count(pair) == 2 for pair in pairs)


@pytest.mark.parametrize(
    ("outcome", "kind", "said"),
    [(FAIL, "refused", "certainly failed"), (INFO, "unknown", "may have taken effect")],
)
def test_a_send_that_failed_says_whether_that_is_certain(outcome, kind, said):
    rows = sent([outcome]) | {"code": np.array([-192])}
    _, answer = stories.sends(rows, [Subject(PRODUCER, 0, NONE)], frozenset(), name)
    assert answer.kind == kind
    assert said in answer.text


def test_a_send_that_was_never_answered_says_so_and_has_no_answer():
    rows = sent([INFO]) | {"completed_ns": np.array([MISSING])}
    (only,) = stories.sends(rows, [Subject(PRODUCER, 0, NONE)], frozenset(), name)
    assert only.text == "client 1 sends #0, and is never answered"


def test_a_send_that_failed_without_an_error_was_aborted_with_its_transaction():
    _, answer = stories.sends(sent([FAIL]), [Subject(PRODUCER, 0, NONE)], frozenset(), name)
    assert answer.text == "client 1 learns after 0 ms that the transaction of #0 is aborted"


def test_nobody_acknowledges_a_send_with_acks_0():
    rows = sent([OK])
    _, answer = stories.sends(rows, [Subject(PRODUCER, 0, NONE)], frozenset({PRODUCER}), name)
    assert answer.kind == "unknown"
    assert "no broker answers" in answer.text


def test_whoever_is_given_another_record_at_the_offset_is_shown_too():
    given = table("reads", [read_row(READER, 7, PRODUCER, 3, S), read_row(READER, 8, PRODUCER_ACKS_0, 1, 2 * S)])
    events = list(stories.reads(given, [Subject(PRODUCER, 9, 8)], [], None, name))
    assert texts(events) == ["client 11 reads #1 of client 4 at offset 8"]
    assert events[0].main


def test_a_reader_that_skipped_an_offset_is_shown_with_what_it_was_given_around_it():
    given = table("reads", [read_row(READER, offset, PRODUCER, offset, offset * S) for offset in (0, 1, 2, 6, 7, 8)])
    events = list(stories.reads(given, [], [4], READER, name))
    assert [event.text.rsplit(" ", 1)[1] for event in events] == ["1", "2", "6", "7", "8"]


def test_what_the_audit_did_not_find_is_told_and_what_it_found_is_not():
    given = table("reads", [read_row(AUDITOR, 5, PRODUCER, 1, S)])
    subjects = [Subject(PRODUCER, 1, 5), Subject(PRODUCER, 2, 6)]
    (absent,) = stories.absences(given, subjects, [AUDITOR, 98], name)
    assert absent.text == "client 99 has read everything up to offset 5 and has not found #2 of client 1"


def test_leaders_are_shown_from_before_the_beginning_on():
    rows = [
        {"time_ns": n * 10 * S, "leader": leader, "leader_epoch": n, "isr": isr}
        for n, (leader, isr) in enumerate([(1, 0b1110), (2, 0b0100), (NONE, 0), (3, 0b1000)])
    ]
    events = stories.leaders(table("metadata", rows), 12.0, 25.0)
    assert texts(events) == ["broker 2 leads, epoch 1; in sync: 2", "nobody leads, epoch 2; in sync: none"]


def test_replicas_with_the_same_batch_are_told_together_and_another_batch_apart():
    rows = [
        {"node": node, "base_offset": 0, "last_offset": end, "checksum": checksum, "leader_epoch": 3, "read_ns": S}
        for node, end, checksum in ((1, 9, 5), (2, 9, 5), (3, 9, 6), (4, 4, 5))
    ]
    (event,) = stories.copies(table("replicas", rows), 7)
    assert "brokers 1 2: a batch of epoch 3; broker 3: another batch of epoch 3; broker 4: nothing" in event.text
    assert "(the log ends at 5)" in event.text
    assert not list(stories.copies(table("replicas", []), 7))


def test_a_record_that_nobody_processed_is_told_only_where_others_were():
    rows = table("processed", [{"client": 20, "sender": PRODUCER, "sequence": 1, "log_offset": 1, "started_ns": S}])
    rows["done_ns"] = np.array([MISSING])
    assert texts(stories.processing(rows, [Subject(PRODUCER, 1, 1)], name)) == [
        "client 20 processes #1 of client 1, offset 1, but does not finish"
    ]
    (absent,) = stories.processing(rows, [Subject(PRODUCER, 2, 2)], name)
    assert (absent.kind, absent.at_s) == ("absent", 1.0)
    assert not list(stories.processing(table("processed", []), [Subject(PRODUCER, 2, 2)], name))


def test_a_transaction_is_shown_from_its_begin_to_what_its_client_was_told():
    rows = sent([OK]) | {"transaction": np.array([7])}
    told = {"client": PRODUCER, "transaction": 7, "begun_ns": S, "end_invoked_ns": 2 * S, "completed_ns": 3 * S}
    events = list(
        stories.transactions(
            table("transactions", [told | {"ended_by": 2, "outcome": OK}]), rows, [Subject(PRODUCER, 0, 0)], name
        )
    )
    assert texts(events) == [
        "client 1 begins transaction 7",
        "client 1 aborts transaction 7",
        "client 1 is reported: transaction 7 has ended",
    ]


def test_of_very_many_events_those_about_the_witness_stay():
    events = [Event(float(n), "log", "read", str(n), main=n == 0) for n in range(200)]
    kept = _fewer(events, 150.0, 160.0)
    assert len(kept) == EVENTS_MAX
    assert {"0", "155"} <= {event.text for event in kept}


def test_a_lane_that_is_not_drawn_has_no_place():
    assert Story("", ("faults", "log"), ()).lane("log") == 1
    assert Story("", ("faults", "log"), ()).lane("reader 3") == -1


def test_brokers_of_a_mask():
    assert brokers_of(0b1010) == [1, 3]
    assert brokers_of(0) == []


def cell(number, outcome, rule, count=1):
    shown = WitnessShown(partition=0, topic="t", number=0, client=1, sequence=1, effect="permitted", rule=rule)
    anomaly = CellAnomaly(
        anomaly="lost", outcome=outcome, verdict=Verdict.HELD, count=count, witnesses=(shown,) if count else ()
    )
    return CellVerdict(
        cell=number, name=f"c{number}", workload="log", axes={}, verdict=Verdict.HELD, anomalies={"lost": anomaly}
    )


def test_cells_with_the_same_outcome_by_the_same_rule_are_told_together_the_worst_first():
    cells = (
        cell(0, AnomalyOutcome.PERMITTED, "lost/a", 3),
        cell(1, AnomalyOutcome.VIOLATED, "lost/forbidden"),
        cell(2, AnomalyOutcome.PERMITTED, "lost/a", 4),
        cell(3, AnomalyOutcome.PERMITTED, "lost/b"),
        cell(4, AnomalyOutcome.HELD, "", 0),
    )
    verdict = TrialVerdict(verdict=Verdict.HELD, sentence="", trial="t", title="", seed=1, cells=cells)
    groups = seen_groups(verdict)
    assert [(g.rule, [c.cell for c, _ in g.pairs], g.count) for g in groups] == [
        ("lost/forbidden", [1], 1),
        ("lost/a", [0, 2], 7),
        ("lost/b", [3], 1),
    ]
    tally = tallies(verdict)["lost"]
    assert (tally.cells[AnomalyOutcome.PERMITTED], tally.seen, tally.quiet) == (3, 9, False)


def test_a_group_of_anomalies_is_named_with_what_permits_it():
    cells = (
        cell(0, AnomalyOutcome.PERMITTED, "lost/acks-0"),
        cell(1, AnomalyOutcome.PERMITTED, "lost/acks-1"),
        cell(2, AnomalyOutcome.VIOLATED, "lost/forbidden"),
    )
    verdict = TrialVerdict(verdict=Verdict.HELD, sentence="", trial="t", title="", seed=1, cells=cells)
    assert [group.name for group in seen_groups(verdict)] == ["lost", "lost (acks=0)", "lost (acks=1)"]


def test_the_more_cells_there_are_the_fewer_witnesses_each_shows():
    assert rows_each(0) >= rows_each(20) > rows_each(1000) == ROWS_LEAST


def test_what_was_done_to_messages_is_told_with_the_api_and_its_error():
    rows = [
        {
            "time_ns": 2 * S,
            "partition": 1,
            "sender": 5,
            "api": 0,
            "answer": 1,
            "error": 0,
            "first_sequence": 7,
            "did": 0,
        },
        {"time_ns": 3 * S, "partition": NONE, "sender": 5, "api": 26, "answer": 0, "error": NONE, "did": 1},
        {"time_ns": 3 * S, "partition": 1, "sender": NONE, "api": 1, "answer": 1, "error": 6, "did": 2},
        {"time_ns": 3 * S, "partition": 2, "sender": 5, "api": 0, "answer": 0, "error": NONE, "did": 0},
        {"time_ns": 9 * S, "partition": 1, "sender": 5, "api": 0, "answer": 0, "error": NONE, "did": 0},
    ]
    told = stories.messages(
        table("messages", rows),
        ["lose", "delivered", "answer"],
        frozenset({5}),
        1,
        lambda client: f"producer {client}",
        (1.0, 5.0),
    )
    assert [event.text for event in told] == [
        "the answer to a Produce request of producer 5, first sequence 7: lost",
        "an EndTxn request of producer 5: sent on after it was held",
        "the answer to a Fetch request, NOT_LEADER_OR_FOLLOWER: answered with an error",
    ]


def test_a_witness_about_a_controller_is_the_story_of_its_partition_and_of_no_client(tmp_path):
    small = make_small(tmp_path / "run")
    small.send(1, [{"partition": 0, "sequence": 3, "begin_ns": START_NS, "end_ns": START_NS + 1, "log_offset": 0}])
    writer = StoryWriter(small.history(), (), ServerLogs(small.run, ()))
    shared = {
        "partition": 0,
        "topic": "t",
        "number": 0,
        "begin_s": 0.0,
        "end_s": 1.0,
        "effect": "forbidden",
        "rule": "r",
    }
    stale = writer.story_of(WitnessShown(client=3001, sequence=3, **shared))
    lost = writer.story_of(WitnessShown(client=1, sequence=3, **shared))
    assert stale is not None
    assert lost is not None
    assert lost.title == f"#3 of producer 1 in {stale.title}"
