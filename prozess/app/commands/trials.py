"""The commands that run Kafka, or say what a run would do: run, replay, validate, plan, scenarios, shrink, matrix."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prozess.app.commands.options import (
    BackendOption,
    ClientConfigOption,
    CoresOption,
    DecideOption,
    EngineOption,
    JsonOption,
    MasterOption,
    QuietOption,
    RemoteOption,
    RunArgument,
    RunsOption,
    SetOption,
    ShardOption,
    TablesAsJsonOption,
    TrustOption,
    VariantOption,
    WebhookOption,
    WorkersOption,
    chosen,
    complete_matrices,
    complete_trials,
    decided_by,
    finite,
    load_plan,
    overrides,
    plan_file,
)
from prozess.harness.errors import BadInput

if TYPE_CHECKING:
    from prozess.app.webhook import Webhook

app = typer.Typer()


def use_login(file: Path | None) -> None:
    """Uses this file to log in to an existing cluster. The module that does it is imported only now."""
    from prozess.harness.config.existing_clusters import use

    use(file)


def webhook_of(url: str | None) -> "Webhook | None":
    """Returns the webhook that somebody named, if any. The module is imported only now."""
    from prozess.app.webhook import webhook_of

    return webhook_of(url)


def _file_option(owner: str) -> object:
    return typer.Option(help=f"The settings of your {owner}: a .properties, .json or .yaml file.")


@app.command()
def run(  # noqa: PLR0913 - the options of a command
    trial: Annotated[
        str,
        typer.Argument(
            help="The name of a trial (see `prozess list`), a trial's .toml file, or a plan.json.",
            autocompletion=complete_trials,
        ),
    ],
    seed: Annotated[
        int,
        typer.Option(min=0, help="The number that fixes every random choice. The same seed gives the same schedule."),
    ] = 1,
    runs: Annotated[
        str, typer.Option(help="The directory for runs. For a campaign with --master: its own directory, or a URI.")
    ] = "runs",
    engine: EngineOption = "auto",
    workers: WorkersOption = 2,
    master: MasterOption = None,
    remote: RemoteOption = None,
    isolation: Annotated[str, typer.Option(help="How nodes are kept apart: auto, namespaces or signals.")] = "auto",
    settings: SetOption = None,
    backend: BackendOption = None,
    variant: VariantOption = None,
    decide: DecideOption = None,
    duration: Annotated[
        str | None, typer.Option("--for", help="Run a campaign: trial after trial, for 90s, 30m or 8h.")
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(min=1, help="Run a campaign: this many times every trial with every combination of its values."),
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the campaign in this directory.")] = None,
    trust: TrustOption = False,
    shard: ShardOption = None,
    cores: CoresOption = 2,
    client_config: ClientConfigOption = None,
    webhook: WebhookOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a trial and judge it, or run a campaign of many trials. A trial starts a cluster and clients, breaks the cluster,
    audits what is in its logs, and reports a verdict. With --for or --rounds, trials run one after the other."""
    use_login(client_config)
    hook = webhook_of(webhook)
    if duration is not None or rounds is not None or resume is not None:
        if decide:
            raise BadInput(
                "--decide applies to one run, not to a campaign. Leave it out, and run `prozess check RUN --decide …` "
                "afterwards."
            )
        if given := [
            name for name, value in {"--quiet": quiet, "--json": as_json, "--remote": remote}.items() if value
        ]:
            raise BadInput(
                f"{given[0]} applies to one run, not to a campaign, which has an index of its runs. Leave it out."
            )
        from prozess.campaigns.campaign_plan import ALL_TRIALS, GivenToEach, parse_shard
        from prozess.campaigns.campaign_runner import campaign, campaign_on_spark

        each = GivenToEach(
            overrides(chosen(backend, variant, settings) or []), _options_of_each(engine, workers, isolation)
        )
        if master is not None:
            if each.options:
                raise BadInput(f"With --master each machine checks its trials by threads. Leave {each.options[0]} out.")
            if duration is not None or resume is not None or shard is not None:
                raise BadInput(
                    "--master shares the trials of all --rounds out itself. Leave --for, --resume and --shard out."
                )
            code = campaign_on_spark(
                trial,
                seed=seed,
                runs=runs,
                rounds=rounds,
                master=master,
                cores=cores,
                settings=each.settings,
                webhook=hook,
            )
            raise typer.Exit(code)
        share = ALL_TRIALS if shard is None else parse_shard(shard)
        raise typer.Exit(
            campaign(
                trial,
                seed=seed,
                runs=Path(runs),
                duration=duration,
                resume=resume,
                rounds=rounds,
                shard=share,
                each=each,
                webhook=hook,
                trust=trust,
            )
        )
    if shard is not None:
        raise BadInput("--shard gives a machine its share of a campaign. A campaign needs --for or --rounds.")
    from prozess.app.conduct import Options, conduct_told

    plan = load_plan(trial, seed=seed, settings=chosen(backend, variant, settings), isolation=isolation, trust=trust)
    plan = decided_by(plan, decide)
    options = Options(Path(runs), engine, workers, isolation, quiet, as_json, master, remote)
    raise typer.Exit(conduct_told(plan, options, hook))


