"""The commands that run one trial or many, and those that look at many runs."""

from pathlib import Path
from typing import Annotated

import typer

from prozess.app.commands.options import (
    RUN,
    RUNS,
    BackendOption,
    ClientConfigOption,
    ConfOption,
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
    TablesOption,
    TrustOption,
    VariantOption,
    WebhookOption,
    WorkersOption,
    chosen,
    complete_directories,
    complete_matrices,
    complete_trials,
    decided_by,
    load_plan,
    overrides,
    spark_settings,
    use_login,
    webhook_of,
)
from prozess.harness.errors import BadInput

app = typer.Typer()


@app.command(rich_help_panel=RUN)
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
    tables: TablesOption = None,
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
        from prozess.campaigns.campaign_plan import TrialOverrides
        from prozess.campaigns.campaign_runner import CampaignRequest, campaign

        each = TrialOverrides(
            overrides(chosen(backend, variant, settings) or []), _options_of_each(engine, workers, isolation, tables)
        )
        asked = CampaignRequest(
            trial, seed, runs, duration, rounds, resume, shard, each, master, cores, webhook=hook, trust=trust
        )
        raise typer.Exit(campaign(asked))
    if shard is not None:
        raise BadInput("--shard gives a machine its share of a campaign. A campaign needs --for or --rounds.")
    from prozess.app.conduct import conduct_and_notify
    from prozess.app.run_options import RunOptions

    plan = load_plan(trial, seed=seed, settings=chosen(backend, variant, settings), isolation=isolation, trust=trust)
    plan = decided_by(plan, decide)
    options = RunOptions(Path(runs), engine, workers, isolation, quiet, as_json, master, remote, tables=tables)
    raise typer.Exit(conduct_and_notify(plan, options, hook))


def _options_of_each(engine: str, workers: int, isolation: str, tables: str | None) -> tuple[str, ...]:
    """Returns the options that differ from their defaults, for each trial of a campaign."""
    given: dict[str, tuple[object, object]] = {
        "--engine": (engine, "auto"),
        "--workers": (workers, 2),
        "--isolation": (isolation, "auto"),
        "--tables": (tables, None),
    }
    return tuple(word for name, (value, usual) in given.items() if value != usual for word in (name, str(value)))


@app.command(rich_help_panel=RUNS)
def report(run_directory: RunArgument) -> None:
    """Write the reports of a run, or a campaign's index, again."""
    from prozess.campaigns.campaign_plan import CampaignDirectory
    from prozess.harness.exit_codes import ExitCode
    from prozess.harness.history.manifest import condition_of
    from prozess.harness.report.reports import report_run
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
    for path in report_run(run, condition).paths:
        typer.echo(path)
    run.keep_private()
    for doubt in condition.doubts[:8]:
        typer.echo(f"prozess: unknown: {doubt}", err=True)
    if condition.damaged:
        raise typer.Exit(int(ExitCode.UNKNOWN))


@app.command(rich_help_panel=RUN)
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


@app.command(rich_help_panel=RUN)
def museum(
    tickets: Annotated[
        list[str] | None, typer.Argument(help="The exhibits to show, such as KAFKA-20322. Default: all.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds each release is run with: 1, 2, 3 …")] = 3,
    runs: Annotated[
        Path, typer.Option("--runs", help="The directory of the runs. What was run there is not run again.")
    ] = Path("runs/museum"),
    engine: EngineOption = "auto",
    only_page: Annotated[
        bool, typer.Option("--only-page", help="Run nothing, and make table and page from the runs that are there.")
    ] = False,
) -> None:
    """Show known defects of Kafka: each on a release that has it, and on one that mended it. After an interruption it
    continues where it was."""
    from prozess.campaigns.museum.museum import MuseumRequest
    from prozess.campaigns.museum.museum import museum as carry_out

    raise typer.Exit(carry_out(MuseumRequest(tickets or [], seeds, runs, engine, only_page)))


@app.command(rich_help_panel=RUN)
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


