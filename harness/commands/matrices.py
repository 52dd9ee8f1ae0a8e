"""Command for matrices: `matrix`."""

from pathlib import Path
from typing import Annotated

import typer

from harness.commands import completion

app = typer.Typer()


@app.command()
def matrix(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A matrix's name or file, or the directory of its results.", autocompletion=completion.matrices
        ),
    ] = None,
    run: Annotated[
        Path | None, typer.Option("--run", help="Run its trials into this directory, or go on with them.")
    ] = None,
    duration: Annotated[
        str | None, typer.Option("--for", help="No further trial begins after 90s, 30m, 8h. Default: all of them.")
    ] = None,
    diff: Annotated[
        tuple[Path, Path] | None,
        typer.Option("--diff", metavar="OLD NEW", help="Compare the results in two directories."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Every combination of settings, clusters and faults. What there is of them, and what these settings are worth."""
    from harness.matrices.command import matrix as carry_out

    raise typer.Exit(carry_out(name, run=run, diff=diff, duration=duration, as_json=as_json))
