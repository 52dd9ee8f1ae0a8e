"""Trends over many runs: Spark reads the verdicts and impacts of any number of runs, and groups them by trial and night."""

import json
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa

from prozess.harness.errors import HistoryUnreadable
from prozess.harness.history.manifest import is_intact
from prozess.harness.history.store import StoredRun
from prozess.harness.impact.trends import Measure, NightOfTrial, Trends
from prozess.harness.run_directory import RunDirectory, read_object
from prozess.spark_checkers.session import Batches, failure_of_workers, map_numbers

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
"""The most tasks that read runs."""
RUNS_AT_ONCE = 64
"""How many runs a task hands to Spark together."""
_OF_VERDICT = ("verdict", "interrupted", "trial", "findings")
_OF_IMPACT = ("faults",)
_TEXTS = pa.schema([("path", pa.string()), ("text", pa.string())])


def find_trends(spark: "SparkSession", runs: Sequence[Path | StoredRun]) -> Trends:
    """Returns the trends of these runs. A run without a verdict, or with a torn or damaged one, is counted and left out.
    Workers read stored runs where they are, logged in as whoever asks; directories they must see under the same path.
    HarnessFailed if a run cannot be read."""
    texts = _texts(spark, runs)
    verdicts = _read(texts, "verdict.json", _VERDICT)
    verdicts.createOrReplaceTempView("verdicts")
    judged = verdicts.where("verdict is not null").count()
    if not judged:
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
    _read(texts, "impact.json", _IMPACT).createOrReplaceTempView("impacts")
    measures = tuple(Measure(**row.asDict()) for row in spark.sql(_MEASURES).collect() if row.value is not None)
    return Trends(nights, measures, len(runs), len(runs) - judged)


def _read(texts: "DataFrame", name: str, schema: str) -> "DataFrame":
    """Returns the files with that name, one row each, with their `path`."""
    from pyspark.sql.functions import col, from_json

    of_name = texts.where(col("path").endswith(f"/{name}"))
    return of_name.select(from_json("text", schema).alias("reported"), "path").select("reported.*", "path")


def _texts(spark: "SparkSession", runs: Sequence[Path | StoredRun]) -> "DataFrame":
    """Returns a row for each verdict and impact that is as the run's manifest says, with the part of it that trends need: a
    hundredth of a verdict with all of its witnesses. HarnessFailed if Spark cannot read the runs."""

    def read(numbers: Iterator[int]) -> Batches:
        while some := list(islice(numbers, RUNS_AT_ONCE)):
            rows = [{"path": path, "text": text} for number in some for path, text in _needed_of(runs[number])]
            yield pa.RecordBatch.from_pylist(rows, _TEXTS)

    try:
        return map_numbers(spark, len(runs), read, _TEXTS, tasks=TASKS_MAX).localCheckpoint()
    except Exception as error:  # pyspark's, py4j's, or a lost connection: all mean that Spark failed
        raise failure_of_workers(error, "read the runs", way_out="") from error


def _needed_of(found: Path | StoredRun) -> Iterator[tuple[str, str]]:
    """Yields path and text of what is needed of a run. A file that is torn or damaged is left out."""
    with _small_files(found) as (run, address):
        for path, keys in ((run.verdict, _OF_VERDICT), (run.impact, _OF_IMPACT)):
            if is_intact(run, path):
                with suppress(HistoryUnreadable):
                    whole = read_object(path)
                    yield f"{address}/{path.name}", json.dumps({key: whole[key] for key in keys if key in whole})


@contextmanager
def _small_files(found: Path | StoredRun) -> Iterator[tuple[RunDirectory, str]]:
    """A context in which the small files of a run are here. Gives the directory, and the run's address."""
    if isinstance(found, Path):
        if not found.is_dir():
            raise HistoryUnreadable(
                f"{found} is not on {socket.gethostname()}. Spark's workers must see the runs under the same path: put them "
                "on storage that they share, or into an object store."
            )
        yield RunDirectory(found), found.resolve().as_uri()
        return
    with TemporaryDirectory(prefix="prozess-run-") as directory:
        run = RunDirectory(Path(directory))
        found.fetch_small(run, (run.manifest.name, run.verdict.name, run.impact.name))
        yield run, found.address
