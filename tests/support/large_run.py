"""A judged run as large as a matrix in one trial: 250 cells, 500 partitions, 100,000 sends, twelve faults. Made, not run."""

from pathlib import Path

import numpy as np

from prozess.harness.history.convert import finish_recording, write_history
from prozess.harness.history.manifest import seal_history, seal_judged
from prozess.harness.impact.cost import ImpactShown, WindowShown
from prozess.harness.plan.plan import Plan
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.recording.rows import Recorder, RowWriter
from prozess.harness.run_directory import RunDirectory, write_json
from prozess.harness.schema import METADATA, SENDS, MetadataKind, MetadataSource, Outcome
from prozess.harness.verdict import (
    AnomalyOutcome,
    CellAnomaly,
    CellVerdict,
    FaultShown,
    TrialVerdict,
    Verdict,
    WitnessShown,
)

S = 1_000_000_000
SENDS_IN_ALL, FAULTS, SECONDS = 100_000, 12, 120
JUDGED = (
    *("lost", "duplicate", "reordered", "offset-conflict", "phantom", "corrupt", "misplaced", "resurrected"),
    *("dirty-read", "skipped", "rewound", "unreported", "diverged", "unclean", "stalled", "unenforced"),
)


def large_run(path: Path) -> RunDirectory:
    """Write it."""
    run = RunDirectory(path)
    run.create()
    plan = make_plan(parse_trial(_document(), source="large"), seed=1)
    run.plan.write_text(plan.model_dump_json())
    write_json(run.clock, {"start_monotonic_ns": 0, "wall_minus_monotonic_ns": 0, "wall_error_ns": 0})
    _write_rows(run, plan)
    finish_recording(run)
    write_history(run)
    seal_history(run)
    run.impact.write_text(_impact(plan).model_dump_json())
    run.verdict.write_text(_verdict(plan).model_dump_json())
    seal_judged(run)
    return run


def _document() -> dict:
    axes = {
        "producer.acks": ["1", "all"],
        "producer.compression_type": ["none", "gzip", "snappy", "lz4", "zstd"],
        "producer.delivery_timeout_ms": [5_000, 10_000, 20_000, 40_000, 60_000],
        "producer.linger_ms": [0, 1, 5, 10, 50],
    }
    return {"name": "large", "title": "A large matrix", "axes": axes, "topics": {"partitions": 2}}


def _write_rows(run: RunDirectory, plan: Plan) -> None:
    writer, partitions = RowWriter(run.rows, SENDS, 1), len(plan.partitions)
    for i in range(SENDS_IN_ALL):
        at_ns = i * SECONDS * S // SENDS_IN_ALL
        outcome = Outcome.OK if i % 50 else Outcome.INFO
        writer.append(
            at_ns, at_ns + (1 + i % 97) * S // 1000, i // partitions, i, -1, -1, i % partitions, outcome, 0, 9
        )
    recorder, names = Recorder(run), [column.name for column in METADATA.columns]
    for partition in range(partitions):
        for change in range(10):
            known = {
                "time_ns": change * 12 * S + partition * S // 1000, "isr": 0b1110 if change % 2 == 0 else 0b0110,
                "replicas": 0b1110, "kind": MetadataKind.PARTITION, "source": MetadataSource.CONTROLLER_LOG,
                "partition": partition, "leader": change % 3 + 1, "leader_epoch": change,
            }  # fmt: skip
            recorder.write("metadata", **{name: value for name, value in known.items() if name in names})
    recorder.close()


def _impact(plan: Plan) -> ImpactShown:
    drawn = np.random.default_rng(1)
    windows = tuple(
        WindowShown(partition=int(p), begin_s=float(b), end_s=float(b) + 3, fault=int(p) % FAULTS)
        for p, b in zip(drawn.integers(0, len(plan.partitions), 200), drawn.uniform(0, SECONDS, 200), strict=True)
    )
    return ImpactShown(windows=windows, windows_counted=900)


def _faults() -> tuple[FaultShown, ...]:
    kinds = ("kill", "pause", "partition", "power-loss")
    return tuple(
        FaultShown(
            step=f"step {number}", fault=kinds[number % 4], nodes=(f"broker-{number % 3 + 1}",), begin_s=number * 10.0,
            end_s=number * 10.0 + 6, effective=True, detail="the process is gone", number=number,
        )
        for number in range(FAULTS)
    )  # fmt: skip


def _verdict(plan: Plan) -> TrialVerdict:
    cells = []
    for cell in plan.cells:
        lossy = cell.producer.acks == "1"
        anomalies = {name: _absent(name) for name in JUDGED}
        if lossy:
            anomalies["lost"] = _seen(plan, cell.cell, "lost", AnomalyOutcome.PERMITTED, 100 + cell.cell)
        if cell.cell % 50 == 49:
            anomalies["duplicate"] = _seen(plan, cell.cell, "duplicate", AnomalyOutcome.VIOLATED, 2)
        verdict = Verdict.VIOLATED if cell.cell % 50 == 49 else Verdict.HELD
        cells.append(
            CellVerdict(
                cell=cell.cell,
                name=cell.name,
                workload=cell.workload,
                axes=cell.axes,
                verdict=verdict,
                anomalies=anomalies,
            )
        )
    return TrialVerdict(
        verdict=Verdict.VIOLATED, sentence="5 cells kept records twice.", trial="large", title="A large matrix", seed=1,
        cells=tuple(cells), faults=_faults(),
    )  # fmt: skip


def _absent(name: str) -> CellAnomaly:
    reason = f"Not seen, and {name} would have been seen: a sentence of the usual length about this promise."
    return CellAnomaly(
        anomaly=name, outcome=AnomalyOutcome.HELD, verdict=Verdict.HELD, reason=reason, source="Kafka documentation"
    )


def _seen(plan: Plan, cell: int, name: str, outcome: AnomalyOutcome, count: int) -> CellAnomaly:
    number = plan.cells[cell].partitions[0]
    witnesses = tuple(
        WitnessShown(
            partition=number, topic=plan.partitions[number].topic_name, number=0, client=1,
            sequence=number + place * len(plan.partitions), log_offset=place, begin_s=place * 0.6, end_s=place * 0.6 + 0.01,
            effect="forbidden" if outcome is AnomalyOutcome.VIOLATED else "permitted", rule=f"{name}/acks-1",
            faults=("step 0", "step 1"),
        )
        for place in range(32)
    )  # fmt: skip
    verdict = Verdict.VIOLATED if outcome is AnomalyOutcome.VIOLATED else Verdict.HELD
    return CellAnomaly(
        anomaly=name, outcome=outcome, verdict=verdict, count=count, reason=f"{count} records are concerned.",
        source="Kafka documentation, acks", witnesses=witnesses,
    )  # fmt: skip
