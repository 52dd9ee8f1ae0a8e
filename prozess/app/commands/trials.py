"""The commands `plan` and `replay`. `run`, which may also be a campaign of many runs, is in `prozess/campaigns/cli.py`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prozess.app.commands.options import (
    RUN,
    BackendOption,
    ClientConfigOption,
    EngineOption,
    JsonOption,
    QuietOption,
    RunArgument,
    RunsOption,
    SetOption,
    TrustOption,
    VariantOption,
    WorkersOption,
    chosen,
    complete_trials,
    load_plan,
    plan_file,
    use_login,
)

if TYPE_CHECKING:
    pass

app = typer.Typer()


@app.command(rich_help_panel=RUN)
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
    from prozess.app.conduct import conduct
    from prozess.app.replay import replay_plan, steps_not_struck
    from prozess.app.run_options import RunOptions
    from prozess.harness.plan.outside_effects import refuse_strangers_plan
    from prozess.harness.run_directory import RunDirectory

    old = RunDirectory.existing(run_directory)
    plan = replay_plan(old, exact=exact)
    refuse_strangers_plan(old, plan, trust=trust)
    for name in steps_not_struck(replay_plan(old, exact=False), plan):
        typer.echo(f"Step {name!r} hit no node in that run, so it is left out now.", err=True)
    raise typer.Exit(conduct(plan, RunOptions(runs, engine, workers, isolation, quiet, as_json)))


@app.command(rich_help_panel=RUN)
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
    from prozess.app.run.outside_sandbox import refuse_plan
    from prozess.harness.errors import HarnessFailed
    from prozess.harness.plan.outside_effects import strangers_reach
    from prozess.harness.run_directory import RunDirectory

    made = load_plan(trial, seed=seed, settings=chosen(backend, variant, settings), isolation=isolation, trust=True)
    try:
        if (file := plan_file(trial)) is not None and (would := strangers_reach(RunDirectory(file.parent), made)):
            typer.echo(
                f"prozess did not ask whether it can be run here. Somebody may have sent it, and it would {would}.",
                err=True,
            )
        else:
            refuse_plan(made, isolation=isolation, progress=lambda text: typer.echo(text, err=True))
    except HarnessFailed as error:
        typer.echo(f"prozess could not find out whether this machine can run all of it: {error}", err=True)
    if as_json:
        typer.echo(made.model_dump_json(indent=1))
        return
    from prozess.harness.report.terminal import show_plan

    show_plan(made)
