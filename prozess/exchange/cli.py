"""The commands that turn other programs' histories into runs, and runs into such histories: import, export, generate."""

from pathlib import Path
from typing import Annotated

import typer

from prozess.app.commands.options import (
    HISTORIES,
    DecideOption,
    OutOption,
    RunArgument,
    overrides,
)

app = typer.Typer()


imports = typer.Typer(name="import", help="Make a run from another program's history. Then `prozess check` it.")
exports = typer.Typer(name="export", help="Write a run's history in another program's format.")
app.add_typer(imports, rich_help_panel=HISTORIES)
app.add_typer(exports, rich_help_panel=HISTORIES)
ImportSetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="A setting that the clients or topics had, such as producer.acks=1. You may repeat it. "
        "Default: acks=all, idempotent.",
    ),
]
IsolationLevelOption = Annotated[
    str, typer.Option("--isolation", help="The isolation.level of the consumers: read_committed or read_uncommitted.")
]
FaultsOption = Annotated[
    str,
    typer.Option(
        help="Which faults the history had. unstated: any fault may have been active. "
        "none: no replica lost data, and nobody asked for an unclean election.",
    ),
]
VersionOption = Annotated[
    str | None, typer.Option("--kafka-version", help="The version of the brokers. Known defects depend on it.")
]


@imports.command(name="jepsen")
def import_jepsen(
    file: Annotated[Path, typer.Argument(help="The history.edn that a Jepsen test wrote (jepsen.tests.kafka).")],
    out: OutOption,
    settings: ImportSetOption = None,
    isolation: IsolationLevelOption = "read_committed",
    transactions: Annotated[
        str, typer.Option(help="Whether each operation is a transaction: auto, yes or no.")
    ] = "auto",
    faults: FaultsOption = "unstated",
    kafka_version: VersionOption = None,
    decide: DecideOption = None,
) -> None:
    """Import the history of a Jepsen test of Kafka. The file has one operation per line of EDN."""
    from prozess.exchange.commands import import_jepsen, import_options

    options = import_options(overrides(settings or []), isolation, faults, kafka_version, decide or ())
    typer.echo(import_jepsen(file, out, options, transactions=transactions))


@imports.command(name="verifiable")
def import_verifiable(
    files: Annotated[list[Path], typer.Argument(help="The output of the clients, one file per client, in JSON lines.")],
    out: OutOption,
    settings: ImportSetOption = None,
    isolation: IsolationLevelOption = "read_committed",
    faults: FaultsOption = "unstated",
    kafka_version: VersionOption = None,
    same_clock: Annotated[
        bool, typer.Option("--same-clock", help="All clients ran on one machine, so their times can be compared.")
    ] = False,
    decide: DecideOption = None,
) -> None:
    """Import what Kafka's VerifiableProducer, VerifiableConsumer and VerifiableShareConsumer printed."""
    from prozess.exchange.commands import import_options, import_verifiable

    options = import_options(
        overrides(settings or []), isolation, faults, kafka_version, decide or (), same_clock=same_clock
    )
    typer.echo(import_verifiable(files, out, options))


@exports.command(name="jepsen")
def export_jepsen(
    run_directory: RunArgument,
    out: Annotated[Path, typer.Option("--out", help="The file to write: history.edn.")],
) -> None:
    """Write the history as jepsen.tests.kafka does. The file has one operation per line of EDN."""
    from prozess.exchange.commands import export_jepsen

    typer.echo(export_jepsen(run_directory, out))


@app.command(rich_help_panel=HISTORIES)
def generate(
    out: OutOption,
    rows: Annotated[
        int, typer.Option(help="About how many rows to make: sends, reads and processed records together.")
    ],
    partitions: Annotated[int, typer.Option(help="How many partitions the topic of each cell has.")] = 4,
    plant: Annotated[str, typer.Option(help="Which anomalies to plant, and how many: lost=50,duplicate=40.")] = "",
    workload: Annotated[
        list[str] | None,
        typer.Option(help="A kind of cell: log, transactions, group or compaction. You may repeat it."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same history.")] = 1,
    transaction_records: Annotated[
        int | None,
        typer.Option(
            help="How many records a transaction has, each in another partition; such transactions also read. "
            "Default: 16 records in every partition, and no reads."
        ),
    ] = None,
) -> None:
    """Make a valid history with exactly the anomalies you plant.

    planted.parquet in the run directory has a row for each witness that a check must find: anomaly, partition, client,
    sequence, log_offset, reader and begin_ns, as in findings/witnesses.parquet.
    """
    from prozess.exchange.commands import generate_history

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
