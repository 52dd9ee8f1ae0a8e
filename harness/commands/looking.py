"""Commands that need no cluster: of runs that were recorded, of what comes with prozess, of the machine."""

import json
from pathlib import Path
from typing import Annotated

import typer

from harness.commands import completion
from harness.commands.options import (
    EngineOption,
    JsonOption,
    MasterOption,
    QuietOption,
    RemoteOption,
    RunArgument,
    RunsOption,
    WorkersOption,
)

app = typer.Typer()


@app.command()
def check(  # noqa: PLR0913 - the options of a command
    run_directory: RunArgument,
    engine: EngineOption = "spark",
    workers: WorkersOption = 2,
    master: MasterOption = None,
    remote: RemoteOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
    no_report: Annotated[
        bool, typer.Option("--no-report", help="Only findings and verdict: leave the reports as they are.")
    ] = False,
    oracle: Annotated[
        bool,
        typer.Option(
            "--oracle", help="Compare every finding with a second opinion: the same checks in Spark SQL. Slow."
        ),
    ] = False,
) -> None:
    """Check, judge and report a run again, without a cluster. The verdict is printed before the report is made."""
    from harness.conduct import Options, recheck

    options = Options(
        run_directory.parent, engine, workers, "auto", quiet, as_json, master, remote, report=not no_report
    )
    raise typer.Exit(recheck(run_directory, options, oracle=oracle))


@app.command()
def report(run_directory: RunArgument) -> None:
    """Write a run's reports, or a campaign's index, again."""
    from harness.campaign.state import CampaignDirectory
    from harness.report import report_run
    from harness.run_directory import RunDirectory

    if (directory := CampaignDirectory(run_directory.resolve())).is_there:
        from harness.campaign.index import write_index

        typer.echo(write_index(directory, directory.begun(), directory.attempts()))
        return
    for path in report_run(RunDirectory.existing(run_directory)):
        typer.echo(path)


@app.command()
def measured(
    directories: Annotated[list[Path], typer.Argument(help="Directories of runs, or of campaigns.")],
    into: Annotated[
        Path | None, typer.Option(help="A page to write it into, between its marks; else it is printed.")
    ] = None,
) -> None:
    """What runs measured, put together, as Markdown. Clusters, faults by backend, what Kafka did."""
    from harness.measured import read_measured
    from harness.report.measured import measured_text, write_into
    from harness.run_directory import RunDirectory
    from harness.trends import run_directories

    text = measured_text([read_measured(RunDirectory(path)) for path in run_directories(directories)])
    if into is None:
        typer.echo(text, nl=False)
    else:
        write_into(into, text)


@app.command()
def trends(
    directories: Annotated[list[Path], typer.Argument(help="Directories of runs, or of campaigns.")],
    out: Annotated[Path, typer.Option(help="Where the page is written.")] = Path("trends.html"),
    master: MasterOption = None,
    strict: Annotated[bool, typer.Option("--strict", help="A regression makes the exit code 1.")] = False,
) -> None:
    """What many nights of runs say, and what got worse. Verdicts, anomalies, what recovery took."""
    from harness.trends import tell_trends

    raise typer.Exit(tell_trends(directories, out, master=master, strict=strict))


@app.command(name="list")
def list_trials(
    scenarios: Annotated[
        bool, typer.Option("--scenarios", help="By scenario, those that no trial runs included.")
    ] = False,
) -> None:
    """The trials, campaigns and matrices that come with prozess."""
    from harness.report.terminal import show_scenarios, show_trials
    from harness.trial import known_campaigns, known_matrices, known_trials, load_trial

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
            help="An anomaly, a rule of the guarantee table, a fault, a scenario, or a run directory.",
            autocompletion=completion.subjects,
        ),
    ],
) -> None:
    """What an anomaly, a rule, a fault, a scenario or a run means. And where that comes from."""
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
