"""Which topic of a name a recorded row is about: by the controllers' log, by acknowledgements, and by what the audit read."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.harness.columns import row_dtype
from prozess.harness.history.topic_lives import OF_THE_LAST, TIME_OF, TopicLives
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.schema import MISSING, NONE, RECORDER_CLIENT, TABLES, MetadataKind, MetadataSource, Outcome

S = 1_000_000_000
ERROR_NS = S // 1000
DELETED_S, MADE_S = 10, 12
PLAN = make_plan(
    parse_trial(
        {
            "name": "x",
            "title": "t",
            "workload": "log",
            "topics": {"partitions": 1},
            "steps": [
                {"name": "gone", "do": {"kind": "delete_topics"}},
                {"name": "back", "do": {"kind": "make_topics", "settings": {"topic.partitions": 2}}},
            ],
        },
        source="x",
    ),
    seed=1,
)
FIRST, SECOND = 0, 1
"""The ids of partition 0 of the topic, and of the one that was made again."""
PRODUCER = next(c.client for c in PLAN.clients if c.role == "producer")
READER = next(c.client for c in PLAN.clients if c.role == "reader")
AUDIT = next(c.client for c in PLAN.clients if c.role == "audit")


def rows(table, *some):
    """Rows as a client records them. Times in seconds."""
    made = np.zeros(len(some), dtype=row_dtype(TABLES[table]))
    for column in TABLES[table].columns:
        made[column.name] = MISSING if column.unit == "ns" else NONE
    for row, columns in zip(made, some, strict=True):
        for name, value in columns.items():
            row[name] = round(value * S) if name.endswith("_ns") and value != MISSING else value
    return made


def state(at_s, kind, topic_id, position):
    return {
        "time_ns": at_s, "kind": kind, "source": MetadataSource.CONTROLLER_LOG, "partition": FIRST,
        "topic_id_high": 7, "topic_id_low": topic_id, "log_position": position, "leader": 1,
    }  # fmt: skip


METADATA = rows(
    "metadata",
    state(0, MetadataKind.PARTITION, 1, 10),
    state(DELETED_S, MetadataKind.DELETED, 1, 20),
    state(MADE_S, MetadataKind.PARTITION, 2, 30),
)


def send(sequence, invoked_s, completed_s=MISSING, offset=NONE):
    outcome = Outcome.INFO if completed_s == MISSING else Outcome.OK
    return {
        "invoked_ns": invoked_s, "completed_ns": completed_s, "sequence": sequence, "partition": FIRST,
        "log_offset": offset, "outcome": outcome,
    }  # fmt: skip


def read(sequence, at_s, offset):
    return {
        "read_ns": at_s, "sequence": sequence, "sender": PRODUCER, "partition": FIRST, "sent_partition": FIRST,
        "log_offset": offset,
    }  # fmt: skip


def lives(sends=(), reads=(), audited=(), metadata=METADATA):
    recorded = {
        "metadata": [(RECORDER_CLIENT, metadata)],
        "sends": [(PRODUCER, rows("sends", *sends))],
        "reads": [(READER, rows("reads", *reads)), (AUDIT, rows("reads", *audited))],
    }
    made = TopicLives(PLAN, lambda table: recorded[table], error_ns=ERROR_NS)

    def of(table, client):
        mine = next(found for writer, found in recorded[table] if writer == client)
        return made.rekeyed(TABLES[table], client, mine)

    of.given = lambda table, client, some: made.rekeyed(TABLES[table], client, some)
    return of


def test_each_topic_of_a_name_is_a_cell_and_clients_know_the_first_id_alone():
    assert [(c.life, c.topic_name, c.partitions) for c in PLAN.cells] == [
        (0, "cell-000", (0,)),
        (1, "cell-000", (1, 2)),
    ]
    assert PLAN.recorded == {("cell-000", 0): 0, ("cell-000", 1): 2}
    assert PLAN.nameless == {1}
    assert PLAN.before(1) == (0,)
    assert PLAN.before(2) == ()
    assert all({0, 1, 2} <= set(c.partitions) for c in PLAN.clients if c.role in ("producer", "reader", "audit"))


def led_anew(at_s):
    """The second topic gets another leader then."""
    another = {"leader": 2, "leader_epoch": 1, "log_position": 40}
    return np.concatenate([METADATA, rows("metadata", state(at_s, MetadataKind.PARTITION, 2, 40) | another)])


@pytest.mark.parametrize(
    ("late", "later", "metadata", "life"),
    [
        ((9.9, MADE_S + 0.1, 367), (MADE_S + 0.2, MADE_S + 0.3, 12), METADATA, FIRST),
        ((9.9, MADE_S + 0.1, 12), (MADE_S + 0.2, MADE_S + 0.3, 12), METADATA, FIRST),
        ((9.9, MADE_S + 0.1, 11), (MADE_S + 0.2, MADE_S + 0.3, 12), METADATA, SECOND),
        ((9.9, MADE_S + 0.1, 367), (MADE_S + 0.05, MADE_S + 0.3, 12), METADATA, SECOND),
        ((9.9, MADE_S + 1.1, 367), (MADE_S + 1.2, MADE_S + 1.3, 12), METADATA, SECOND),
        ((9.9, MADE_S + 0.1, 367), (MADE_S + 0.2, MADE_S + 0.3, 12), led_anew(MADE_S + 0.25), SECOND),
        ((9.9, MADE_S + 0.1, 367), (MADE_S + 0.2, MADE_S + 0.3, 12), led_anew(MADE_S + 5), FIRST),
        ((9.9, MADE_S + 0.1, NONE), (MADE_S + 0.2, MADE_S + 0.3, 12), METADATA, SECOND),
    ],
    ids=[
        "a lower offset was given later", "the same offset", "the log grew beyond it", "the two overlap", "long after",
        "another leader may have cut the log", "another leader came afterwards", "its offset is not known",
    ],
)  # fmt: skip
def test_an_offset_that_the_new_topic_reaches_only_later_is_of_the_topic_before(late, later, metadata, life):
    of = lives([send(0, *late), send(1, *later)], metadata=metadata)
    assert of("sends", PRODUCER)["partition"].tolist() == [life, SECOND]


def test_an_acknowledged_record_is_of_the_topic_that_was_there_when_it_was_acknowledged():
    of = lives([send(0, 5, 5.1, 3), send(1, 9.9, 11, 4), send(2, 9.9, 12.5, 0), send(3, 13, 13.1, 1)])
    assert of("sends", PRODUCER)["partition"].tolist() == [FIRST, FIRST, SECOND, SECOND]


def test_an_acknowledgement_within_the_clocks_error_of_the_new_topic_may_be_of_it():
    before = MADE_S - ERROR_NS / S
    of = lives([send(0, 11, before - 1e-4, 3), send(1, 11, before + 1e-4, 4)])
    assert of("sends", PRODUCER)["partition"].tolist() == [FIRST, SECOND]


@pytest.mark.parametrize(("invoked_s", "expected"), [(9, FIRST), (10.5, FIRST), (11.2, SECOND), (13, SECOND)])
def test_an_open_send_is_of_the_topic_that_it_can_have_met(invoked_s, expected):
    assert lives([send(0, invoked_s)])("sends", PRODUCER)["partition"].tolist() == [expected]


def test_an_open_send_that_shows_in_the_new_topic_was_written_to_it():
    of = lives([send(0, 9), send(1, 9), send(2, 9)], [read(1, 13, 1)], [read(0, 20, 0)])
    assert of("sends", PRODUCER)["partition"].tolist() == [SECOND, SECOND, FIRST]


def test_a_record_that_a_consumer_was_given_late_out_of_its_buffer_is_of_the_deleted_topic():
    sends = [send(0, 9, 9.1, 40), send(1, 13, 13.1, 0)]
    of = lives(sends, [read(0, 9.5, 40), read(0, 13, 40), read(1, 13.5, 0)], [read(1, 20, 0)])
    reads = of("reads", READER)
    assert reads["partition"].tolist() == [FIRST, FIRST, SECOND]
    assert reads["sent_partition"].tolist() == [FIRST, FIRST, SECOND]


def test_but_at_another_offset_it_was_read_from_the_new_topic_and_says_that_it_was_sent_to_the_old_one():
    sends = [send(0, 9, 9.1, 40)]
    of = lives(sends, [read(0, 13, 0)], [read(0, 20, 0)])
    for client in (READER, AUDIT):
        reads = of("reads", client)
        assert reads["partition"].tolist() == [SECOND]
        assert reads["sent_partition"].tolist() == [FIRST], "misplaced finds it"
    assert of("sends", PRODUCER)["partition"].tolist() == [FIRST]


def test_a_record_of_the_old_topic_that_the_audit_reads_at_its_old_offset_is_in_the_new_one():
    of = lives([send(0, 9, 9.1, 0)], [read(0, 13, 0)], [read(0, 20, 0)])
    assert of("reads", READER)["partition"].tolist() == [SECOND]
    assert of("reads", READER)["sent_partition"].tolist() == [FIRST]


def test_rows_of_the_controllers_log_go_by_their_topic_and_all_others_by_their_time():
    of = lives()
    assert of("metadata", RECORDER_CLIENT)["partition"].tolist() == [FIRST, FIRST, SECOND]


def test_where_the_topic_was_never_made_again_nothing_changes():
    of = lives([send(0, 13, 13.1, 0)], metadata=METADATA[:2])
    assert of("sends", PRODUCER)["partition"].tolist() == [FIRST]


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 3_000), st.booleans()), max_size=30))
def test_no_send_is_of_a_topic_that_it_cannot_have_met(drawn):
    sends = [
        send(n, at / 1000, at / 1000 + took / 1000 if acknowledged else MISSING, n if acknowledged else NONE)
        for n, (at, took, acknowledged) in enumerate(drawn)
    ]
    found = lives(sends)("sends", PRODUCER)
    ended_s = np.where(found["completed_ns"] == MISSING, np.inf, found["completed_ns"] / S)
    second = found["partition"] == SECOND
    assert (ended_s[second] >= MADE_S - ERROR_NS / S).all(), "nothing is acknowledged by a topic that is not there yet"
    assert (found["invoked_ns"][~second] / S <= MADE_S).all()
    assert (ended_s[~second & np.isfinite(ended_s)] < MADE_S).all()


def positions(*some):
    defaults = {"partition": FIRST, "span": 4, "log_offset": 70}
    return rows("positions", *(defaults | {"time_ns": at, "event": event} for at, event in some))


def test_a_span_of_reading_goes_on_in_the_next_topic_from_its_beginning():
    made = lives()
    found = made.given("positions", READER, positions((1, 1), (5, 2), (13, 3)))
    assert found["partition"].tolist() == [FIRST, FIRST, SECOND, SECOND]
    assert (found["time_ns"][2], found["log_offset"][2], found["span"][2]) == (MADE_S * S, 0, 4)


@pytest.mark.parametrize(("events", "expected"), [([(1, 1)], 2), ([(1, 1), (5, 2)], 2), ([(13, 1)], 1), ([], 0)])
def test_an_assignment_holds_for_each_topic_of_its_name_until_it_is_taken_away(events, expected):
    held = rows("assignments", *({"partition": FIRST, "started_ns": at, "done_ns": at, "event": e} for at, e in events))
    found = lives().given("assignments", READER, held)
    assert len(found) == expected
    if [event for _, event in events] == [1] and events[0][0] < MADE_S:
        assert found["partition"].tolist() == [FIRST, SECOND]
        assert found["done_ns"].tolist() == [S, MADE_S * S]


def of_group(reads=(), audited=(), **base):
    """The lives of a group's topic, and its member: what that one and the audit were given."""
    steps = [{"name": "gone", "do": {"kind": "delete_topics"}}, {"name": "back", "do": {"kind": "make_topics"}}]
    trial = {"name": "x", "title": "t", "workload": "group", "topics": {"partitions": 1}, "steps": steps}
    named = {f"group.{name}": value for name, value in base.items()}
    plan = make_plan(parse_trial(trial | {"base": named}, source="x"), seed=1)
    member = next(c.client for c in plan.clients if c.role == "member")
    audit = next(c.client for c in plan.clients if c.role == "audit")
    of_reads = [(member, rows("reads", *reads)), (audit, rows("reads", *audited))]
    recorded = {"metadata": [(RECORDER_CLIENT, METADATA)], "sends": [], "reads": of_reads}
    return TopicLives(plan, lambda table: recorded[table], error_ns=ERROR_NS), member


