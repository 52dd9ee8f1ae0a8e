"""The commands that need no cluster: they read recorded runs, convert histories, or look at what there is."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from prozess.app.commands.options import (
    ClientConfigOption,
    ConfOption,
    DecideOption,
    EngineOption,
    JsonOption,
    MasterOption,
    OutOption,
    QuietOption,
    RemoteOption,
    ResultsOption,
    RunArgument,
    RunsOption,
    StoredRunArgument,
    TablesAsJsonOption,
    TrustOption,
    VariantOption,
    WorkersOption,
    chosen,
    complete_directories,
    complete_subjects,
    overrides,
    spark_settings,
)
from prozess.harness.checking.memory import prepare_process
from prozess.harness.errors import BadInput

app = typer.Typer()


@app.command()
def check(  # noqa: PLR0913 - the options of a command
    run: StoredRunArgument,
    engine: EngineOption = "auto",
    workers: WorkersOption = 2,
    master: MasterOption = None,
    remote: RemoteOption = None,
    conf: ConfOption = None,
    out: ResultsOption = None,
    decide: DecideOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
    no_report: Annotated[
        bool, typer.Option("--no-report", help="Write findings and verdict, and leave the reports as they are.")
    ] = False,
    oracle: Annotated[
        bool,
        typer.Option("--oracle", help="Compare every finding with the same checks written in Spark SQL. This is slow."),
    ] = False,
) -> None:
    """Check, judge and report a run again, without a cluster. It prints the verdict before it writes the report."""
    prepare_process()
    from prozess.app.conduct import Options, recheck
    from prozess.harness.history.store import opened_run

    settings = spark_settings(conf or [])
    options = Options(
        Path(), engine, workers, "auto", quiet, as_json, master, remote, report=not no_report, conf=settings, out=out
    )
    options.refuse_contradictions()
    with opened_run(run, lambda name: settings.get(f"spark.hadoop.{name}"), kept=True, out=out) as opened:
        code = recheck(opened, options, oracle=oracle, decide=decide or ())
    raise typer.Exit(code)


@app.command()
def report(run_directory: RunArgument) -> None:
    """Write the reports of a run, or a campaign's index, again."""
    from prozess.campaigns.campaign_plan import CampaignDirectory
    from prozess.harness.errors import ExitCode
    from prozess.harness.history.manifest import condition_of
    from prozess.harness.report import report_run
    from prozess.harness.run_directory import RunDirectory

    if (directory := CampaignDirectory(run_directory.resolve())).is_there:
        from prozess.campaigns.campaign_index import write_index

        RunDirectory(directory.path).refuse_links()
        typer.echo(write_index(directory, directory.begun(), directory.attempts()))
        return
    run = RunDirectory.existing(run_directory)
    run.refuse_links()
    run.refuse_read_only()
    condition = condition_of(run, ("recorded", "history", "judged"))
    for path in report_run(run, condition):
        typer.echo(path)
    run.keep_private()
    for doubt in condition.doubts[:8]:
        typer.echo(f"prozess: unknown: {doubt}", err=True)
    if condition.damaged:
        raise typer.Exit(int(ExitCode.UNKNOWN))


@app.command()
def measured(
    directories: Annotated[list[Path], typer.Argument(help="The directories of runs or campaigns.")],
    into: Annotated[
        Path | None, typer.Option(help="The Markdown page to write it into, between its marks. Default: it is printed.")
    ] = None,
) -> None:
    """Summarize the measurements of many runs as Markdown. It covers clusters, faults by backend, and what Kafka did."""
    from prozess.campaigns.comparing import RunSummary, run_directories
    from prozess.campaigns.comparing.measured import measured_text, read_measured, write_into

    text = measured_text([read_measured(RunSummary.at(path)) for path in run_directories(directories)])
    if into is None:
        typer.echo(text, nl=False)
    else:
        write_into(into, text)


@app.command()
def runs(
    directories: Annotated[
        list[Path] | None, typer.Argument(help="The directories of runs or campaigns. Default: runs.")
    ] = None,
    trial: Annotated[str | None, typer.Option(help="List the runs of this trial alone.")] = None,
    verdict: Annotated[
        str | None, typer.Option(help="List those with this verdict alone: held, violated, unknown or none.")
    ] = None,
    last: Annotated[int, typer.Option(min=1, help="List at most so many, the newest first.")] = 30,
    as_json: TablesAsJsonOption = False,
) -> None:
    """List the runs that there are, with what came of each."""
    from prozess.campaigns.comparing.listing import list_runs

    if verdict not in (None, "held", "violated", "unknown", "none"):
        raise BadInput(f"--verdict {verdict!r} is no verdict. Give held, violated, unknown or none.")
    list_runs(directories or [Path("runs")], trial=trial, verdict=verdict, last=last, as_json=as_json)


@app.command()
def compare(
    run: Annotated[Path, typer.Argument(help="The directory of a run.", autocompletion=complete_directories)],
    other: Annotated[Path, typer.Argument(help="The directory of another run.", autocompletion=complete_directories)],
    as_json: TablesAsJsonOption = False,
) -> None:
    """Put two runs side by side. It shows settings that differ, the faults and their costs, and what was found."""
    from prozess.campaigns.comparing import RunSummary
    from prozess.campaigns.comparing.comparison import compare_runs, tell_comparison
    from prozess.harness.run_directory import RunDirectory

    found = [RunSummary(RunDirectory.existing(path)) for path in (run, other)]
    tell_comparison(compare_runs(*found), as_json=as_json)


