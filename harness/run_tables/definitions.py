"""Defines the tables over many runs, column by column. Arrow and Spark use the same names, types and comments, and
docs/run-tables.md is made from them.

How they change: a new column goes to the end of its table, and readers see null in files that are older. A column keeps its
name, type and meaning. Where that is not enough, FORMAT grows, and readers refuse tables of another format.
"""

import types
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Union, get_args, get_origin

import pyarrow as pa

from prozess.harness.config.configuration import (
    ApplicationConfiguration,
    CompactionConfiguration,
    CopierConfiguration,
    DeliveryBound,
    GroupConfiguration,
    ProducerConfiguration,
    ProvocationConfiguration,
    ShareConfiguration,
    TopicConfiguration,
    TransactionConfiguration,
    Variant,
)
from prozess.harness.history.readable import readable_columns
from prozess.harness.result_tables import FINDINGS, WITNESSES, ResultTable
from prozess.harness.values import Frozen

FORMAT = 2
TEXT, INTEGER, NUMBER, TRUTH = pa.string(), pa.int64(), pa.float64(), pa.bool_()
TIME, DAY, NAMES = pa.timestamp("us", tz="UTC"), pa.date32(), pa.list_(pa.string())
NUMBERS = pa.list_(INTEGER)
SETTINGS_MAP, COUNTS_MAP, SECONDS_MAP = pa.map_(TEXT, TEXT), pa.map_(TEXT, INTEGER), pa.map_(TEXT, NUMBER)
PHASES = pa.list_(
    pa.struct(
        [("phase", TEXT), ("acks", TEXT), ("acknowledged", INTEGER)]
        + [(name, NUMBER) for name in ("per_s", "p50_ms", "p99_ms", "p999_ms")]
    )
)
UNPUBLISHED = frozenset({"environment"})
"""Settings that are no column: the environment of somebody's application may hold what is not for everybody."""


@dataclass(frozen=True, slots=True)
class RunColumn:
    """One column of a table over many runs."""

    name: str
    type: pa.DataType
    meaning: str


@dataclass(frozen=True)
class ManyRunsTable:
    """A table over many runs. Any column but `run` and `state` may be null."""

    name: str
    meaning: str
    own: tuple[RunColumn, ...]

    @cached_property
    def columns(self) -> tuple[RunColumn, ...]:
        """Returns the columns that every table has, and then its own."""
        return (*KEYS, *self.own)

    @cached_property
    def schema(self) -> pa.Schema:
        """Returns the schema. Each field has its meaning as the comment in its metadata."""
        return pa.schema([pa.field(c.name, c.type, metadata={"comment": c.meaning}) for c in self.columns])

    @cached_property
    def stored(self) -> pa.Schema:
        """Returns the schema of its files: the day is the name of their directory, and no column."""
        return pa.schema([field for field in self.schema if field.name != "day"])


def _columns(*columns: tuple[str, pa.DataType, str]) -> tuple[RunColumn, ...]:
    return tuple(RunColumn(*column) for column in columns)


KEYS = _columns(
    ("run", TEXT, "id of the run: the name of its directory, and a digest of what was recorded there"),
    ("trial", TEXT, "name of the trial"),
    ("seed", INTEGER, "seed of the trial"),
    ("version", TEXT, "planned version of Kafka; of several, in words: `3.9.1 and 4.1.0`"),
    ("day", DAY, "day on which the run began (UTC); null: nobody noted it. Files are partitioned by it"),
)
RUNS = ManyRunsTable(
    "runs",
    "One row per run directory, also of one that is torn, damaged or still without a verdict: `state` says which.",
    _columns(
        ("state", TEXT, "`judged`; `not judged`: it has no verdict; `unproven`: it has no manifest, because it was killed or "
         "still runs; `damaged`: files differ from its manifest; `unreadable`: its plan or verdict is not of this version. "
         "Only of a run that is `judged` are verdicts and outcomes anything but unknown"),
        ("problem", TEXT, "why the state is not `judged`: the files, and what is wrong; null: nothing is"),
        ("verdict", TEXT, "`held`, `violated` or `unknown`; null: it has none"),
        ("sentence", TEXT, "the verdict in words"),
        ("interrupted", TRUTH, "whether somebody stopped the run: what is unknown then says nothing about Kafka"),
        ("by_known_defects", TRUTH, "whether it is violated by nothing but known defects of others"),
        ("title", TEXT, "title of the trial"),
        ("origin", TEXT, "`trial`, or where else the history comes from: `recorded`, `jepsen`, `verifiable`, `synthetic`"),
        ("backend", TEXT, "where Kafka ran"),
        ("cells", INTEGER, "how many cells it has"),
        ("found", COUNTS_MAP, "anomaly → how often it was seen in all cells, permitted or not; without those never seen"),
        ("began", TIME, "when the run began, by the name of its directory, or else by its clock"),
        ("night", DAY, "the night of the run: from noon to noon (UTC), named by its first day"),
        ("took_s", NUMBER, "seconds from the command to the verdict"),
        ("parts_s", SECONDS_MAP, "part of the run → its seconds"),
        ("memory_mib", NUMBER, "memory of the servers when they were ready"),
        ("server_logs", INTEGER, "how many logs of servers are there, from which `server_errors` is made"),
        ("name", TEXT, "name of the run directory"),
        ("address", TEXT, "where the run was when this row was made: its path or URI"),
        ("prozess", TEXT, "commit of the prozess that ran it, or else its version"),
        ("scenarios", NAMES, "numbers of the scenarios that the trial runs"),
        ("metadata_mode", TEXT, "what keeps the cluster's metadata, such as `kraft-isolated`"),
        ("unknown_reasons", NAMES, "why parts are unknown, the worst first"),
        ("longest_gap_s", NUMBER, "longest time in which a partition acknowledged nothing although clients sent to it, of "
         "those that ended; null: there is none of a second or longer"),
        ("open_gaps", INTEGER, "how many such times did not end; null: nobody measured the cost of the faults"),
    ),
)  # fmt: skip
SCOPES: dict[str, type[Frozen]] = {
    "variant": Variant,
    "topic": TopicConfiguration,
    "producer": ProducerConfiguration,
    "group": GroupConfiguration,
    "share_group": ShareConfiguration,
    "transaction": TransactionConfiguration,
    "copier": CopierConfiguration,
    "application": ApplicationConfiguration,
    "compaction": CompactionConfiguration,
    "provocation": ProvocationConfiguration,
    "delivery": DeliveryBound,
}
"""The scopes of a trial file's settings, and the value that has them."""


