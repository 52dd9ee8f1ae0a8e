"""Where records were acknowledged that do not say themselves where they were sent."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from prozess.checkers.log.order import reordered
from prozess.checkers.log.records import misplaced
from prozess.harness.columns import row_dtype
from prozess.harness.history.convert import acknowledged_partitions, sent_to
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.schema import NONE, SENDS, Outcome, ReadFlag
from tests.support.small_runs import make_small


def sends_of(*rows):
    table = np.zeros(len(rows), dtype=row_dtype(SENDS))
    for row, (sequence, partition, outcome) in zip(table, rows, strict=True):
        row["sequence"], row["partition"], row["outcome"] = sequence, partition, outcome
    return table


def reads_of(*rows):
    """(sender, sequence, sent_partition, flags)"""
    names = ("sender", "sequence", "sent_partition", "flags")
    return {name: np.array([row[i] for row in rows], dtype=np.int64) for i, name in enumerate(names)}


def test_what_the_record_says_of_itself_stands_and_the_rest_is_as_it_was_acknowledged():
    partitions = acknowledged_partitions(
        {4: [sends_of((0, 2, Outcome.OK)), sends_of((1, 3, Outcome.OK), (2, 2, Outcome.INFO))]}
    )
    reads = reads_of(
        (4, 0, NONE, 0),
        (4, 1, NONE, 0),
        (4, 2, NONE, 0),  # an error names no partition
        (4, 9, NONE, 0),  # never reported
        (4, 0, 7, 0),
        (5, 0, NONE, 0),  # nobody's
        (0, 0, NONE, 0),  # a sentinel
        (4, 0, NONE, ReadFlag.CORRUPT),
        (4, NONE, NONE, 0),
    )
    assert sent_to(reads, partitions).tolist() == [2, 3, NONE, NONE, 7, NONE, NONE, NONE, NONE]


@given(
    sends=st.dictionaries(
        st.tuples(st.integers(1, 4), st.integers(0, 30)), st.tuples(st.integers(0, 3), st.sampled_from(list(Outcome)))
    ),
    reads=st.lists(
        st.tuples(st.integers(0, 6), st.integers(-1, 40), st.integers(-1, 3), st.sampled_from([0, 0, 1, 2]))
    ),
)
def test_it_is_what_a_dictionary_would_say(sends, reads):
    rows = {c: [sends_of(*((s, p, o) for (who, s), (p, o) in sends.items() if who == c))] for c in range(1, 5)}
    expected = [
        sends[sender, sequence][0]
        if said == NONE and flags == 0 and sends.get((sender, sequence), (0, Outcome.FAIL))[1] is Outcome.OK
        else said
        for sender, sequence, said, flags in reads
    ]
    assert sent_to(reads_of(*reads), acknowledged_partitions(rows)).tolist() == expected


def test_a_verifiable_producers_record_in_another_partition_than_was_acknowledged_is_misplaced(tmp_path):
    small = make_small(tmp_path / "run")
    trial = {"name": "v", "title": "v", "workload": "verifiable", "topics": {"partitions": 2}}
    plan = make_plan(parse_trial(trial, source="test"), seed=1)
    small.run.plan.write_text(plan.model_dump_json(), encoding="utf-8")
    producer = next(c.client for c in plan.clients if c.role == "verifiable-producer")
    reader = next(c.client for c in plan.clients if c.role == "reader")
    placed = [(0, 0, 0), (1, 1, 0), (2, 0, 1), (3, 1, 1)]  # sequence, partition, offset
    told = {"outcome": int(Outcome.OK), "invoked_ns": 1, "completed_ns": 2, "code": 0, "size": 3}
    small.send(producer, [{"sequence": s, "partition": p, "log_offset": o, **told} for s, p, o in placed])
    given = [
        *placed,
        (0, 1, 2),
        (4, 1, 3),
    ]  # the first again, in the other partition; and one that nobody was informed of
    shown = [
        {"sequence": s, "partition": p, "log_offset": o, "sender": producer, "flags": 0, "read_ns": 3, "span": 0}
        for s, p, o in given
    ]
    small.write("reads", reader, shown)
    history = small.history()
    first, second = (misplaced(history.partition_history(p)) for p in (0, 1))
    assert (first.count, second.count) == (0, 1)
    assert (second.witnesses["sequence"][0], second.witnesses["log_offset"][0]) == (0, 2)
    assert reordered(history.partition_history(1)).count == 0
