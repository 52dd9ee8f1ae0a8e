"""Writes `docs/tables.md` and `docs/run-tables.md` from the definitions of all tables: `python -m tools.table_page`."""

import sys
from collections.abc import Iterator, Sequence
from enum import IntEnum

from prozess.harness import installation
from prozess.harness.interfaces.witnesses import (
    CopyCase,
    GapCase,
    GroupCase,
    LateCase,
    LeftCase,
    RemoteCase,
    SequenceCase,
    SnapshotCase,
    StallCase,
)
from prozess.harness.result_tables import RESULT_TABLES
from prozess.harness.run_tables.definitions import RUN_TABLES
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
    RemoteState,
    Role,
    StepOutcome,
    Tristate,
)

DOCUMENT = installation.SEARCH_PATH / "docs" / "tables.md"
RUN_DOCUMENT = installation.SEARCH_PATH / "docs" / "run-tables.md"
_CODES = (
    *(Outcome, Role, Isolation, ReadFlag, ObservationKind, MetadataKind, MetadataSource, FaultPhase, Tristate),
    *(StepOutcome, RemoteState),
)
_CASES: tuple[tuple[str, type[IntEnum]], ...] = (
    ("`late`", LateCase),
    ("`not-exactly-once`", CopyCase),
    ("anomalies of consumer groups", GroupCase),
    ("`snapshot-conflict`", SnapshotCase),
    ("`out-of-sequence`", SequenceCase),
    ("`stalled`", StallCase),
    ("`remote-gap`", GapCase),
    ("`remote-conflict`", RemoteCase),
    ("`remote-left`", LeftCase),
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
Spark in Python ([python.md](python.md)). Any other reader of Parquet reads those that are files. Tables over many runs are in
[run-tables.md](run-tables.md).

**A history is partitioned by workload, cell and partition.** Each Kafka partition of a trial has a number, its *partition
id*. It belongs to one cell, and a cell has one workload. Tables that are called *clustered* below have row groups of one
partition each, in ascending order of partition ids, so that whoever wants one partition reads nothing else. In an import
small partitions share a row group of up to 16,384 rows: the footer's `prozess.shared_row_groups` is JSON that has, for the
number of each such row group, how many rows each partition has in it, in their order: `{"0":[[0,120],[1,95]]}`. Within a
partition rows ascend by client, and those of one client are in the order in which it wrote them (`sends`: in the order of
`sequence`). The table `partitions` says to which cell a partition belongs, and `plan.json` has the workload of each cell.

**Integers have no nulls.** NONE is -1: an id, offset or code that is not there. MISSING is -2⁶³: a time that never came.
Only texts can be null. In the readable form (`readable=True` in Python and in Spark) both are null, a timestamp stands beside
each time, codes and bits are names, a mask is a list of brokers, and topic and number stand beside a partition id.

**Times** (unit ns) are nanoseconds since the trial's clock started. Negative ones are from the warm-up before it.

**Ids.** A *client id* is the number of a client in `plan.json`. Clients that were started later have numbers of their own,
and the table `clients` says whose place they took. From 1,000,000 up it is prozess itself. A *node id* is Kafka's
`node.id`. A *dictionary* is a list of texts in `dictionaries.json`, and a code is a place in it.
"""


_RUN_HEAD = """\
# Tables over many runs

<!-- Made from harness/run_tables/definitions.py by `python -m tools.table_page`. Change that. -->

Nine tables answer questions about any number of runs: what was lost with which settings, what a fault cost in each version,
what got worse. Arrow and Spark have the same names, types and comments. Each table has the run, its trial, seed and version,
and the day on which it began.

## Write them

    prozess run smoke --tables s3a://trials/tables      # the rows of this run, at its end
    prozess check RUN --tables s3a://trials/tables      # those of a run that is judged again, in place of the old ones
    prozess tables runs/ --out s3a://trials/tables      # those of every run below a directory

The location is a directory or a URI, and is made if it is not there. With `--rounds` or `--for` every trial of the campaign
writes its own rows. Rows that cannot be written end the command with exit code 255, after the verdict was printed and stored;
`prozess tables` writes them later. Any number of machines may write into one location, because no two write the same file:

    tables/_prozess_tables.json                                 the format
    tables/outcomes/day=2026-11-27/smoke-1-20261127T224817-dc68423bcb.parquet
    tables/runs/day=2026-11-27/smoke-1-20261127T224817-dc68423bcb.parquet

A file is named after the id of its run, so a run that is written again is replaced and never there twice. The id is the name
of the run directory and a digest of what was recorded in it: it stays when the run is checked again or copied, and no two
runs share one. Under another name a copy is another run. The file in `runs` is written last.

From some ten thousand runs on, a query opens too many files. `prozess tables tables/ --out packed/ --packed` copies them into
a new location with one file for each table and day, which then takes no further run.

## Read them

```python
import prozess

tables = prozess.tables("runs/")  # or "s3a://trials/tables", or several of both
outcomes = tables["outcomes"].to_arrow(["run", "anomaly", "outcome", "count"])
print(outcomes.group_by(["anomaly", "outcome"]).aggregate([("count", "sum")]).to_pandas())
```

This needs neither Java nor Spark: it reads Parquet files, or the run directories themselves. `since=` and `until=` take the
first and the last day. An engine for SQL that knows Arrow or Parquet, such as DuckDB, reads these tables and files as they
are. In Spark:

```python
from prozess import spark as trial

for name, frame in trial.tables(spark, "s3a://trials/tables").items():
    frame.createOrReplaceTempView(name)
spark.sql("select * from runs where state <> 'judged'").show()
```

Spark reads the files itself, and of them only the days and columns that a query names (`where day >= '2026-11-01'`). Run
directories are read by its tasks, with pyarrow, which compare each run with its manifest first.

## What can be believed

`runs` has a row for every run directory, whatever is wrong with it: `state` and `problem` say what. Of a run that is not
`judged`, every verdict and every outcome is *unknown*, and a table that rests on a file that is missing, torn or changed has
no rows of it. So begin with `runs where state <> 'judged'`.

Compared with `manifest.json` are the files that the tables are made of: plan, clock, verdict, impact, findings. The rows and
the history are not read: whether they are whole, `prozess check` says. `took_s`, `parts_s` and `server_errors` come from
files that nothing proves, and no verdict rests on them. Links in a run directory are not followed.

## Questions

`prozess trends`, `prozess matrix`, `prozess scenarios` and the page of a campaign are queries on these tables, by Arrow,
without a loop over runs. With `--master` the workers of a Spark cluster read the runs for `trends` and `matrix`. A run that
is not `judged` is counted there as one without a verdict.

{questions}
## How they change

A new column goes to the end of its table, and is null in older files. A column keeps its name, type and meaning. If that is
not enough one day, `format` in `_prozess_tables.json` grows, and prozess refuses the tables of another format.
"""
QUESTIONS = {
    "What did each night show?": """\
select trial, night, count_if(verdict = 'held') as held, count_if(verdict = 'violated') as violated,
       count_if(verdict = 'unknown' and not interrupted) as unknown
from runs where verdict is not null group by trial, night order by trial, night""",
    "What is lost with which setting, and in how many cells was that looked for?": """\
select c.producer_acks, c.topic_min_insync_replicas, sum(o.count) as lost,
       count(*) as cells, count_if(o.count > 0) as shown
from outcomes o join cells c on c.run = o.run and c.cell = o.cell
where o.anomaly = 'lost' and o.outcome <> 'not judged'
group by all order by lost desc""",
    "What is each setting worth? (`prozess matrix`)": """\
select setting, value, o.anomaly, count_if(o.outcome = 'held') as held, count_if(o.outcome = 'permitted') as permitted,
       count_if(o.outcome = 'violated') as violated, count_if(o.outcome = 'unknown') as unknown,
       sum(o.permitted) as permitted_records, sum(o.forbidden) as forbidden_records
from outcomes o join cells c on c.run = o.run and c.cell = o.cell lateral view explode(c.axes) as setting, value
where o.outcome <> 'not judged' group by setting, value, o.anomaly order by o.anomaly, setting, value""",
    "What did each trial show last? (`prozess scenarios`)": """\
select trial, metadata_mode, max_by(verdict, began) as verdict, max_by(longest_gap_s, began) as longest_gap_s
from runs where state = 'judged' group by trial, metadata_mode order by trial, metadata_mode""",
    "How many controls fired? (`prozess scenarios`)": """\
select trial, anomaly, count_if(fired) as fired, count(*) as controls, sum(count) as seen
from controls where required group by trial, anomaly order by trial, anomaly""",
    "Why did runs not hold? (the page of a campaign)": """\
select o.run, o.reason, sum(o.forbidden) as records, collect_set(o.anomaly) as anomalies, collect_set(c.name) as cells
from outcomes o join cells c on c.run = o.run and c.cell = o.cell
where o.outcome in ('violated', 'unknown') group by o.run, o.reason order by records desc""",
    "What did a kill cost, by version?": """\
select version, kind, count(*) as faults, median(after_fault_median_ms) as recovery_ms, max(longest_s) as longest_s
from impacts group by version, kind order by version, kind""",
    "How many records a second were acknowledged before the faults?": """\
select trial, phase.acks, median(phase.per_s) as per_s
from impacts lateral view explode(phases) as phase where phase.phase = 'before' group by trial, phase.acks order by trial""",
    "Which rule permitted what?": """\
select anomaly, rule, sum(n) as witnesses from outcomes lateral view explode(by_rule) as rule, n
group by anomaly, rule order by witnesses desc""",
    "When were the records sent that are gone?": """\
select run, topic, number, min(begin_ns) / 1e9 as first_s, max(begin_ns) / 1e9 as last_s, count(*) as records
from witnesses where anomaly = 'lost' group by run, topic, number order by records desc""",
    "What took effect, and what did not?": """\
select kind, effective, count(*) as faults from faults group by kind, effective order by kind""",
    "What do servers complain about in runs that were violated?": """\
select e.kind, count(distinct e.run) as runs, sum(e.count) as lines
from server_errors e join runs r on r.run = e.run where r.verdict = 'violated' and e.level <> 'WARN'
group by e.kind order by runs desc""",
    "Which checkers could not conclude?": """\
select anomaly, incomplete, count(*) as findings from findings where incomplete is not null
group by anomaly, incomplete order by findings desc""",
    "Which runs say nothing?": """\
select run, state, problem, address from runs where state <> 'judged' order by run""",
}
"""Question → its answer in Spark SQL, over the nine tables as views."""


def render_run_tables() -> str:
    """Returns the page of the tables over many runs as Markdown."""
    questions = "".join(f"{question}\n\n```sql\n{text}\n```\n\n" for question, text in QUESTIONS.items())
    parts = [_RUN_HEAD.format(questions=questions), "\n## The tables\n"]
    for table in RUN_TABLES.values():
        parts.append(f"\n### `{table.name}`\n\n{table.meaning}\n\n| column | type | meaning |\n|---|---|---|\n")
        for column in table.columns if table.name == "runs" else table.own:
            kind = str(column.type).replace("timestamp[us, tz=UTC]", "timestamp")
            parts.append(f"| `{column.name}` | {kind} | {column.meaning.replace('|', chr(92) + '|')} |\n")
    parts.append("\nEvery table begins with the first five columns of `runs`.\n")
    return "".join(parts)


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
        rows = [(c.name, _TYPES[c.kind], c.unit, c.meaning) for c in table.stored_columns]
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
    """Writes the pages into the checkout."""
    for document, text in ((DOCUMENT, render()), (RUN_DOCUMENT, render_run_tables())):
        document.write_text(text, encoding="utf-8")
        sys.stdout.write(f"wrote {document}\n")


if __name__ == "__main__":
    main()
