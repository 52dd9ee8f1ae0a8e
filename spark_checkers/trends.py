"""Trends over many runs: Spark reads the verdicts and impacts of any number of runs, and groups them by trial and night."""

from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa

from prozess.harness.errors import HarnessFailed
from prozess.harness.history.manifest import is_intact
from prozess.harness.history.store import StoredRun
from prozess.harness.report.runs.trends import Measure, NightOfTrial, Trends
from prozess.harness.run_directory import RunDirectory
from prozess.spark_checkers.session import Batches, last_line, map_numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_VERDICT = "verdict string, interrupted boolean, trial string, findings map<string, bigint>"
_PHASES = "phases array<struct<phase: string, acks: string, per_s: double>>"
_RECOVERY = "struct<median_ms: double, slowest_ms: double, never: bigint>"
_IMPACT = f"faults array<struct<name: string, {_PHASES}, longest_s: double, after_fault: {_RECOVERY}>>"
# The name of a run ends with the time when it began, in UTC. A night goes from noon to noon, and has the date of its
# first day. An imported or generated run may have any name.
_NIGHT = """
    coalesce(
        date_format(try_to_timestamp(regexp_extract(path, '([0-9]{8}T[0-9]{6})(-[0-9]+)?/[^/]+$', 1), "yyyyMMdd'T'HHmmss")
                    - interval 12 hours, 'yyyy-MM-dd'),
        'undated')
"""
_NIGHTS = f"""
    with runs as (select trial, {_NIGHT} as night, verdict, findings,
                  verdict = 'unknown' and coalesce(interrupted, false) as stopped
             from verdicts where verdict is not null),
    counted as (
        select trial, night, count_if(verdict = 'held') as held, count_if(verdict = 'violated') as violated,
               count_if(verdict = 'unknown' and not stopped) as unknown, count_if(stopped) as interrupted
        from runs group by trial, night
    ),
    found as (
        select trial, night, anomaly, sum(n) as n
        from runs lateral view explode(findings) as anomaly, n
        where n > 0 group by trial, night, anomaly
    )
    select c.trial, c.night, any_value(held) as held, any_value(violated) as violated, any_value(unknown) as unknown,
           any_value(interrupted) as interrupted,
           array_sort(collect_list(case when f.anomaly is not null then struct(f.anomaly, f.n) end)) as findings
    from counted c left join found f on f.trial = c.trial and f.night = c.night
    group by c.trial, c.night order by c.trial, c.night
"""
_MEASURES = f"""
    with runs as (
        select v.trial, v.night, i.faults
        from (select path, trial, {_NIGHT} as night, regexp_replace(path, '[^/]+$', '') as run from verdicts) v
        join (select regexp_replace(path, '[^/]+$', '') as run, faults from impacts) i on i.run = v.run
    ),
    faults as (select trial, night, fault, split(fault.name, ' ')[0] as kind from runs lateral view explode(faults) as fault),
    phases as (select trial, night, phase.* from faults lateral view explode(fault.phases) as phase)
    select trial, night, concat('recovery after ', kind) as name, median(fault.after_fault.median_ms) as value,
           'ms' as unit, count(*) as runs, true as higher_is_worse
    from faults group by trial, night, kind
    union all
    select trial, night, concat('longest gap under ', kind), max(fault.longest_s) * 1000, 'ms', count(*), true
    from faults group by trial, night, kind
    union all
    select trial, night, concat('throughput before faults, acks=', acks), median(per_s), 'records/s', count(*), false
    from phases where phase = 'before' group by trial, night, acks
    order by trial, name, night
"""


TASKS_MAX = 64
"""The most tasks that read stored runs."""
_TEXTS = pa.schema([("path", pa.string()), ("text", pa.string())])


def find_trends(spark: "SparkSession", runs: Sequence[Path | StoredRun]) -> Trends:
    """Returns the trends of these runs. A run without a verdict, or with a torn or damaged one, is counted and left out.
    Workers read stored runs where they are, logged in as whoever asks; directories they must see under the same path.
    HarnessFailed if a run cannot be read."""
    directories = [run for run in runs if isinstance(run, Path)]
    texts = _stored_texts(spark, [run for run in runs if isinstance(run, StoredRun)])
    verdicts = _read(spark, directories, texts, "verdict.json", _VERDICT)
    judged = 0
    if verdicts is not None:
        verdicts.createOrReplaceTempView("verdicts")
        judged = verdicts.where("verdict is not null").count()
    if verdicts is None or not judged:
        return Trends((), (), len(runs), len(runs))
    nights = tuple(
        NightOfTrial(
            row.trial,
            row.night,
            row.held,
            row.violated,
            row.unknown,
            tuple((f.anomaly, f.n) for f in row.findings),
            row.interrupted,
        )
        for row in spark.sql(_NIGHTS).collect()
    )
    measures: tuple[Measure, ...] = ()
    impacts = _read(spark, directories, texts, "impact.json", _IMPACT)
    if impacts is not None:
        impacts.createOrReplaceTempView("impacts")
        measures = tuple(Measure(**row.asDict()) for row in spark.sql(_MEASURES).collect() if row.value is not None)
    return Trends(nights, measures, len(runs), len(runs) - judged)


def _read(
    spark: "SparkSession", runs: Sequence[Path], texts: "DataFrame | None", name: str, schema: str
) -> "DataFrame | None":
    """Returns the files with that name, one row each, with their `path`. None: there are none."""
    from pyspark.sql.functions import col, from_json

    frames = []
    if paths := [(run / name).resolve().as_uri() for run in runs if is_intact(RunDirectory(run), run / name)]:
        frame = spark.read.schema(schema).option("multiLine", value=True).json(paths)
        frames.append(frame.selectExpr("*", "_metadata.file_path as path"))
    if texts is not None:
        of_name = texts.where(col("path").endswith(f"/{name}"))
        frames.append(of_name.select(from_json("text", schema).alias("told"), "path").select("told.*", "path"))
    return reduce(lambda one, other: one.unionByName(other), frames) if frames else None


def _stored_texts(spark: "SparkSession", runs: Sequence[StoredRun]) -> "DataFrame | None":
    """Returns a row for each verdict and impact of stored runs that is as the run's manifest says. None: no run is stored."""
    if not runs:
        return None

    def read(numbers: Iterator[int]) -> Batches:
        for number in numbers:
            rows = [{"path": path, "text": text} for path, text in _intact_texts(runs[number])]
            yield pa.RecordBatch.from_pylist(rows, _TEXTS)

    try:
        return map_numbers(spark, len(runs), read, _TEXTS, tasks=TASKS_MAX).localCheckpoint()
    except Exception as error:  # pyspark's, py4j's, or a lost connection: all mean that Spark failed
        raise HarnessFailed(f"Spark could not read the runs: {last_line(error)}") from error


def _intact_texts(stored: StoredRun) -> Iterator[tuple[str, str]]:
    with TemporaryDirectory(prefix="prozess-run-") as directory:
        run = RunDirectory(Path(directory))
        stored.fetch_small(run, (run.manifest.name, run.verdict.name, run.impact.name))
        for path in (run.verdict, run.impact):
            if is_intact(run, path):
                yield f"{stored.address}/{path.name}", path.read_text(encoding="utf-8", errors="replace")
