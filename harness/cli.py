"""The command line: thin over the stages. Imports little, so that `prozess --help` is fast.

Exit codes: 0 held, 1 violated, 2 unknown or interrupted, 254 bad arguments, 255 the harness failed.
"""

import json
import sys
import traceback
from errno import EDQUOT, ENOSPC
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.errors import BadInput, ExitCode, ProzessError

app = typer.Typer(
    name="prozess",
    help="Put your Kafka on trial: break a real cluster on purpose, prove from the history which promises held.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

# typer brings its own click since 0.26, and names only some of its exceptions; this is the root of them.
UsageProblem: type[Exception] = typer.BadParameter.__mro__[2]
assert UsageProblem.__name__ == "ClickException"

RunsOption = Annotated[Path, typer.Option("--runs", help="Where run directories are made.")]
EngineOption = Annotated[str, typer.Option(help="spark, or local (threads; for small histories).")]
WorkersOption = Annotated[int, typer.Option(min=1, help="Threads, or Spark tasks at a time.")]
MasterOption = Annotated[
    str | None, typer.Option(help="Spark's master, spark://host:port. The runs must be under the same path there.")
]
RemoteOption = Annotated[str | None, typer.Option(help="A Spark Connect server instead, sc://host:port.")]
SetOption = Annotated[list[str] | None, typer.Option("--set", help="KEY=VALUE laid over the trial file, TOML values.")]
BackendOption = Annotated[
    str | None, typer.Option("--backend", help="Where Kafka runs instead of where the trial says: local, compose.")
]
VariantOption = Annotated[
    str | None, typer.Option("--variant", help="Another metadata mode: kraft-isolated, kraft-combined, zookeeper.")
]
RunArgument = Annotated[Path, typer.Argument(help="A run directory.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Only the verdict.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print verdict.json instead of tables.")]


@app.command()
def run(  # noqa: PLR0913 - the options of a command
    trial: Annotated[str, typer.Argument(help="A trial's name (see `prozess list`), its .toml file, or a plan.json.")],
    seed: Annotated[int, typer.Option(help="The same seed gives the same schedule.")] = 1,
    runs: RunsOption = Path("runs"),
    engine: EngineOption = "spark",
    workers: WorkersOption = 2,
    master: MasterOption = None,
    remote: RemoteOption = None,
    isolation: Annotated[str, typer.Option(help="auto, namespaces or signals.")] = "auto",
    settings: SetOption = None,
    backend: BackendOption = None,
    variant: VariantOption = None,
    duration: Annotated[
        str | None, typer.Option("--for", help="A campaign instead: trial after trial, for 90s, 30m, 8h.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the campaign in this directory.")] = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a trial: cluster, clients, faults, audit, check, verdict, report. With --for: a campaign of many."""
    if duration is not None or resume is not None:
        from harness.campaign.command import campaign

        raise typer.Exit(campaign(trial, seed=seed, runs=runs, duration=duration, resume=resume))
    from harness.conduct import Options, conduct

    plan = load_plan(trial, seed=seed, settings=chosen(backend, variant, settings), isolation=isolation)
    options = Options(runs, engine, workers, isolation, quiet, as_json, master, remote)
    raise typer.Exit(conduct(plan, options))


@app.command()
def replay(
    run_directory: RunArgument,
    exact: Annotated[
        bool, typer.Option("--exact", help="Hit the very nodes that were hit; else roles are resolved anew.")
    ] = False,
    runs: RunsOption = Path("runs"),
    engine: EngineOption = "spark",
    workers: WorkersOption = 2,
    isolation: Annotated[str, typer.Option(help="auto, namespaces or signals.")] = "auto",
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a run again: the same plan, the same schedule, on a new cluster."""
    from harness.conduct import Options, conduct
    from harness.replay import not_struck, replay_plan
    from harness.run_directory import RunDirectory

    old = RunDirectory.existing(run_directory)
    plan = replay_plan(old, exact=exact)
    for name in not_struck(replay_plan(old, exact=False), plan):
        typer.echo(f"Step {name!r} struck nobody then, and does not strike now.", err=True)
    raise typer.Exit(conduct(plan, Options(runs, engine, workers, isolation, quiet, as_json)))


@app.command()
def check(
    run_directory: RunArgument,
    engine: EngineOption = "spark",
    workers: WorkersOption = 2,
    master: MasterOption = None,
    remote: RemoteOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
    oracle: Annotated[
        bool,
        typer.Option(
            "--oracle", help="Compare every finding with a second opinion: the same checks in Spark SQL. Slow."
        ),
    ] = False,
) -> None:
    """Check, judge and report a recorded run again. Needs no cluster."""
    from harness.conduct import Options, recheck

    options = Options(run_directory.parent, engine, workers, "auto", quiet, as_json, master, remote)
    raise typer.Exit(recheck(run_directory, options, oracle=oracle))


FileOption = Annotated[Path | None, typer.Option(help="A .properties, .json or .yaml file.")]


@app.command()
def validate(  # noqa: PLR0913 - the options of a command
    producer: FileOption = None,
    consumer: FileOption = None,
    topic: FileOption = None,
    broker: FileOption = None,
    compose: Annotated[
        Path | None, typer.Option(help="A Compose file whose KAFKA_* variables say what brokers are.")
    ] = None,
    service: Annotated[str | None, typer.Option(help="Which service of the Compose file.")] = None,
    client: Annotated[str, typer.Option(help="Whose properties: auto, java or librdkafka.")] = "auto",
    kafka_version: Annotated[str, typer.Option(help="Of the brokers.")] = "4.3.1",
    commits: Annotated[str, typer.Option(help="How the application commits, where it does so itself.")] = "sync-after",
    minutes: Annotated[float, typer.Option(min=0, help="No further trial begins after that; 0: predict only.")] = 5,
    seed: Annotated[int, typer.Option(help="Of the first trial.")] = 1,
    backend: Annotated[str, typer.Option(help="Where the trials run.")] = "local",
    strict: Annotated[bool, typer.Option("--strict", help="A weakness is a failure.")] = False,
    runs: RunsOption = Path("runs"),
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Predict what a configuration promises, then put exactly that on trial under every fault."""
    from harness.conduct import Options
    from harness.validation.command import Budget, Given
    from harness.validation.command import validate as carry_out

    given = Given(producer, consumer, topic, broker, compose, service, client, kafka_version, commits)
    budget = Budget(minutes * 60, seed=seed, backend=backend, strict=strict)
    raise typer.Exit(carry_out(given, budget, Options(runs, "spark", 2, "auto", quiet, as_json)))


@app.command()
def report(run_directory: RunArgument) -> None:
    """Write the reports of a judged run again."""
    from harness.report import report_run
    from harness.run_directory import RunDirectory

    for path in report_run(RunDirectory.existing(run_directory)):
        typer.echo(path)


@app.command()
def trends(
    directories: Annotated[list[Path], typer.Argument(help="Directories of runs, or of campaigns.")],
    out: Annotated[Path, typer.Option(help="Where the page is written.")] = Path("trends.html"),
    master: MasterOption = None,
    strict: Annotated[bool, typer.Option("--strict", help="A regression makes the exit code 1.")] = False,
) -> None:
    """What many nights of runs say: verdicts, what recovery took, what got worse."""
    from harness.trends import tell_trends

    raise typer.Exit(tell_trends(directories, out, master=master, strict=strict))


@app.command()
def plan(
    trial: Annotated[str, typer.Argument(help="A trial's name or file.")],
    seed: Annotated[int, typer.Option(help="The same seed gives the same schedule.")] = 1,
    settings: SetOption = None,
    backend: BackendOption = None,
    variant: VariantOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print plan.json.")] = False,
) -> None:
    """Show what a trial would do: cells, what is excluded and why, clients, schedule."""
    made = load_plan(trial, seed=seed, settings=chosen(backend, variant, settings))
    if as_json:
        typer.echo(made.model_dump_json(indent=1))
        return
    from harness.report.terminal import show_plan

    show_plan(made)


@app.command(name="list")
def list_trials(
    scenarios: Annotated[
        bool, typer.Option("--scenarios", help="By scenario, those that no trial runs included.")
    ] = False,
) -> None:
    """The trials that come with prozess."""
    from harness.report.terminal import show_scenarios, show_trials
    from harness.trial import known_trials, load_trial

    trials = [load_trial(str(path)) for path in known_trials().values()]
    (show_scenarios if scenarios else show_trials)(trials)


@app.command()
def scenarios(
    trials: Annotated[list[str] | None, typer.Argument(help="Trials; none: every one that runs a scenario.")] = None,
    runs: Annotated[
        Path, typer.Option("--runs", help="Where they are run; what has its verdict there is not run again.")
    ] = Path("runs/scenarios"),
    table: Annotated[
        Path | None, typer.Option(help="A Markdown file with a place for the table, such as docs/scenarios.md.")
    ] = None,
    engine: EngineOption = "spark",
    only_table: Annotated[bool, typer.Option("--only-table", help="Run nothing: what the runs there say.")] = False,
) -> None:
    """Every trial once, one after the other, and a table of what Kafka did. Goes on where it was interrupted."""
    from harness.campaign.scenarios import scenarios as carry_out

    raise typer.Exit(carry_out(trials or [], runs, table=table, engine=engine, only_table=only_table))


@app.command()
def explain(
    subject: Annotated[
        str, typer.Argument(help="An anomaly, a rule of the guarantee table, a fault, or a run directory.")
    ],
) -> None:
    """What an anomaly, a rule, a fault or a verdict means, and where that comes from."""
    from harness.explain import explain as tell

    tell(subject)


@app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """What this machine offers, and what each lack costs."""
    from dataclasses import asdict

    from harness import catalogue
    from harness.report.terminal import show_probes

    probes = catalogue.service("doctor")()
    if as_json:
        typer.echo(json.dumps([asdict(probe) for probe in probes], indent=1))
    else:
        show_probes(probes)


@app.command()
def heal(
    run_directory: Annotated[Path | None, typer.Argument(help="A run directory; without it, all under --runs.")] = None,
    runs: RunsOption = Path("runs"),
) -> None:
    """Undo what an older run left behind. Safe to repeat; refuses a run that is still alive."""
    from harness.conduct import heal_runs

    raise typer.Exit(heal_runs(run_directory, runs))


images = typer.Typer(name="images", help="Images of Kafka and ZooKeeper for the compose backend.", no_args_is_help=True)
app.add_typer(images)


@images.command(name="list")
def images_list() -> None:
    """Those that the engine has."""
    from harness import catalogue

    for image in catalogue.service("images")():
        typer.echo(f"{image.name:40} {image.id.removeprefix('sha256:')[:12]} {image.bytes / 1e6:6.0f} MB")


@images.command(name="build")
def images_build(
    version: Annotated[list[str] | None, typer.Option(help="Of Kafka; more than once. Default: 4.3.1.")] = None,
) -> None:
    """Build Kafka's (and for 3.x ZooKeeper's) from Maven's jars and Debian's packages: for where no registry answers."""
    from harness import catalogue

    for name in catalogue.service("build-images")(version or ["4.3.1"], progress=typer.echo):
        typer.echo(f"There is {name}.")


@app.command(name="compose-file")
def compose_file(
    variant: VariantOption = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="KEY=VALUE: brokers=5, controllers=3, racks=['a','b'], properties.KEY=VALUE"),
    ] = None,
) -> None:
    """Print a Compose file for `docker compose up`: a cluster without a trial."""
    from pydantic import ValidationError

    from harness import catalogue
    from harness.configuration import Variant

    values: dict[str, Any] = {"properties": {}}
    for key, value in _overrides(chosen(None, variant, None) or []).items():
        values[key.removeprefix("variant.")] = value
    for key, value in _overrides(settings or []).items():
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
    typer.echo(catalogue.service("compose-file")(made, name=made.metadata_mode), nl=False)


imports = typer.Typer(name="import", help="Make a run of another program's history; then `prozess check` it.")
exports = typer.Typer(name="export", help="Write a run's history in another program's form.")
app.add_typer(imports)
app.add_typer(exports)
OutOption = Annotated[Path, typer.Option("--out", help="The run directory to make: a new one, or an empty one.")]
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

    options = import_options(_overrides(settings or []), isolation, faults, kafka_version)
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

    options = import_options(_overrides(settings or []), isolation, faults, kafka_version)
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
) -> None:
    """Make a valid history out of nothing, with exactly the anomalies that are planted."""
    from harness.histories.commands import generate_history

    typer.echo(
        generate_history(out, rows=rows, partitions=partitions, plant=plant, workloads=workload or [], seed=seed)
    )


def load_plan(trial: str, *, seed: int, settings: list[str] | None, isolation: str = "auto") -> Any:  # noqa: ANN401 - Plan, imported late
    """The plan of a trial by name or file, or a plan.json as it stands. BadInput for anything else. `isolation`: what mixes
    can do depends on it."""
    from harness.plan import parse_plan
    from harness.planning import make_plan
    from harness.stages.run import lacking_faults
    from harness.trial import load_trial

    path = Path(trial)
    if path.suffix == ".json" or (path / "plan.json").is_file():
        if settings:
            raise BadInput("--set changes a trial file; a plan.json is run as it stands.")
        file = path if path.suffix == ".json" else path / "plan.json"
        try:
            plan = parse_plan(file.read_text(encoding="utf-8"), source=str(file))
            if plan.origin != "trial":
                raise BadInput(
                    f"{str(file)!r} is of a history that is {plan.origin}: it can be checked, but not run again."
                )
            return plan
        except OSError as error:
            raise BadInput(f"{str(file)!r} cannot be read: {error.strerror}. Give an existing plan.json.") from error
    loaded = load_trial(trial, _overrides(settings or []))
    return make_plan(loaded, seed=seed, lacking=lacking_faults(loaded, isolation=isolation))


LAST_WITH_ZOOKEEPER = "3.9.2"
"""Kafka 4.0 has no ZooKeeper mode any more (KIP-500)."""


def chosen(backend: str | None, variant: str | None, settings: list[str] | None) -> list[str] | None:
    """`--backend` and `--variant` as what `--set` would say; what it says itself has the last word."""
    laid_over = []
    if backend is not None:
        laid_over.append(f"backend={json.dumps(backend)}")
    if variant is not None:
        laid_over.append(f"variant.metadata_mode={json.dumps(variant)}")
    if variant == "zookeeper":
        laid_over.append(f"variant.kafka_version={json.dumps(LAST_WITH_ZOOKEEPER)}")
    return [*laid_over, *(settings or [])] or None


def _overrides(settings: list[str]) -> dict[str, Any]:
    import tomllib

    laid_over = {}
    for setting in settings:
        key, separator, value = setting.partition("=")
        if not separator or not key:
            raise BadInput(f"--set {setting!r} is not KEY=VALUE, such as --set traffic.rate_hz=50.")
        try:
            laid_over[key.strip()] = tomllib.loads(f"v = {value}")["v"]
        except tomllib.TOMLDecodeError:
            laid_over[key.strip()] = value.strip()
    return laid_over


def main() -> None:
    """The entry point: maps every way to end to an exit code, and prints one sentence instead of a traceback."""
    if not __debug__:
        sys.exit("prozess needs its assertions: do not run Python with -O.")
    sys.exit(_main())


def _main() -> int:
    try:
        result = app(standalone_mode=False)
        return int(result or 0)
    except UsageProblem as error:
        error.show()  # type: ignore[attr-defined] # every ClickException has it
        return int(ExitCode.BAD_INPUT)
    except (typer.Abort, KeyboardInterrupt):
        typer.echo("Interrupted.", err=True)
        return int(ExitCode.UNKNOWN)
    except ProzessError as error:
        typer.echo(f"prozess: {error}", err=True)
        return int(error.exit_code)
    except Exception as error:  # noqa: BLE001 - the last resort: say it in a sentence, keep the traceback in a file
        if isinstance(error, OSError) and error.errno in (ENOSPC, EDQUOT):
            where = f" while writing {error.filename}" if error.filename else ""
            typer.echo(
                f"prozess: no space left on the device{where}. What was recorded is kept; free space there and run "
                "`prozess check` on the run directory, or give another --runs directory.",
                err=True,
            )
            return int(ExitCode.HARNESS_FAILED)
        typer.echo(
            f"prozess: a mistake of ours: {type(error).__name__}: {error}. Details: {_keep_traceback()}", err=True
        )
        return int(ExitCode.HARNESS_FAILED)


def _keep_traceback() -> str:
    import tempfile

    with tempfile.NamedTemporaryFile("w", prefix="prozess-", suffix=".traceback", delete=False) as file:
        traceback.print_exc(file=file)
    return file.name


if __name__ == "__main__":
    main()
