"""share-start-regression: the start offset of a share group went back."""

import numpy as np

from prozess.harness.columns import rows_of
from prozess.harness.interfaces.checking import CellHistory, KernelResult
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, join_witnesses, make_witnesses
from prozess.harness.schema import NONE, ObservationKind


def share_start_regression(history: CellHistory) -> KernelResult:
    """The start offset of a share group never goes back.

    Source: KIP-932, "Share-partition": the start offset advances as records are finished. Judged are two answers to one
    member, which asked for the second after it had the first. Witness: `log_offset` at `end_ns`, and `other_offset` before,
    at `other_ns`, both as `reader` was answered. O(n log n).

    Example: a member is answered 3, 7, 5: one witness. Two members that are answered 7 and 5 show nothing: the second may
    have asked first.
    """
    found, judged = [], 0
    for number in history.partitions:
        table = history.tables["observations"]
        rows = rows_of(table, number)
        rows = rows[(table["kind"][rows] == ObservationKind.SHARE_START.value) & (table["value"][rows] != NONE)]
        rows = rows[np.lexsort((rows, table["time_ns"][rows], table["client"][rows]))]
        judged += len(rows)
        one, other = rows[:-1], rows[1:]
        fell = (table["client"][one] == table["client"][other]) & (table["value"][other] < table["value"][one])
        one, other = one[fell], other[fell]
        columns = {
            "partition": number,
            "reader": table["client"][other],
            "log_offset": table["value"][other],
            "begin_ns": table["time_ns"][one],
            "end_ns": table["time_ns"][other],
            "other_offset": table["value"][one],
            "other_ns": table["time_ns"][one],
        }
        found.append(make_witnesses(len(other), columns))
    witnesses = join_witnesses(found)
    return KernelResult(witnesses[:WITNESSES_MAX], count=len(witnesses), judged=judged)