@app.command()
def trends(
    places: Annotated[
        list[str],
        typer.Argument(
            metavar="RUNS…",
            help="The directories of runs or campaigns, or their URIs in an object store (s3a://bucket/nightly).",
            autocompletion=complete_directories,
        ),
    ],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("trends.html"),
    master: MasterOption = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with code 1 if anything got worse.")] = False,
) -> None:
    """Compare many nights of runs, and name what got worse. It compares verdicts, anomalies and recovery times."""
    from prozess.harness.history.store import StoredRun
    from prozess.campaigns.comparing.trends import Trends, tell_trends

    def find(runs: Sequence[Path | StoredRun]) -> Trends:
        from prozess.clusters.install.tools import find_java, spark_java_home
        from prozess.app.run.check import refuse_without_spark

        refuse_without_spark("prozess trends")
        from prozess.spark_checkers.session import start_session
        from prozess.spark_checkers.trends import find_trends

        spark = start_session(master=master, java_home=str(spark_java_home(find_java())))
        try:
            return find_trends(spark, runs)
        finally:
            spark.stop()

    raise typer.Exit(tell_trends(places, out, find=find, strict=strict))


@app.command(name="list")
def list_trials(
    scenarios: Annotated[
        bool, typer.Option("--scenarios", help="List the scenarios, and the trials that run each of them.")
    ] = False,
) -> None:
    """List the trials, campaigns and matrices of prozess."""
    from prozess.harness.plan.trial_files import known_campaigns, known_matrices, known_trials, load_trial
    from prozess.harness.report.terminal import show_scenarios, show_trials

    trials = [load_trial(str(path)) for path in known_trials().values()]
    if scenarios:
        show_scenarios(trials)
    else:
        show_trials(trials, campaigns=[*known_campaigns()], matrices=[*known_matrices()])


@app.command()
def explain(
    subject: Annotated[
        str,
        typer.Argument(
            help="The name of an anomaly, guarantee rule, fault or scenario, a word of a report, or a run directory.",
            autocompletion=complete_subjects,
        ),
    ],
) -> None:
    """Explain an anomaly, a rule, a fault, a scenario or a run. It names the sources, too."""
    from prozess.app.explain import explain as tell

    tell(subject)


@app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False) -> None:
    """Show what this machine offers, and what each lack costs you."""
    from dataclasses import asdict

    from prozess.clusters.doctor import probes
    from prozess.harness.report.terminal import show_probes

    told = probes()
    if as_json:
        typer.echo(json.dumps([asdict(probe) for probe in told], indent=1))
    else:
        show_probes(told)


@app.command()
def heal(
    run_directory: Annotated[Path | None, typer.Argument(help="A run directory. Default: all under --runs.")] = None,
    runs: RunsOption = Path("runs"),
    client_config: ClientConfigOption = None,
    trust: TrustOption = False,
) -> None:
    """Undo what an older run left behind. You may repeat it. It refuses a run that is still alive. It only names what a
    directory says of a run that this machine did not make."""
    from prozess.app.conduct import heal_runs
    from prozess.harness.config.existing_clusters import use

    use(client_config)
    raise typer.Exit(heal_runs(run_directory, runs, trust=trust))


# Commands for clusters in containers: images and compose-file.

server_app = typer.Typer()
images = typer.Typer(name="images", help="List or build images of Kafka and ZooKeeper.", no_args_is_help=True)
server_app.add_typer(images)


@images.command(name="list")
def images_list() -> None:
    """List the images that the Docker engine has."""
    from prozess.clusters.compose.engine import list_images

    for image in list_images():
        typer.echo(f"{image.name:40} {image.id.removeprefix('sha256:')[:12]} {image.bytes / 1e6:6.0f} MB")


@images.command(name="build")
def images_build(
    version: Annotated[
        list[str] | None, typer.Option(help="The version of Kafka. You may repeat it. Default: 4.4.0.")
    ] = None,
) -> None:
    """Build images without a registry, from Maven's jars and Debian's packages. For 3.x it builds ZooKeeper's image, too."""
    from prozess.clusters.compose.engine import build_images

    for name in build_images(version or ["4.4.0"], progress=typer.echo):
        typer.echo(f"The image {name} is there.")


@server_app.command(name="compose-file")
def compose_file(
    variant: VariantOption = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A setting: brokers=5, controllers=3, racks=['a','b'] or properties.KEY=VALUE. You may repeat it.",
        ),
    ] = None,
) -> None:
    """Print a Compose file for a cluster without a trial."""
    from pydantic import ValidationError

    from prozess.clusters.compose.file import persons_file
    from prozess.harness.config.configuration import Variant

    values: dict[str, Any] = {"properties": {}}
    for key, value in overrides(chosen(None, variant, None) or []).items():
        values[key.removeprefix("variant.")] = value
    for key, value in overrides(settings or []).items():
        head, _, rest = key.partition(".")
        if head == "properties" and rest:
            values["properties"][rest] = value
        else:
            values[key] = value
    try:
        made = Variant.model_validate(values)
    except ValidationError as error:
        problem = error.errors()[0]
        raise BadInput(f"--set {'.'.join(map(str, problem['loc']))}: {problem['msg']}.") from error
    typer.echo(persons_file(made, name=made.metadata_mode), nl=False)


# Commands that turn other programs' histories into runs, and runs into such histories: import, export, generate.

history_app = typer.Typer()
imports = typer.Typer(name="import", help="Make a run from another program's history. Then `prozess check` it.")
exports = typer.Typer(name="export", help="Write a run's history in another program's format.")
history_app.add_typer(imports)
history_app.add_typer(exports)
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
        help="Which faults the history had. unstated: any fault may have struck. "
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


@history_app.command()
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
