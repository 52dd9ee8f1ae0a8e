"""Tables over many runs, and readable histories, as DataFrames of Spark.

Where tables are kept as Parquet, Spark reads them itself, and only the days and columns that a query names. Run directories
are read by tasks in Python, as they are without Spark: a run is compared with its manifest, and nothing of it is believed
before.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from prozess.harness.checking.findings import schema_of
from prozess.harness.errors import HistoryUnreadable, MissingTool
from prozess.harness.history.readable import ABSENT, MASK_BITS, ReadableColumn, RunNames, names_of
from prozess.harness.recording.metrics import MICRO
from prozess.harness.result_tables import ResultTable
from prozess.harness.run_tables.definitions import RUN_TABLES
from prozess.harness.run_tables.location import (
    ALL_DAYS,
    Days,
    RunSource,
    TablesLocation,
    directories_among,
    rows_of_group,
)
from prozess.harness.schema import NONE
from prozess.spark_checkers.session import Batches, failure_named, fields_of, map_numbers, to_arrow

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

TASKS_MAX = 64
"""The most tasks that read run directories."""
RUNS_AT_ONCE = 64
"""How many runs a task hands to Spark together."""
ROWS_PER_BATCH = 131_072
"""How many rows of a result a task hands to Spark together."""


def run_table(
    session: "SparkSession", name: str, sources: Sequence[TablesLocation | RunSource], days: Days = ALL_DAYS
) -> "DataFrame":
    """Returns a table over all runs of these sources. Its columns have their meanings as comments. Spark needs its own
    connector to tables in an object store; run directories are read with pyarrow."""
    from pyspark.sql.functions import col, lit

    fields = fields_with_comments(RUN_TABLES[name].schema)
    runs = directories_among(sources)
    frames = [_kept(session, name, source) for source in sources if isinstance(source, TablesLocation)]
    frames += [_of_directories(session, name, runs)] if runs else []
    whole = reduce(lambda one, other: one.unionByName(other), frames)
    first, last = days
    whole = whole if first is None else whole.where(col("day") >= lit(first))
    whole = whole if last is None else whole.where(col("day") <= lit(last))
    return whole.select(*(col(field.name).alias(field.name, metadata=field.metadata) for field in fields))


def collected(
    session: "SparkSession", name: str, columns: Sequence[str], *, sources: Sequence[TablesLocation | RunSource]
) -> pa.Table:
    """Returns columns of a table over all runs of these sources, which Spark's workers read. HarnessFailed if they cannot."""
    with failure_named("read the runs", "Leave --master out."):
        return to_arrow(run_table(session, name, sources).select(*columns))


def save(
    session: "SparkSession",
    sources: Sequence[TablesLocation | RunSource],
    into: str,
    provider: str,
    days: Days = ALL_DAYS,
) -> int:
    """Writes the rows of all runs of these sources into tables of the session's catalog, in place of those that these runs
    had there, and returns how many runs there are. `into`: the catalog and schema. HarnessFailed if Spark cannot.

    Each table is replaced in one transaction, and `runs` is the last: whoever finds a run there finds all of its rows.
    """
    from pyspark.sql.functions import col

    with failure_named(
        "write the tables", f"Its catalog needs a provider {provider!r} that replaces rows (Delta does)."
    ):
        frames = {name: run_table(session, name, sources, days).cache() for name in RUN_TABLES}
        try:
            runs = [row.run for row in frames["runs"].select("run").collect()]
            of_these = col("run").isin(runs)
            for name in sorted(frames, key=lambda name: name == "runs"):
                table = f"{into}.{name}"
                if not session.catalog.tableExists(table):
                    made = frames[name].limit(0).writeTo(table).using(provider)
                    made.partitionedBy(col("day")).createOrReplace()
                frames[name].writeTo(table).option("mergeSchema", "true").overwrite(of_these)
        finally:
            for frame in frames.values():
                frame.unpersist()
    return len(runs)


def fields_with_comments(schema: pa.Schema) -> StructType:
    """Returns a schema of Arrow's as Spark has it, with the comments."""
    comments = [field.metadata[b"comment"].decode() for field in schema]
    fields = zip(from_arrow_schema(schema), comments, strict=True)
    return StructType([StructField(field.name, field.dataType, True, {"comment": text}) for field, text in fields])


def _kept(session: "SparkSession", name: str, store: TablesLocation) -> "DataFrame":
    local = store.filesystem.type_name == "local"
    address = Path(store.directory).as_uri() if local else store.address
    with missing_connector_named(address):
        return session.read.schema(fields_with_comments(RUN_TABLES[name].schema)).parquet(f"{address}/{name}")