@app.command(rich_help_panel=RUNS)
def measured(
    directories: Annotated[list[Path], typer.Argument(help="The directories of runs or campaigns.")],
    into: Annotated[
        Path | None, typer.Option(help="The Markdown page to write it into, between its marks. Default: it is printed.")
    ] = None,
) -> None:
    """Summarize the measurements of many runs as Markdown. It covers clusters, faults by backend, and what Kafka did."""
    from prozess.campaigns.comparing import RunSummary, run_directories
    from prozess.campaigns.comparing.measured import measured_text, write_into

    text = measured_text([RunSummary.at(path) for path in run_directories(directories)])
    if into is None:
        typer.echo(text, nl=False)
    else:
        write_into(into, text)


@app.command(rich_help_panel=RUNS)
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


@app.command(rich_help_panel=RUNS)
def compare(
    run: Annotated[Path, typer.Argument(help="The directory of a run.", autocompletion=complete_directories)],
    other: Annotated[Path, typer.Argument(help="The directory of another run.", autocompletion=complete_directories)],
    as_json: TablesAsJsonOption = False,
) -> None:
    """Put two runs side by side. It shows settings that differ, the faults and their costs, and what was found."""
    from prozess.campaigns.comparing import RunSummary
    from prozess.campaigns.comparing.comparison import compare_runs, print_comparison
    from prozess.harness.run_directory import RunDirectory

    found = [RunSummary(RunDirectory.existing(path)) for path in (run, other)]
    print_comparison(compare_runs(*found), as_json=as_json)


@app.command(rich_help_panel=RUNS)
def tables(
    locations: Annotated[
        list[str],
        typer.Argument(
            metavar="RUNS…",
            help="The directories of runs or campaigns, or their URIs. With --packed: also of tables.",
            autocompletion=complete_directories,
        ),
    ],
    out: Annotated[
        str, typer.Option(help="Where tables over many runs are kept, or will be: a directory, or its URI (s3a://…).")
    ],
    packed: Annotated[
        bool,
        typer.Option(
            "--packed", help="Write one file for each day into a new location, which then takes no further run."
        ),
    ] = False,
) -> None:
    """Write the rows of runs into tables over many runs. A run that is there already is replaced. `--tables` does so at the
    end of a run."""
    from prozess.app.run_tables import write_tables

    count, store = write_tables(locations, out, packed=packed, progress=lambda text: typer.echo(text, err=True))
    typer.echo(f"{count:,} runs in {store}")


@app.command(rich_help_panel=RUNS)
def trends(
    directories: Annotated[
        list[str],
        typer.Argument(
            metavar="RUNS…",
            help="The directories of runs or campaigns, or their URIs in an object store (s3a://bucket/nightly); or where "
            "--tables wrote.",
            autocompletion=complete_directories,
        ),
    ],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("trends.html"),
    master: MasterOption = None,
    conf: ConfOption = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with code 1 if anything got worse.")] = False,
) -> None:
    """Compare many nights of runs, and name what got worse. It compares verdicts, anomalies and recovery times."""
    from prozess.app.run_tables import opened_tables
    from prozess.campaigns.comparing.trends import report_trends

    with opened_tables(directories, master=master, conf=spark_settings(conf or [])) as read:
        raise typer.Exit(report_trends(read, out, strict=strict))


@app.command(rich_help_panel=RUNS)
def effects(
    directories: Annotated[
        list[str],
        typer.Argument(
            metavar="RUNS…",
            help="The directories of runs, campaigns or matrices, or their URIs; or where --tables wrote.",
            autocompletion=complete_directories,
        ),
    ],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("effects.html"),
) -> None:
    """Show what each setting changes over many runs: what is lost, doubled or late, with uncertainty."""
    from prozess.app.run_tables import opened_tables
    from prozess.campaigns.comparing.effects_page import report_effects

    with opened_tables(directories, together=("cells", "outcomes")) as read:
        report_effects(read, out)


@app.command(rich_help_panel=RUN)
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
            metavar="URL",
            help="Run the trials as tasks of this Spark cluster (spark://host:port), one an executor. Its workers also read "
            "the results.",
        ),
    ] = None,
    conf: ConfOption = None,
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
        raise BadInput("--webhook says what happens in trials, so it needs --run DIRECTORY.")
    asked = MatrixRequest(
        name, merged or (), run, diff, duration, shard, master, cores, as_json, hook, spark_settings(conf or [])
    )
    raise typer.Exit(carry_out(asked))
