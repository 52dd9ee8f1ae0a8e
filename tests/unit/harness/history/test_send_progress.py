"""Counting the rows of producers while they are written gives the same as counting them all at the end."""

from collections import Counter
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.harness.history.progress import SendsTail, progress_of
from prozess.harness.interfaces import Progress
from prozess.harness.recording.rows import FIRST_SEGMENT_ROWS, RowWriter
from prozess.harness.schema import MISSING, NONE, SENDS, Outcome

PARTITIONS = 3


def row(sequence, partition, outcome=Outcome.INFO, completed_ns=MISSING):
    values = {
        "invoked_ns": 1,
        "completed_ns": completed_ns,
        "log_offset": NONE,
        "sequence": sequence,
        "transaction": NONE,
        "key": NONE,
        "partition": partition,
        "outcome": int(outcome),
        "code": 0,
        "size": 100,
    }
    return tuple(values[column.name] for column in SENDS.columns)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("issue"), st.integers(1, 6000)),
        st.tuples(st.just("complete"), st.sampled_from(Outcome), st.integers(0, 10_000)),
        st.tuples(st.just("look")),
    ),
    max_size=12,
)


@settings(deadline=None, max_examples=30)
@given(steps=STEPS)
def test_progress_is_the_count_of_the_rows_whenever_it_looks(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("rows")
    writer, tail = RowWriter(path, SENDS, 1), SendsTail(path, 1, PARTITIONS)
    issued: Counter[int] = Counter()
    outcomes: dict[int, Outcome] = {}
    for step in [*steps, ("look",)]:
        if step[0] == "issue":
            for _ in range(step[1]):
                issued[writer.count % PARTITIONS] += 1
                writer.append(*row(writer.count, writer.count % PARTITIONS))
        elif step[0] == "complete" and step[2] < writer.count and step[2] not in outcomes:
            outcomes[step[2]] = step[1]
            writer.rewrite(step[2], *row(step[2], step[2] % PARTITIONS, step[1], completed_ns=5))
        elif step[0] == "look":
            tail.advance()
            counted = Counter((sequence % PARTITIONS, outcome) for sequence, outcome in outcomes.items())
            assert progress_of([tail], dead=(), partitions=PARTITIONS) == {
                p: Progress(
                    issued=issued[p],
                    ok=counted[p, Outcome.OK],
                    failed=counted[p, Outcome.FAIL],
                    info=counted[p, Outcome.INFO],
                )
                for p in range(PARTITIONS)
            }


def test_what_a_dead_client_left_open_is_info_and_what_a_living_one_did_is_in_flight(tmp_path):
    for client in (1, 2):
        writer = RowWriter(tmp_path, SENDS, client)
        for sequence in range(FIRST_SEGMENT_ROWS + 10):
            writer.append(*row(sequence, 0))
        writer.rewrite(0, *row(0, 0, Outcome.OK, completed_ns=5))
    tails = [SendsTail(tmp_path, client, 1) for client in (1, 2)]
    for tail in tails:
        tail.advance()
    total = FIRST_SEGMENT_ROWS + 10
    expected = Progress(issued=2 * total, ok=2, failed=0, info=total - 1)
    assert progress_of(tails, dead=[1], partitions=1) == {0: expected}


def test_an_ended_clients_counts_stay_and_its_files_are_let_go(tmp_path):
    writer = RowWriter(tmp_path, SENDS, 1)
    for sequence in range(FIRST_SEGMENT_ROWS + 10):
        writer.append(*row(sequence, 0))
    tail = SendsTail(tmp_path, 1, 1)

    def mapped() -> int:
        return sum(Path(link).resolve().name.startswith("sends.1.") for link in Path("/proc/self/fd").iterdir())

    tail.advance()
    with_tail = mapped()
    writer.rewrite(0, *row(0, 0, Outcome.OK, completed_ns=5))
    tail.end()
    assert mapped() == with_tail - 2
    tail.end()
    tail.advance()
    total = FIRST_SEGMENT_ROWS + 10
    assert progress_of([tail], dead=[0], partitions=1) == {0: Progress(issued=total, ok=1, failed=0, info=total - 1)}


def test_a_client_that_wrote_nothing_yet_has_no_progress(tmp_path):
    tail = SendsTail(tmp_path, 1, 1)
    tail.advance()
    assert progress_of([tail], dead=(), partitions=1) == {0: Progress(issued=0, ok=0, failed=0, info=0)}