def _options_of_each(engine: str, workers: int, isolation: str) -> tuple[str, ...]:
    """Returns the options that differ from their defaults, for each trial of a campaign."""
    given = {"--engine": (engine, "auto"), "--workers": (workers, 2), "--isolation": (isolation, "auto")}
    return tuple(word for name, (value, usual) in given.items() if value != usual for word in (name, str(value)))


@app.command()
def replay(  # noqa: PLR0913 - the options of a command
    run_directory: RunArgument,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="Strike the same nodes as in that run. Default: the same roles, such as the leader of a partition.",
        ),
    ] = False,
    runs: RunsOption = Path("runs"),
    engine: EngineOption = "auto",
    workers: WorkersOption = 2,
    isolation: Annotated[str, typer.Option(help="How nodes are kept apart: auto, namespaces or signals.")] = "auto",
    client_config: ClientConfigOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
    trust: TrustOption = False,
) -> None:
    """Run the plan of an earlier run again, on a new cluster. A plan that somebody sent, and that would reach further, is
    refused."""
    use_login(client_config)
    from prozess.app.conduct import Options, conduct, replay_plan, steps_not_struck
    from prozess.harness.plan.reach import refuse_strangers_plan
    from prozess.harness.run_directory import RunDirectory

    old = RunDirectory.existing(run_directory)
    plan = replay_plan(old, exact=exact)
    refuse_strangers_plan(old, plan, trust=trust)
    for name in steps_not_struck(replay_plan(old, exact=False), plan):
        typer.echo(f"Step {name!r} struck nobody in that run, so it is left out now.", err=True)
    raise typer.Exit(conduct(plan, Options(runs, engine, workers, isolation, quiet, as_json)))


