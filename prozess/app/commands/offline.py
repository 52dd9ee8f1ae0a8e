"""The commands that need no cluster: they read recorded runs, convert histories, or look at what there is."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from prozess.app.commands.options import (
    MACHINE,
    RUN,
    RUNS,
    ClientConfigOption,
    ConfOption,
    DecideOption,
    EngineOption,
    JsonOption,
    MasterOption,
    QuietOption,
    RemoteOption,
    ResultsOption,
    RunsOption,
    StoredRunArgument,
    TablesOption,
    TrustOption,
    VariantOption,
    WorkersOption,
    chosen,
    complete_subjects,
    overrides,
    spark_settings,
)
from prozess.harness.checking.memory import prepare_process
from prozess.harness.errors import BadInput

app = typer.Typer()


@app.command(rich_help_panel=RUNS)
def check(  # noqa: PLR0913 - the options of a command
    run: StoredRunArgument,
    engine: EngineOption = "auto",
    workers: WorkersOption = 2,
    master: MasterOption = None,
    remote: RemoteOption = None,
    conf: ConfOption = None,
    out: ResultsOption = None,
    tables: TablesOption = None,
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
    from prozess.app.conduct import recheck
    from prozess.app.run_options import RunOptions
    from prozess.harness.history.store import opened_run

    settings = spark_settings(conf or [])
    if out is not None and tables is not None:
        raise BadInput(
            "--tables writes what the run directory says, and with --out that stays as it was. Leave one of them out."
        )
    options = RunOptions(
        *(Path(), engine, workers, "auto", quiet, as_json, master, remote),
        report=not no_report, conf=settings, out=out, tables=tables,
    )  # fmt: skip
    options.refuse_contradictions()
    with opened_run(run, lambda name: settings.get(f"spark.hadoop.{name}"), kept=True, out=out) as opened:
        code = recheck(opened, options, oracle=oracle, decide=decide or ())
    raise typer.Exit(code)


@app.command(name="list", rich_help_panel=RUN)
def list_trials(
    scenarios: Annotated[
        bool, typer.Option("--scenarios", help="List the scenarios, and the trials that run each of them.")
    ] = False,
) -> None:
    """List the trials, campaigns, matrices and exhibits of prozess."""
    from prozess.harness.plan.trial_files import (
        known_campaigns,
        known_exhibits,
        known_matrices,
        known_trials,
        load_trial,
    )
    from prozess.harness.report.terminal import show_scenarios, show_trials

    trials = [load_trial(str(path)) for path in known_trials().values()]
    if scenarios:
        show_scenarios(trials)
    else:
        show_trials(trials, campaigns=[*known_campaigns()], matrices=[*known_matrices()], exhibits=[*known_exhibits()])


@app.command(rich_help_panel=RUNS)
def explain(
    subject: Annotated[
        str,
        typer.Argument(
            help="The name of an anomaly, guarantee rule, fault or scenario, a word of a report, or a run directory.",
            autocompletion=complete_subjects,
        ),
    ],
    sources: Annotated[
        bool,
        typer.Option("--sources", help="Of an anomaly also the reasons, sources and measurements behind its rules."),
    ] = False,
) -> None:
    """Explain an anomaly, a rule, a fault, a scenario or a run."""
    from prozess.app.explain import explain as tell

    tell(subject, sources=sources)


@app.command(rich_help_panel=MACHINE)
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False) -> None:
    """Show what this machine can do, and which faults are not possible without the rest."""
    from dataclasses import asdict

    from prozess.clusters.doctor import probes, show_probes

    found = probes()
    if as_json:
        typer.echo(json.dumps([asdict(probe) for probe in found], indent=1))
    else:
        show_probes(found)


@app.command(rich_help_panel=MACHINE)
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
server_app.add_typer(images, rich_help_panel=MACHINE)


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


@server_app.command(name="compose-file", rich_help_panel=MACHINE)
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
