"""Defines the tables that a check makes of a history, column by column: findings, their witnesses and windows, the facts that
rules ask for, and what a verdict is made of.

The tables of a history are in `prozess.harness.schema`. `docs/tables.md` is made from both.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

ResultKind = Literal["i8", "i4", "text"]


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """One column of a result: its name, its kind, its unit (or what its ids stand for), and its meaning."""

    name: str
    kind: ResultKind
    unit: str
    meaning: str
    optional: bool = False
    """Whether the column may be null. Only texts are: numbers have NONE or MISSING."""


@dataclass(frozen=True)
class ResultTable:
    """A table that a check makes. A row of it may be an entry of a numpy array, without the texts and the number of its
    finding."""

    name: str
    meaning: str
    columns: tuple[ResultColumn, ...]

    @cached_property
    def entry(self) -> np.dtype[np.void]:
        """The dtype of an array of entries: the columns of integers but `finding`, in order, without padding."""
        numbers = (c for c in self.columns if c.kind != "text" and c.name != "finding")
        return np.dtype([(c.name, f"<{c.kind}") for c in numbers])

    @property
    def column_names(self) -> tuple[str, ...]:
        """Returns the names of the columns, in order."""
        return tuple(column.name for column in self.columns)


def _table(name: str, meaning: str, *columns: tuple[str, ResultKind, str, str]) -> ResultTable:
    """Returns a table with these columns: (name, kind, unit, meaning). A text whose meaning says "null:" may be null."""
    made = (ResultColumn(*column, optional=column[1] == "text" and "null:" in column[3]) for column in columns)
    return ResultTable(name, meaning, tuple(made))


_OF_A_FINDING: tuple[tuple[str, ResultKind, str, str], ...] = (
    ("finding", "i4", "row", "of the finding in `findings`, from 0"),
    ("anomaly", "text", "name", "of the anomaly"),
)
FINDINGS = _table(
    "findings",
    "One row per checker and partition, or per checker and cell if it looks at a whole cell.",
    *_OF_A_FINDING,
    ("partition", "i4", "partition id", "where; of a checker of cells, the first partition of the cell"),
    ("cell", "i4", "cell number", "of the partition; NONE: nobody planned it"),
    (
        "count",
        "i8",
        "witnesses",
        "how often the anomaly was seen; exact, also where there are fewer rows in `witnesses`",
    ),
    ("judged", "i8", "count", "how many records (or transactions, batches, …) the checker looked at"),
    ("incomplete", "text", "reason", "why it cannot be concluded that the anomaly is absent; null: it can"),
)
WITNESSES = _table(
    "witnesses",
    "One row per occurrence of an anomaly. Of one finding there are at most 100,000.",
    *_OF_A_FINDING,
    ("begin_ns", "i8", "ns", "invocation of the send, or the earlier event"),
    ("end_ns", "i8", "ns", "completion of the send, or the later event; MISSING: never"),
    ("sequence", "i8", "count", "of the record concerned, within its producer"),
    ("log_offset", "i8", "offset", "where the record was acknowledged or seen; NONE: unknown"),
    ("other_sequence", "i8", "count", "of the record that it conflicts with"),
    ("other_offset", "i8", "offset", "of the record that it conflicts with"),
    ("other_ns", "i8", "ns", "when the other record was sent or seen; MISSING: never, or there is none"),
    ("seen_ns", "i8", "ns", "when a consumer, not the audit, was first given the record; MISSING: never"),
    ("partition", "i4", "partition id", "where it was seen"),
    ("client", "i4", "client id", "the record's producer"),
    ("other_client", "i4", "client id", "the producer of the other record"),
    ("reader", "i4", "client id", "who saw it; NONE: nobody"),
    ("outcome", "i4", "Outcome", "of the record's send; NONE: it is not about a send"),
    (
        "leader_epoch",
        "i4",
        "epoch",
        "of the batch in which a reader was given the record (at `log_offset`, if any); NONE: not reported",
    ),
    (
        "case",
        "i4",
        "case",
        "which of the anomaly's cases it is; 0: the only one; of `misplaced`: the partition that it was sent to",
    ),
)
WINDOWS = _table(
    "windows",
    "One row per window of a delivery bound. Only findings of `late` have some.",
    *_OF_A_FINDING,
    ("number", "i8", "count", "the window begins at `number` × window_s on the trial's clock: records sent in it"),
    ("sent", "i8", "records", "handed to producers, whatever became of them"),
    ("acknowledged", "i8", "records", "those of them to which the bound applies (docs/workloads.md, produced)"),
    ("delivered", "i8", "records", "of these, those that everyone was given who was to be given them (consumed)"),
    ("late", "i8", "records", "delivered, but beyond the bound"),
    ("missing", "i8", "records", "of the acknowledged, those that somebody was never given"),
    ("open", "i8", "records", "whoever was to be given them ended in order before the bound had passed"),
    ("unmeasured", "i8", "records", "of the late and missing: a client stood still, or the audit did not end"),
    ("unacknowledged", "i8", "records", "delivered, though never acknowledged"),
    ("p50_ns", "i8", "ns", "median latency of what was delivered, at most 0.8 % too large; MISSING: nothing was"),
    ("p99_ns", "i8", "ns", "99th percentile of the same"),
    ("max_ns", "i8", "ns", "greatest latency, exact"),
)
FACTS = _table(
    "facts",
    "One row per partition and fact of the guarantee table (docs/guarantees.md, the facts): whether it holds there.",
    ("cell", "i4", "cell number", "of the partition"),
    ("partition", "i4", "partition id", ""),
    ("fact", "text", "name", "of the fact"),
    ("about", "text", "`configuration` or `events`", "whether the configuration decides it, or what happened"),
    (
        "holds",
        "i4",
        "Tristate",
        "1: it is so, or may have been so of some record of the partition, by what happened there; 0: it is not so; -1: "
        "nobody knows. Of an anomaly that was not seen this decides: rules whose facts are all 1 or -1 make it *permitted, "
        "not seen*, and else it is *held*. Of one that was seen each witness is judged by itself",
    ),
)
VERDICT_INPUTS = _table(
    "verdict_inputs",
    "One row per finding, partition, judgement and rule: how many witnesses the guarantee table judges so. The verdict of "
    "a cell follows from their sums, from `findings` (what was judged, and what is incomplete) and from `facts` (what could "
    "have been permitted).",
    *_OF_A_FINDING,
    ("cell", "i4", "cell number", "in which it is judged"),
    ("partition", "i4", "partition id", "of the witnesses"),
    ("judgement", "text", "`forbidden`, `permitted`, `unknown` or `not applicable`", "by the guarantee table"),
    ("rule", "text", "name", "of the rule that decided, or is the first in doubt; null: no rule"),
    ("defect", "text", "name", "of the rule of a known defect that may be the cause, unproven; null: none"),
    ("count", "i8", "witnesses", "judged so; what was counted and not kept as a witness is `unknown`"),
)
RESULT_TABLES = {table.name: table for table in (FINDINGS, WITNESSES, WINDOWS, FACTS, VERDICT_INPUTS)}
