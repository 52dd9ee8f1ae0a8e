"""Options that more than one command has."""

from pathlib import Path
from typing import Annotated

import typer

from harness.commands import completion

RunsOption = Annotated[Path, typer.Option("--runs", help="Where run directories are made.")]
EngineOption = Annotated[
    str, typer.Option(help="spark, or local (threads; for small histories).", autocompletion=completion.engines)
]
WorkersOption = Annotated[int, typer.Option(min=1, help="Threads, or Spark tasks at a time.")]
MasterOption = Annotated[
    str | None, typer.Option(help="Spark's master, spark://host:port. The runs must be under the same path there.")
]
RemoteOption = Annotated[str | None, typer.Option(help="A Spark Connect server instead, sc://host:port.")]
SetOption = Annotated[list[str] | None, typer.Option("--set", help="KEY=VALUE laid over the trial file, TOML values.")]
BackendOption = Annotated[
    str | None,
    typer.Option(
        "--backend",
        help="Where Kafka runs instead of where the trial says: local, compose.",
        autocompletion=completion.backends,
    ),
]
VariantOption = Annotated[
    str | None,
    typer.Option(
        "--variant",
        help="Another metadata mode: kraft-isolated, kraft-combined, zookeeper.",
        autocompletion=completion.metadata_modes,
    ),
]
RunArgument = Annotated[Path, typer.Argument(help="A run directory.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Only the verdict.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print verdict.json instead of tables.")]
OutOption = Annotated[Path, typer.Option("--out", help="The run directory to make: a new one, or an empty one.")]