def _type_of(annotation: object) -> pa.DataType:
    """Returns the type of a setting's column: text for choices and lists, a map for properties."""
    origin = get_origin(annotation)
    if origin in (Annotated, Union, types.UnionType):
        inner = [part for part in get_args(annotation) if part is not type(None)]
        return _type_of(inner[0]) if origin is Annotated or len(inner) == 1 else TEXT
    if origin is dict:
        return SETTINGS_MAP
    return {bool: TRUTH, int: INTEGER, float: NUMBER}.get(annotation, TEXT) if isinstance(annotation, type) else TEXT


def _settings() -> Iterator[tuple[str, pa.DataType, str]]:
    for scope, model in SCOPES.items():
        for name, field in model.model_fields.items():
            if name not in UNPUBLISHED:
                meaning = f"the setting `{scope}.{name}` of the trial; null: it does not apply, or is left to Kafka"
                yield f"{scope}_{name}", _type_of(field.annotation), meaning


CELLS = ManyRunsTable(
    "cells",
    "One row per cell of each run, with a column for every setting, whether the trial varies it or not.",
    _columns(
        ("cell", INTEGER, "number of the cell"),
        ("name", TEXT, "name of the cell"),
        ("workload", TEXT, "workload of the cell"),
        ("verdict", TEXT, "verdict of the cell; null: it was not judged"),
        ("topic", TEXT, "topic that its producers write"),
        ("partitions", INTEGER, "how many partitions it has"),
        ("axes", SETTINGS_MAP, "settings that vary within the trial, or are stated for it: name → value as text"),
        *_settings(),
    ),
)
OUTCOMES = ManyRunsTable(
    "outcomes",
    "One row per run, cell and anomaly that applies to the cell: what the configuration allows, and what was seen.",
    _columns(
        ("cell", INTEGER, "number of the cell"),
        ("workload", TEXT, "workload of the cell"),
        ("anomaly", TEXT, "name of the anomaly"),
        ("outcome", TEXT, "`held`, `violated`, `permitted` (and seen), `possible, not seen`, `unknown` or `not judged`"),
        ("verdict", TEXT, "`held`, `violated`, `unknown` or `not judged`"),
        ("count", INTEGER, "witnesses in all"),
        ("forbidden", INTEGER, "witnesses that nothing permits"),
        ("permitted", INTEGER, "witnesses that the configuration permits"),
        ("unknown", INTEGER, "witnesses of which the evidence does not say"),
        ("not_applicable", INTEGER, "witnesses that the promise is not about"),
        ("proven", TRUTH, "whether a control showed that it could have been seen; null: no control was asked"),
        ("by_known_defects", TRUTH, "whether all that is forbidden is proven to come from known defects"),
        ("defects", NAMES, "known defects whose signature was seen"),
        ("by_rule", COUNTS_MAP, "rule of the guarantee table → how many witnesses it permitted"),
        ("reason", TEXT, "the reason of the outcome in a sentence"),
        ("why", TEXT, "why it is unknown"),
    ),
)  # fmt: skip


def _readable(table: ResultTable, meaning: str) -> ManyRunsTable:
    """Returns the table of many runs with the readable columns of a check's result."""
    columns = readable_columns(table.columns, named=True)
    return ManyRunsTable(table.name, meaning, tuple(RunColumn(c.name, c.type, c.meaning) for c in columns))


FINDINGS_OF_RUNS = _readable(FINDINGS, f"{FINDINGS.meaning} What is not known is null.")
WITNESSES_OF_RUNS = _readable(WITNESSES, f"{WITNESSES.meaning} What is not known is null.")
_RECOVERY = ("partitions", "median_ms", "slowest_ms", "never")


