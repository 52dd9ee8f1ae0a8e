"""`not-exactly-once` on hand-written cells, and against a count by hand: each case is found, and not the near miss."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.checkers.transactions.exactly_once import not_exactly_once
from prozess.harness.columns import empty_rows
from prozess.harness.config.configuration import (
    ApplicationConfiguration,
    CopierConfiguration,
    ProducerConfiguration,
    TopicConfiguration,
)
from prozess.harness.interfaces.checking import CellHistory, KernelResult
from prozess.harness.interfaces.witnesses import CopyCase
from prozess.harness.plan.cell_work import ApplicationWork, CopierWork
from prozess.harness.plan.plan import Cell
from prozess.harness.schema import NONE, OBSERVATIONS, ORIGIN_SEQUENCE_BITS, ObservationKind, Role
from tests.support.cells.partitions import CLIENTS, OK, PRODUCER, PRODUCER_2, history

SOURCE, COPY = 3, 4
OBSERVER = CLIENTS
CELL = Cell(
    cell=0,
    name="cell",
    workload="exactly-once",
    topic_name="cell-000",
    axes={},
    topic=TopicConfiguration(),
    producer=ProducerConfiguration(enable_idempotence=True),
    work=CopierWork(configuration=CopierConfiguration()),
    partitions=(SOURCE, COPY),
    derived_topic_name="cell-000-copy",
    derived=(COPY,),
)
BY_CONTENT = CELL.model_copy(
    update={
        "work": ApplicationWork(configuration=ApplicationConfiguration(command=("copy",))),
        "workload": "application",
    }
)


def origin(sequence: int) -> int:
    return PRODUCER << ORIGIN_SEQUENCE_BITS | sequence


def cell_of(
    source: Sequence[int],
    copies: Sequence[int],
    *,
    committed: int | None = None,
    cell: Cell = CELL,
    whole: tuple[bool, bool] = (True, True),
) -> CellHistory:
    """`source`: sequences in the log; `copies`: `origin` of what stands in V of the derived topic; `committed`: None =
    not reported. By content, both are digests. `whole`: did the audit get through each topic?"""
    by_content = cell is BY_CONTENT
    log = [(n, PRODUCER, n if by_content else s, {"origin": s if by_content else NONE}) for n, s in enumerate(source)]
    sends = [(PRODUCER, n if by_content else s, OK, n) for n, s in enumerate(dict.fromkeys(source))]
    copied = [(n, PRODUCER_2, n, {"origin": key}) for n, key in enumerate(copies)]
    parts = {
        SOURCE: history(sends=sends, log=log, sentinel=len(log) if whole[0] else None),
        COPY: history(log=copied, sentinel=len(copied) if whole[1] else None),
    }
    role_of = np.append(parts[SOURCE].client_role, np.int32(Role.OBSERVER))
    parts = {number: replace(part, partition=number, client_role=role_of) for number, part in parts.items()}
    told = [] if committed is None else [{"value": committed, "client": OBSERVER}]
    # A member's own look-up, later and higher, is not the final one.
    told.append({"value": 10**6, "client": PRODUCER, "time_ns": 9_999})
    return CellHistory(cell=cell, partitions=parts, tables={"observations": observations(told)}, clients=())


def observations(rows: Sequence[Mapping[str, int]]) -> dict[str, np.ndarray]:
    basis = {"partition": SOURCE, "kind": int(ObservationKind.COMMITTED), "time_ns": 5_000}
    return {
        name: np.array([(basis | dict(row)).get(name, NONE) for row in rows], dtype=empty.dtype)
        for name, empty in empty_rows(OBSERVATIONS).items()
    }


def found(result: KernelResult) -> Counter[CopyCase]:
    assert result.count == len(result.witnesses)
    return Counter(CopyCase(case) for case in result.witnesses["case"].tolist())


def test_every_record_copied_once_is_nothing_to_report():
    result = not_exactly_once(cell_of([0, 1, 2], [origin(1), origin(0), origin(2)], committed=3))
    assert (result.count, result.judged, result.incomplete) == (0, 6, None)


def test_a_record_below_the_committed_offset_without_a_copy_is_missing():
    result = not_exactly_once(cell_of([0, 1, 2], [origin(0), origin(2)], committed=3))
    (witness,) = result.witnesses
    assert witness["case"] == CopyCase.MISSING
    assert [witness[n] for n in ("partition", "client", "sequence", "log_offset", "other_offset")] == [
        SOURCE,
        PRODUCER,
        1,
        1,
        3,
    ]


def test_what_is_not_committed_yet_may_lack_a_copy_and_leaves_the_finding_incomplete():
    result = not_exactly_once(cell_of([0, 1, 2], [origin(0)], committed=1))
    assert result.count == 0
    assert result.incomplete is not None
    assert "2 records of partition 3 are not committed" in result.incomplete


def test_a_second_copy_is_found_wherever_it_stands_and_names_the_first():
    result = not_exactly_once(cell_of([0, 1], [origin(0), origin(1), origin(0)], committed=2))
    (witness,) = result.witnesses
    assert [witness[n] for n in ("case", "partition", "log_offset", "other_offset")] == [CopyCase.REPEATED, COPY, 2, 0]


def test_a_second_copy_of_what_was_not_committed_is_found_too():
    assert found(not_exactly_once(cell_of([0, 1], [origin(0), origin(1), origin(1)], committed=1))) == {
        CopyCase.REPEATED: 1
    }


def test_a_source_record_that_stands_twice_may_have_two_copies_and_not_one():
    assert not not_exactly_once(cell_of([0, 0], [origin(0), origin(0)], committed=2)).count
    assert found(not_exactly_once(cell_of([0, 0], [origin(0)], committed=2))) == {CopyCase.MISSING: 1}


def test_what_is_no_copy_of_anything_is_strange():
    assert found(not_exactly_once(cell_of([0], [origin(0), origin(7), NONE], committed=1))) == {CopyCase.STRANGE: 2}


@pytest.mark.parametrize("whole", [(False, True), (True, False)])
def test_without_a_complete_audit_only_repetitions_stand(whole):
    result = not_exactly_once(cell_of([0, 1], [origin(0), origin(0), origin(5)], committed=2, whole=whole))
    assert found(result) == {CopyCase.REPEATED: 1}
    assert result.incomplete is not None
    assert "did not reach its sentinel" in result.incomplete


def test_without_the_final_committed_offset_nothing_is_missing_and_nothing_is_certain():
    result = not_exactly_once(cell_of([0, 1], [origin(0)]))
    assert result.count == 0
    assert result.incomplete == "the group's committed offset of partition 3 was not looked up at the end"


def test_a_group_that_committed_nothing_leaves_nothing_judged_below_and_is_incomplete():
    result = not_exactly_once(cell_of([0, 1], [], committed=NONE))
    assert (result.count, result.judged) == (0, 0)
    assert result.incomplete is not None


def test_contents_are_compared_as_multisets():
    assert not not_exactly_once(cell_of([50, 50, 60], [60, 50, 50], committed=3, cell=BY_CONTENT)).count
    result = not_exactly_once(cell_of([50, 50, 60], [50, 60, 60, 70], committed=3, cell=BY_CONTENT))
    assert found(result) == {CopyCase.MISSING: 1, CopyCase.REPEATED: 1, CopyCase.STRANGE: 1}


@settings(deadline=None)
@given(
    source=st.lists(st.integers(0, 6), max_size=12),
    copies=st.lists(st.integers(0, 8), max_size=14),
    committed=st.integers(-1, 12),
)
def test_the_kernel_agrees_with_counting_by_hand(source, copies, committed):
    result = not_exactly_once(cell_of(source, copies, committed=committed, cell=BY_CONTENT))
    below, every, there = Counter(source[: max(0, committed)]), Counter(source), Counter(copies)
    expected = {
        CopyCase.MISSING: sum((below - there).values()),
        CopyCase.REPEATED: sum(max(0, n - every[key]) for key, n in there.items() if every[key]),
        CopyCase.STRANGE: sum(n for key, n in there.items() if not every[key]),
    }
    assert found(result) == Counter({case: n for case, n in expected.items() if n})
    assert (result.incomplete is None) == (max(0, committed) >= len(source))  # nothing sent: nothing left