@contextmanager
def missing_connector_named(address: str) -> Iterator[None]:
    """A context in which a session that cannot read an address itself is a MissingTool that says so."""
    try:
        yield
    except Exception as error:  # py4j's, or Spark Connect's
        if _NO_FILE_SYSTEM.search(str(error)) is None:
            raise
        raise MissingTool(
            f"This session of Spark has no connector that reads {address}. For s3a:// it needs hadoop-aws in the version of "
            "its Hadoop (docs/spark.md, with spark-submit). prozess itself reads it without one: prozess.tables, or no "
            "--master."
        ) from error


_NO_FILE_SYSTEM = re.compile(r"ClassNotFoundException: Class org\.apache\.hadoop\.fs|No FileSystem for scheme")


def _of_directories(session: "SparkSession", name: str, runs: Sequence[RunSource]) -> "DataFrame":
    def read(numbers: Iterator[int]) -> Batches:
        while some := [runs[number] for number in islice(numbers, RUNS_AT_ONCE)]:
            if unseen := next((run for run in some if isinstance(run, Path) and not run.is_dir()), None):
                raise HistoryUnreadable(
                    f"{unseen} is not here. Spark's workers must see the runs under the same path: put them on storage that "
                    "they share, or into an object store."
                )
            yield from rows_of_group((name,), some)[name].to_batches()

    return map_numbers(session, len(runs), read, RUN_TABLES[name].schema, tasks=TASKS_MAX)


def result_of_tasks(session: "SparkSession", path: Path, table: ResultTable, row_groups: int) -> "DataFrame":
    """Returns a result of a check as its file has it, read by Spark's tasks. They must see it under the same path."""
    from pyspark.sql.functions import col

    def read(numbers: Iterator[int]) -> Batches:
        if not path.is_file():
            raise HistoryUnreadable(
                f"{path} is not here. Spark's workers must see it under this path: put the run on storage that they share."
            )
        with pq.ParquetFile(path, memory_map=True) as file:
            yield from file.iter_batches(ROWS_PER_BATCH, row_groups=list(numbers))

    frame = map_numbers(session, row_groups, read, schema_of(table), tasks=TASKS_MAX)
    return frame.select(*(col(field.name).alias(field.name, metadata=field.metadata) for field in fields_of(table)))


def readable_frame(raw: "DataFrame", columns: Sequence[ReadableColumn], names: RunNames) -> "DataFrame":
    """Returns a raw table of a history in its readable form. Spark computes it: a query that names few columns reads few."""
    from pyspark.sql.functions import broadcast

    if any(column.becomes == "topic" for column in columns):
        known = [(partition, topic, number) for partition, (topic, number) in names.partitions.items()]
        partitions = raw.sparkSession.createDataFrame(known, "partition int, _topic string, _number int")
        raw = raw.join(broadcast(partitions), "partition", "left")
    return raw.select(*(_made(c, names).alias(c.name, metadata={"comment": c.meaning}) for c in columns))


def _made(column: ReadableColumn, names: RunNames) -> "Column":
    from pyspark.sql.functions import array, array_compact, coalesce, col, create_map, expr, lit, when

    raw, name = col(f"`{column.source}`"), f"`{column.source}`"
    if (absent := ABSENT.get(column.becomes)) is not None:
        raw = when(raw != lit(absent), raw)
    match column.becomes:
        case "timestamp":
            if names.began_wall_ns is None:
                return lit(None).cast("timestamp")
            return when(raw.isNotNull(), expr(f"timestamp_micros(({name} + {names.began_wall_ns}) div 1000)"))
        case "truth":
            return raw == 1
        case "millionths":
            return when(col("absent") == 0, raw / lit(float(MICRO)))
        case "topic":
            return col("_number" if column.name == "number" else "_topic")
        case "name":
            pairs = [lit(part) for pair in names_of(column, names).items() for part in pair]
            unnamed = when(raw != NONE, raw.cast("string"))
            return coalesce(create_map(*pairs)[raw], unnamed) if pairs else unnamed
        case "names":
            return array_compact(
                array(*(when(raw.bitwiseAND(bit) != 0, lit(text)) for bit, text in column.codes.items()))
            )
        case "brokers":
            bits = f"filter(sequence(0, {MASK_BITS - 1}), n -> (shiftright({name}, n) & 1) = 1)"
            return when(raw.isNotNull(), expr(bits))
        case _:
            return raw
