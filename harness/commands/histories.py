"""Commands that make runs of histories from elsewhere, and the other way round: import, export, generate."""

from pathlib import Path
from typing import Annotated

import typer

from harness.commands.options import OutOption, RunArgument
from harness.commands.plans import overrides

app = typer.Typer()
imports = typer.Typer(name="import", help="A run out of another program's history. Then `prozess check` it.")
exports = typer.Typer(name="export", help="Write a run's history in another program's form.")
app.add_typer(imports)
app.add_typer(exports)
ImportSetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="What the clients and topics were set to, KEY=VALUE: producer.acks=1. Default: acks=all, idempotent.",
    ),
]
IsolationLevelOption = Annotated[
    str, typer.Option("--isolation", help="isolation.level of the consumers: read_committed or read_uncommitted.")
]
FaultsOption = Annotated[
    str,
    typer.Option(
        help="unstated: anything may have struck; none: no copy was destroyed, no unclean election asked for."
    ),
]
VersionOption = Annotated[
    str | None, typer.Option("--kafka-version", help="Of the brokers; known defects depend on it.")
]


@imports.command(name="jepsen")
def import_jepsen(
    file: Annotated[Path, typer.Argument(help="Jepsen's history.edn (jepsen.tests.kafka).")],
    out: OutOption,
    settings: ImportSetOption = None,
    isolation: IsolationLevelOption = "read_committed",
    transactions: Annotated[str, typer.Option(help="Are operations transactions? auto, yes or no.")] = "auto",
    faults: FaultsOption = "unstated",
    kafka_version: VersionOption = None,
) -> None:
    """Jepsen's Kafka history: one operation per line of EDN."""
    from harness.histories.commands import import_jepsen, import_options

    options = import_options(overrides(settings or []), isolation, faults, kafka_version)
    typer.echo(import_jepsen(file, out, options, transactions=transactions))


@imports.command(name="verifiable")
def import_verifiable(
    files: Annotated[list[Path], typer.Argument(help="What each client printed: one file per client, JSON lines.")],
    out: OutOption,
    settings: ImportSetOption = None,
    isolation: IsolationLevelOption = "read_committed",
    faults: FaultsOption = "unstated",
    kafka_version: VersionOption = None,
) -> None:
    """What Kafka's VerifiableProducer, VerifiableConsumer and VerifiableShareConsumer printed."""
    from harness.histories.commands import import_options, import_verifiable

    options = import_options(overrides(settings or []), isolation, faults, kafka_version)
    typer.echo(import_verifiable(files, out, options))


@exports.command(name="jepsen")
def export_jepsen(
    run_directory: RunArgument,
    out: Annotated[Path, typer.Option("--out", help="The file to write: history.edn.")],
) -> None:
    """As jepsen.tests.kafka writes its histories: one operation per line of EDN."""
    from harness.histories.commands import export_jepsen

    typer.echo(export_jepsen(run_directory, out))


@app.command()
def generate(
    out: OutOption,
    rows: Annotated[int, typer.Option(help="Of sends, reads and processed records together, about.")],
    partitions: Annotated[int, typer.Option(help="Of the topic of each cell.")] = 4,
    plant: Annotated[str, typer.Option(help="What to plant: lost=50,duplicate=40.")] = "",
    workload: Annotated[
        list[str] | None, typer.Option(help="Kinds of cells: log, transactions, group, compaction; more than once.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same history.")] = 1,
    transaction_records: Annotated[
        int | None,
        typer.Option(
            help="Records per transaction, each in another partition, in transactions that read, too. "
            "Default: 16 in every partition, and no reads."
        ),
    ] = None,
) -> None:
    """A valid history with exactly the anomalies planted in it."""
    from harness.histories.commands import generate_history

    typer.echo(
        generate_history(
            out,
            rows=rows,
            partitions=partitions,
            plant=plant,
            workloads=workload or [],
            seed=seed,
            transaction_records=transaction_records,
        )
    )
