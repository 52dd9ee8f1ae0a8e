"""Trends over many runs: Spark reads the verdicts and impacts of any number of runs, and groups them by trial and night."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from prozess.harness.history.manifest import is_intact
from prozess.harness.report.runs.trends import Measure, NightOfTrial, Trends
from prozess.harness.run_directory import RunDirectory

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


def find_trends(spark: "SparkSession", runs: Sequence[Path]) -> Trends:
    """Returns the trends of these run directories. A run without a verdict, or with a torn or damaged one, is counted
    and left out."""
    verdicts = _read(spark, runs, "verdict.json", _VERDICT)
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
    impacts = _read(spark, runs, "impact.json", _IMPACT)
    if impacts is not None:
        impacts.createOrReplaceTempView("impacts")
        measures = tuple(Measure(**row.asDict()) for row in spark.sql(_MEASURES).collect() if row.value is not None)
    return Trends(nights, measures, len(runs), len(runs) - judged)


def _read(spark: "SparkSession", runs: Sequence[Path], name: str, schema: str) -> "DataFrame | None":
    """Returns the files with that name, one row each, with their `path`. None: there are none."""
    paths = [(run / name).resolve().as_uri() for run in runs if is_intact(RunDirectory(run), run / name)]
    if not paths:
        return None
    frame = spark.read.schema(schema).option("multiLine", value=True).json(paths)
    return frame.selectExpr("*", "_metadata.file_path as path")
