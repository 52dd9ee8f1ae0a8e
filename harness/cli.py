"""The command line: thin over the stages. Imports little, so that `prozess --help` is fast.

Exit codes: 0 held, 1 violated, 2 unknown or interrupted, 254 bad arguments, 255 the harness failed.
"""

import gc
import sys
import traceback
from errno import EDQUOT, ENOSPC

import typer

from harness.commands import histories, looking, matrices, running, servers
from harness.errors import ExitCode, ProzessError

app = typer.Typer(
    name="prozess",
    help="Put your Kafka on trial: break a real cluster on purpose, prove from the history which promises held.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for group in (running, matrices, looking, servers, histories):
    app.add_typer(group.app)

# typer brings its own click since 0.26, and names only some of its exceptions; this is the root of them.
UsageProblem: type[Exception] = typer.BadParameter.__mro__[2]
assert UsageProblem.__name__ == "ClickException"


def main() -> None:
    """The entry point: maps every way to end to an exit code, and prints one sentence instead of a traceback."""
    if not __debug__:
        sys.exit("prozess needs its assertions: do not run Python with -O.")
    # What is imported and checked is in few cycles: to look for them so often costs a tenth of a short command.
    gc.set_threshold(50_000)
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
