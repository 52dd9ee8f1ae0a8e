"""Commands that run Kafka, or tell what would be run: run, replay, validate, plan."""

from pathlib import Path
from typing import Annotated

import typer

from harness.commands import completion
from harness.commands.options import (
    BackendOption,
    EngineOption,
    JsonOption,
    MasterOption,
    QuietOption,
    RemoteOption,
    RunArgument,
    RunsOption,
    SetOption,
    VariantOption,
    WorkersOption,
)
from harness.commands.plans import chosen, load_plan

app = typer.Typer()

FileOption = Annotated[Path | None, typer.Option(help="A .properties, .json or .yaml file.")]


@app.command()
def run(  # noqa: PLR0913 - the options of a command
    trial: Annotated[
        str,
        typer.Argument(
            help="A trial's name (see `prozess list`), its .toml file, or a plan.json.",
            autocompletion=completion.trials,
        ),
    ],
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
    rounds: Annotated[
        int | None,
        typer.Option(min=1, help="A campaign instead: every trial with every combination of its values, so often."),
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the campaign in this directory.")] = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a trial and judge it, or a campaign of many. Cluster, clients, faults, audit, check, verdict, report; with --for or
    --rounds one trial after the other."""
    if duration is not None or rounds is not None or resume is not None:
        from harness.campaign.command import campaign

        raise typer.Exit(campaign(trial, seed=seed, runs=runs, duration=duration, resume=resume, rounds=rounds))
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
    """Run the plan of a run again, on a new cluster."""
    from harness.conduct import Options, conduct
    from harness.replay import not_struck, replay_plan
    from harness.run_directory import RunDirectory

    old = RunDirectory.existing(run_directory)
    plan = replay_plan(old, exact=exact)
    for name in not_struck(replay_plan(old, exact=False), plan):
        typer.echo(f"Step {name!r} struck nobody then, and does not strike now.", err=True)
    raise typer.Exit(conduct(plan, Options(runs, engine, workers, isolation, quiet, as_json)))


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
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="A running cluster, which is asked what its brokers are set to; only read."
        ),
    ] = None,
    cluster_topic: Annotated[
        str | None, typer.Option(metavar="NAME", help="A topic of that cluster, to be asked for its settings.")
    ] = None,
    client: Annotated[str, typer.Option(help="Whose properties: auto, java or librdkafka.")] = "auto",
    kafka_version: Annotated[
        str | None, typer.Option(help="Of the brokers; else what --cluster tells, else 4.3.1.")
    ] = None,
    commits: Annotated[str, typer.Option(help="How the application commits, where it does so itself.")] = "sync-after",
    minutes: Annotated[float, typer.Option(min=0, help="No further trial begins after that; 0: predict only.")] = 5,
    seed: Annotated[int, typer.Option(help="Of the first trial.")] = 1,
    backend: Annotated[str, typer.Option(help="Where the trials run.")] = "local",
    strict: Annotated[
        bool, typer.Option("--strict", help="What a change of settings would rule out is a failure.")
    ] = False,
    runs: RunsOption = Path("runs"),
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """What your own configuration promises, and whether it holds. Predicts, then puts exactly that on trial under every
    fault."""
    from harness.conduct import Options
    from harness.validation.command import Budget, Given
    from harness.validation.command import validate as carry_out

    given = Given(
        producer, consumer, topic, broker, compose, service, client, kafka_version, commits,
        cluster=cluster, cluster_topic=cluster_topic,
    )  # fmt: skip
    budget = Budget(minutes * 60, seed=seed, backend=backend, strict=strict)
    raise typer.Exit(carry_out(given, budget, Options(runs, "spark", 2, "auto", quiet, as_json)))


@app.command()
def plan(
    trial: Annotated[str, typer.Argument(help="A trial's name or file.", autocompletion=completion.trials)],
    seed: Annotated[int, typer.Option(help="The same seed gives the same schedule.")] = 1,
    settings: SetOption = None,
    backend: BackendOption = None,
    variant: VariantOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print plan.json.")] = False,
) -> None:
    """What a trial would do, without doing it. Cells, what is excluded and why, clients, schedule."""
    made = load_plan(trial, seed=seed, settings=chosen(backend, variant, settings))
    if as_json:
        typer.echo(made.model_dump_json(indent=1))
        return
    from harness.report.terminal import show_plan

    show_plan(made)


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
    """Every trial once, and a table of what Kafka did. Goes on where it was interrupted."""
    from harness.campaign.scenarios import scenarios as carry_out

    raise typer.Exit(carry_out(trials or [], runs, table=table, engine=engine, only_table=only_table))


@app.command()
def shrink(
    run_directory: Annotated[Path | None, typer.Argument(help="A run that was violated.")] = None,
    anomaly: Annotated[
        str | None, typer.Option(help="Which of its anomalies; else the one with the most witnesses.")
    ] = None,
    cell: Annotated[int | None, typer.Option(help="In which of its cells.")] = None,
    duration: Annotated[str, typer.Option("--for", help="No further run begins after that: 90s, 30m, 8h.")] = "1h",
    runs: RunsOption = Path("runs"),
    resume: Annotated[Path | None, typer.Option(help="Go on with the shrink in this directory.")] = None,
    isolation: Annotated[str, typer.Option(help="auto, namespaces or signals.")] = "auto",
) -> None:
    """The smallest plan that still shows a run's violation. And how often it does."""
    from harness.shrink.command import Asked, carry_out

    raise typer.Exit(carry_out(Asked(run_directory, anomaly, cell, duration, runs, resume, isolation)))