@app.command()
def validate(  # noqa: PLR0913 - the options of a command
    producer: Annotated[Path | None, _file_option("producer")] = None,
    consumer: Annotated[Path | None, _file_option("consumer")] = None,
    topic: Annotated[Path | None, _file_option("topic")] = None,
    broker: Annotated[Path | None, _file_option("brokers")] = None,
    application: Annotated[
        list[Path] | None,
        typer.Option(
            help="A configuration file of a framework (Spring Boot, Quarkus, Streams, Connect). All its clients are judged."
        ),
    ] = None,
    profile: Annotated[
        list[str] | None, typer.Option(help="An active profile of Spring Boot or Quarkus. You may repeat it.")
    ] = None,
    topic_name: Annotated[
        str | None, typer.Option(metavar="NAME", help="The topic to take from a file that has several (Strimzi, Helm).")
    ] = None,
    compose: Annotated[
        Path | None, typer.Option(help="A Compose file that sets its brokers by KAFKA_* variables.")
    ] = None,
    service: Annotated[str | None, typer.Option(help="The service of the Compose file to take.")] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="A running cluster. prozess reads its brokers' settings and changes nothing."
        ),
    ] = None,
    cluster_topic: Annotated[
        str | None, typer.Option(metavar="NAME", help="A topic of that cluster. prozess reads its settings.")
    ] = None,
    client: Annotated[
        str, typer.Option(help="The client that the properties are for: auto, java or librdkafka.")
    ] = "auto",
    kafka_version: Annotated[
        str | None, typer.Option(help="The version of the brokers. Default: the version of --cluster, else 4.4.0.")
    ] = None,
    client_version: Annotated[
        str | None,
        typer.Option(
            help="The version of the clients. Default: for Java the brokers' version, for librdkafka the installed one."
        ),
    ] = None,
    commits: Annotated[
        str | None,
        typer.Option(
            help="How the application commits offsets, such as sync-after. Give it if the application commits itself."
        ),
    ] = None,
    minutes: Annotated[
        float,
        typer.Option(
            min=0, callback=finite, help="About how long the trials take together. 0 predicts and runs nothing."
        ),
    ] = 5,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the first trial.")] = 1,
    backend: Annotated[str, typer.Option(help="Where Kafka runs: local or compose.")] = "local",
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Fail if a change of settings would rule out a weakness, or if a known defect is open."
        ),
    ] = False,
    provoke: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RULE",
            help="A weakness to try, such as lost/acks-1, and no other. You may repeat it. Default: all.",
        ),
    ] = None,
    accept: Annotated[
        Path | None, typer.Option(help="A .toml file of the risks that you accept. They do not fail --strict.")
    ] = None,
    kafka_defaults: Annotated[
        bool,
        typer.Option(
            "--kafka-defaults", help="Assume Kafka's defaults for all topic and broker settings that no file has."
        ),
    ] = False,
    old: Annotated[
        Path | None,
        typer.Option(
            help="The directory with the files of a configuration before a change (producer.*, consumer.*, topic.*, "
            "server.*, compose.*, application.*), to be compared with --new."
        ),
    ] = None,
    new: Annotated[Path | None, typer.Option(help="The directory with the files after the change.")] = None,
    output: Annotated[
        str, typer.Option("--format", help="What to print: text, github, sarif, junit or markdown.")
    ] = "text",
    client_config: ClientConfigOption = None,
    runs: RunsOption = Path("runs"),
    quiet: QuietOption = False,
    as_json: TablesAsJsonOption = False,
) -> None:
    """Predict what your settings promise, and put them on trial. The trials run exactly this configuration under every
    fault."""
    use_login(client_config)
    from prozess.app.conduct import Options
    from prozess.validation.command import Budget, ValidationInput, compare, refuse_contradictions
    from prozess.validation.command import validate as carry_out

    given = ValidationInput(
        producer, consumer, topic, broker, compose, service, client, kafka_version, commits,
        cluster=cluster, cluster_topic=cluster_topic, applications=tuple(application or ()), profiles=tuple(profile or ()),
        client_version=client_version, kafka_defaults=kafka_defaults, accept=accept, topic_name=topic_name,
    )  # fmt: skip
    options = Options(runs, "auto", 2, "auto", quiet, as_json)
    refuse_contradictions(given, old, new, output, as_json=as_json)
    if old is not None and new is not None:
        raise typer.Exit(compare(given, old, new, options, format=output))
    budget = Budget(minutes * 60, seed=seed, backend=backend, strict=strict, provoke=tuple(provoke or ()))
    raise typer.Exit(carry_out(given, budget, options, format=output))


@app.command()
def plan(
    trial: Annotated[str, typer.Argument(help="The name or file of a trial.", autocompletion=complete_trials)],
    seed: Annotated[
        int,
        typer.Option(min=0, help="The number that fixes every random choice. The same seed gives the same schedule."),
    ] = 1,
    settings: SetOption = None,
    backend: BackendOption = None,
    variant: VariantOption = None,
    isolation: Annotated[str, typer.Option(help="How nodes are kept apart: auto, namespaces or signals.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print plan.json instead of tables.")] = False,
) -> None:
    """Show what a trial would do, without doing it. It shows the cells, the excluded combinations with their reasons, the
    clients and the schedule. It refuses what `run` would refuse."""
    from prozess.app.run.outside import refuse_plan
    from prozess.harness.errors import HarnessFailed
    from prozess.harness.plan.reach import strangers_reach
    from prozess.harness.run_directory import RunDirectory

    made = load_plan(trial, seed=seed, settings=chosen(backend, variant, settings), isolation=isolation, trust=True)
    try:
        if (file := plan_file(trial)) is not None and (would := strangers_reach(RunDirectory(file.parent), made)):
            typer.echo(
                f"prozess did not ask whether it can be run here. Somebody may have sent it, and it would {would}.",
                err=True,
            )
        else:
            refuse_plan(made, isolation=isolation, progress=lambda told: typer.echo(told, err=True))
    except HarnessFailed as error:
        typer.echo(f"prozess could not find out whether this machine can run all of it: {error}", err=True)
    if as_json:
        typer.echo(made.model_dump_json(indent=1))
        return
    from prozess.harness.report.terminal import show_plan

    show_plan(made)