@pytest.mark.parametrize(
    ("reached", "end", "event", "reset", "expected"),
    [
        (61, 60, 3, "earliest", 1),
        (60, 60, 3, "earliest", 3),
        (59, 60, 3, "earliest", 3),
        (61, 60, 3, "latest", 3),
        (61, 60, 2, "earliest", 2),
        (None, 60, 3, "earliest", 3),
        (61, None, 3, "earliest", 3),
    ],
    ids=["beyond it", "at its end", "within it", "to the end", "sought", "nothing was read", "nobody audited"],
)
def test_a_member_begins_anew_in_the_next_topic_where_it_was_beyond_all_that_this_one_ever_held(
    reached, end, event, reset, expected
):
    made, member = of_group(
        reads=[] if reached is None else [read(1, 2, 5), read(2, 9, reached)],
        audited=[] if end is None else [read(3, 40, 0), read(4, 41, end)],
        auto_offset_reset=reset,
    )
    found = made.rekeyed(TABLES["positions"], member, positions((1, 1), (2, event)))
    assert found["partition"].tolist() == [FIRST, FIRST, SECOND]
    assert (found["event"][2], found["log_offset"][2]) == (expected, 0)


def test_a_member_that_went_back_in_the_topic_before_is_where_it_read_last():
    made, member = of_group(reads=[read(1, 2, 90), read(2, 9, 20)], audited=[read(4, 41, 60)])
    assert made.rekeyed(TABLES["positions"], member, positions((1, 3)))["event"].tolist() == [3, 3]


@pytest.mark.parametrize(("revoked_s", "protocol", "expected"), [
    (MADE_S + 1, "consumer", [FIRST, SECOND]),
    (MADE_S + 1, "classic-eager", [FIRST, SECOND, SECOND]),
    (MADE_S + 20, "consumer", [FIRST, SECOND, SECOND]),
])  # fmt: skip
def test_an_assignment_by_id_is_not_of_the_next_topic_if_it_is_taken_back_at_once(revoked_s, protocol, expected):
    made, member = of_group(protocol=protocol)
    events = [(1, 1), (revoked_s, 2)]
    held = rows("assignments", *({"partition": FIRST, "started_ns": at, "done_ns": at, "event": e} for at, e in events))
    assert made.rekeyed(TABLES["assignments"], member, held)["partition"].tolist() == expected


def test_of_every_table_it_is_known_which_topic_of_a_name_its_rows_are_of():
    named = {table.name for table in TABLES.values() if "partition" in table.column_names}
    planned = {"partitions"}
    assert named - planned == {"sends", "reads", *TIME_OF, *OF_THE_LAST}