def _recovery(prefix: str, what: str) -> Iterator[tuple[str, pa.DataType, str]]:
    yield f"{prefix}_partitions", INTEGER, f"partitions of which is known {what}"
    yield f"{prefix}_median_ms", NUMBER, f"{what}, median"
    yield f"{prefix}_slowest_ms", NUMBER, f"{what}, slowest"
    yield f"{prefix}_never", INTEGER, f"partitions of which that never came ({what})"


RECOVERIES = {
    "after_fault": "from the fault until a record that was sent since was acknowledged",
    "after_heal": "from the end of the fault until a record that was sent since was acknowledged",
    "decided": "from the fault until the metadata log had the next leader",
    "new_leader": "from the fault until every broker named the next leader",
    "first_acknowledged": "from the fault until a record was acknowledged, where the target led",
}
"""The recoveries of an impact → what each measures. The last three are in its reaction."""
IMPACTS = ManyRunsTable(
    "impacts",
    "One row per run and fault: what it cost the clients, and what the cluster did.",
    _columns(
        ("fault", INTEGER, "number of the fault within its run"),
        ("kind", TEXT, "name of the fault, such as `kill`"),
        ("target", TEXT, "the nodes that it hit"),
        ("what", TEXT, "the fault, the role that it was aimed at, and what distinguishes it: `kill leader`"),
        ("effect", TEXT, "`yes`, `no`, `unknown`: whether it was seen to work; `failed`: it could not be made"),
        ("seen", TEXT, "how the effect was seen"),
        ("unanswered", INTEGER, "records sent during it that were never acknowledged"),
        ("windows", INTEGER, "times of a second or longer in which a partition acknowledged nothing because of it"),
        ("open_windows", INTEGER, "how many of them did not end"),
        ("longest_s", NUMBER, "longest of them that ended"),
        ("apply_ms", NUMBER, "how long it took to make it"),
        ("verify_ms", NUMBER, "from then until its effect was seen"),
        ("undo_ms", NUMBER, "from the request to heal until it was seen to be healed"),
        ("led", INTEGER, "partitions that its target led"),
        ("copies", INTEGER, "partitions of which its target was in sync"),
        ("isr_left", INTEGER, "in-sync replicas of the target that left the ISR"),
        *(column for prefix, what in RECOVERIES.items() for column in _recovery(prefix, what)),
        ("phases", PHASES, "before, during and after it, by acks: what was acknowledged, and its latencies"),
    ),
)
FAULTS = ManyRunsTable(
    "faults",
    "One row per run and fault, as it happened.",
    _columns(
        ("fault", INTEGER, "number of the fault within its run"),
        ("step", TEXT, "name of the step that made it"),
        ("kind", TEXT, "name of the fault, such as `kill`"),
        ("nodes", NAMES, "nodes that it hit"),
        ("begin_s", NUMBER, "when it began, in seconds of the trial's clock"),
        ("end_s", NUMBER, "when it ended; null: never"),
        ("began", TIME, "when it began; null: nobody noted the wall clock"),
        ("ended", TIME, "when it ended"),
        ("effective", TRUTH, "whether it was observed to work; null: not known"),
        ("detail", TEXT, "how that was seen"),
    ),
)
SERVER_ERRORS = ManyRunsTable(
    "server_errors",
    "One row per run, server and kind of complaint in its log: lines that differ only in numbers are one kind. Logs are not "
    "in the manifest: nothing proves them, and no verdict rests on them.",
    _columns(
        ("node", TEXT, "name of the server"),
        (
            "level",
            TEXT,
            "`WARN`, `ERROR` or `FATAL`; null: the row counts the lines of all kinds beyond the first 1,000",
        ),
        (
            "kind",
            TEXT,
            "the line without its time, and without numbers, ids, paths and names that differ from run to run",
        ),
        ("count", INTEGER, "how many such lines there are"),
        ("first_s", NUMBER, "when the first was written, in seconds of the trial's clock by the server's own"),
        ("last_s", NUMBER, "when the last was written"),
        ("first", TIME, "when the first was written"),
        ("example", TEXT, "the first line"),
    ),
)
CONTROLS = ManyRunsTable(
    "controls",
    "One row per run and control: cells that should show an anomaly, which proves that the trial can see it.",
    _columns(
        ("anomaly", TEXT, "name of the anomaly"),
        ("cells", NUMBERS, "numbers of the cells that should show it"),
        ("fired_in", NUMBERS, "numbers of the cells that did"),
        ("fired", TRUTH, "whether at least one did"),
        ("count", INTEGER, "how often it was seen there"),
        ("required", TRUTH, "whether the trial passes only if it fired"),
    ),
)
RUN_TABLES = {
    table.name: table
    for table in (RUNS, CELLS, OUTCOMES, FINDINGS_OF_RUNS, WITNESSES_OF_RUNS, IMPACTS, FAULTS, SERVER_ERRORS, CONTROLS)
}