@app.command()
def scenarios(
    trials: Annotated[
        list[str] | None, typer.Argument(help="The trials to run. Default: all that run a scenario.")
    ] = None,
    runs: Annotated[
        Path,
        typer.Option("--runs", help="The directory of the runs. A trial that has a verdict there is not run again."),
    ] = Path("runs/scenarios"),
    table: Annotated[
        Path | None, typer.Option(help="The Markdown file to write the table into, such as docs/scenarios.md.")
    ] = None,
    engine: EngineOption = "auto",
    only_table: Annotated[
        bool, typer.Option("--only-table", help="Run nothing, and make the table from the runs that are there.")
    ] = False,
) -> None:
    """Run every trial once, and make a table of what Kafka did. After an interruption it continues where it was."""
    from prozess.campaigns.scenarios import scenarios as carry_out

    raise typer.Exit(carry_out(trials or [], runs, table=table, engine=engine, only_table=only_table))


@app.command()
def shrink(
    run_directory: Annotated[Path | None, typer.Argument(help="The directory of a violated run.")] = None,
    anomaly: Annotated[
        str | None, typer.Option(help="The anomaly to look for. Default: the one with the most witnesses.")
    ] = None,
    cell: Annotated[int | None, typer.Option(help="The number of the cell to look in.")] = None,
    duration: Annotated[str, typer.Option("--for", help="Begin no further run after 90s, 30m or 8h.")] = "1h",
    runs: RunsOption = Path("runs"),
    resume: Annotated[Path | None, typer.Option(help="Continue the search in this directory.")] = None,
    trust: TrustOption = False,
    isolation: Annotated[str, typer.Option(help="How nodes are kept apart: auto, namespaces or signals.")] = "auto",
) -> None:
    """Find the smallest plan that still shows a run's violation. It also measures how often that plan shows it."""
    from prozess.campaigns.shrink import ShrinkRequest, carry_out

    raise typer.Exit(carry_out(ShrinkRequest(run_directory, anomaly, cell, duration, runs, resume, isolation, trust)))


matrix_app = typer.Typer()


@matrix_app.command()
def matrix(  # noqa: PLR0913 - the options of a command
    name: Annotated[
        str | None,
        typer.Argument(
            help="The name or file of a matrix, or the directory of its results.", autocompletion=complete_matrices
        ),
    ] = None,
    merged: Annotated[
        list[Path] | None,
        typer.Argument(
            help="After the word `merge`: a new directory, and the directories of the shares to put into it."
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option("--run", help="Run its trials into this directory, or continue there. With --master: also a URI."),
    ] = None,
    duration: Annotated[
        str | None, typer.Option("--for", help="Begin no further trial after 90s, 30m or 8h. Default: run all of them.")
    ] = None,
    shard: ShardOption = None,
    master: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Run the trials as tasks of this Spark cluster (spark://host:port), one an executor."
        ),
    ] = None,
    cores: Annotated[
        int,
        typer.Option("--cores-per-trial", min=1, help="With --master: how many cores an executor and its trial have."),
    ] = 2,
    diff: Annotated[
        tuple[str, str] | None,
        typer.Option("--diff", metavar="OLD NEW", help="Compare the results in two directories."),
    ] = None,
    webhook: WebhookOption = None,
    as_json: TablesAsJsonOption = False,
) -> None:
    """Show or run every combination of settings and clusters. A matrix varies the faults, too. It shows which combinations
    there are, and what each setting is worth. `prozess matrix merge ALL SHARE …` puts together what several machines ran."""
    from prozess.campaigns.matrix_runner import MatrixRequest
    from prozess.campaigns.matrix_runner import matrix as carry_out

    hook = webhook_of(webhook)
    if webhook is not None and run is None:
        raise BadInput("--webhook tells what happens in trials, so it needs --run DIRECTORY.")
    asked = MatrixRequest(name, merged or (), run, diff, duration, shard, master, cores, as_json, hook)
    raise typer.Exit(carry_out(asked))
