"""Writes `docs/tables.md` from the definitions of all tables: `python -m tools.table_page`."""

import sys
from collections.abc import Iterator, Sequence
from enum import IntEnum

from prozess.harness import installation
from prozess.harness.interfaces.witnesses import CopyCase, GroupCase, LateCase, SequenceCase, SnapshotCase, StallCase
from prozess.harness.result_tables import RESULT_TABLES
from prozess.harness.schema import (
    ORIGIN_SEQUENCE_BITS,
    TABLES,
    FaultPhase,
    Isolation,
    MetadataKind,
    MetadataSource,
    ObservationKind,
    Outcome,
    ReadFlag,
    Role,
    StepOutcome,
    Tristate,
)

DOCUMENT = installation.SEARCH_PATH / "docs" / "tables.md"
_CODES = (
    *(Outcome, Role, Isolation, ReadFlag, ObservationKind, MetadataKind, MetadataSource, FaultPhase, Tristate),
    StepOutcome,
)
_CASES: tuple[tuple[str, type[IntEnum]], ...] = (
    ("`late`", LateCase),
    ("`not-exactly-once`", CopyCase),
    ("anomalies of consumer groups", GroupCase),
    ("`snapshot-conflict`", SnapshotCase),
    ("`out-of-sequence`", SequenceCase),
    ("`stalled`", StallCase),
)
_TYPES = {"i4": "int32", "i8": "int64", "text": "string"}
_HEAD = """\
# Tables

<!-- Made from harness/schema.py and harness/result_tables.py by `python -m tools.table_page`. Change these. -->

A run is a pipeline of tables, each with a fixed schema:

    rows → history → findings, witnesses, windows → verdict_inputs → verdict.json
                   → facts ────────────────────────↗

| step | what makes it | where the tables are |
|---|---|---|
| rows | clients, while the trial runs | `rows/`: one file per table, client and segment. They are not Parquet |
| history | the first check, from the rows; or an import | `history/TABLE.parquet` |
| findings, witnesses, windows | the checkers, from the history | `findings/TABLE.parquet` |
| facts | the judge, from plan and history | `prozess.spark.facts` computes it; `prozess check --out` keeps it |
| verdict_inputs | the judge, from witnesses and history | `prozess.spark.verdict_inputs`, in the same way |

All of them but the rows are DataFrames in a Spark session of yours ([spark.md](spark.md)), and tables of Arrow, pandas or
Spark in Python ([python.md](python.md)). Any other reader of Parquet reads those that are files.

**A history is partitioned by workload, cell and partition.** Each Kafka partition of a trial has a number, its *partition
id*. It belongs to one cell, and a cell has one workload. Tables that are called *clustered* below have row groups of one
partition each, in ascending order of partition ids, so that whoever wants one partition reads nothing else. In an import
small partitions share a row group of up to 16,384 rows: the footer's `prozess.shared_row_groups` is JSON that has, for the
number of each such row group, how many rows each partition has in it, in their order: `{"0":[[0,120],[1,95]]}`. Within a
partition rows ascend by client, and those of one client are in the order in which it wrote them (`sends`: in the order of
`sequence`). The table `partitions` says to which cell a partition belongs, and `plan.json` has the workload of each cell.

**Integers have no nulls.** NONE is -1: an id, offset or code that is not there. MISSING is -2⁶³: a time that never came.
Only texts can be null.

**Times** (unit ns) are nanoseconds since the trial's clock started. Negative ones are from the warm-up before it.

**Ids.** A *client id* is the number of a client in `plan.json`. Clients that were started later have numbers of their own,
and the table `clients` says whose place they took. From 1,000,000 up it is prozess itself. A *node id* is Kafka's
`node.id`. A *dictionary* is a list of texts in `dictionaries.json`, and a code is a place in it.
"""


def render() -> str:
    """Returns the whole page as Markdown."""
    parts = [_HEAD, "\n## Tables of a check\n"]
    for result in RESULT_TABLES.values():
        rows = [(c.name, _TYPES[c.kind], c.unit, c.meaning) for c in result.columns]
        parts += [f"\n### `{result.name}`\n\n{result.meaning}\n\n", *_columns(rows)]
    parts.append(
        "\nThe file `findings/findings.parquet` has no column `finding`, which is the number of the row. The functions of\n"
        "`prozess.spark` add it.\n\n## Tables of a history\n"
    )
    for table in TABLES.values():
        clustered = " Clustered by partition." if table.partitioned else ""
        rows = [
            ("client", "int32", "client id", "who wrote the row; NONE: it is from the plan"),
            *((c.name, _TYPES[c.kind], c.unit, c.meaning) for c in table.columns),
        ]
        parts += [f"\n### `{table.name}`\n\n{table.meaning}{clustered}\n\n", *_columns(rows)]
    parts.append(
        "\n## Codes\n\nWhat the numbers in columns with these units stand for:\n\n| unit | numbers |\n|---|---|\n"
    )
    parts += [f"| {code.__name__} | {_members(code)} |\n" for code in _CODES]
    parts.append(
        "\nThe `case` of a witness says in which of several ways the anomaly was seen. What is not listed here is in the\n"
        "docstring of the checker, in `checkers/`:\n\n| anomaly | numbers |\n|---|---|\n"
    )
    parts += [f"| {anomaly} | {_members(cases)} |\n" for anomaly, cases in _CASES]
    return "".join(parts)


def _columns(rows: Sequence[tuple[str, str, str, str]]) -> Iterator[str]:
    yield "| column | type | unit | meaning |\n|---|---|---|---|\n"
    for name, kind, unit, meaning in rows:
        text = meaning.replace("ORIGIN_SEQUENCE_BITS", str(ORIGIN_SEQUENCE_BITS)).replace("|", "\\|")
        yield f"| `{name}` | {kind} | {unit} | {text} |\n"


def _members(code: type[IntEnum]) -> str:
    return ", ".join(f"{member.value} {member.name.lower().replace('_', ' ')}" for member in code)


def main() -> None:
    """Writes the page into the checkout."""
    DOCUMENT.write_text(render(), encoding="utf-8")
    sys.stdout.write(f"wrote {DOCUMENT}\n")


if __name__ == "__main__":
    main()
