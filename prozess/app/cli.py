"""This is the command line of prozess: how a command begins and ends. `prozess.command` has all commands together.

Exit codes: 0 held, 1 violated, 2 unknown or interrupted, 254 bad arguments, 255 the harness failed, 143 and 129
interrupted by SIGTERM and SIGHUP.
"""

import gc
import sys
import traceback
from collections.abc import Iterable
from errno import EDQUOT, ENOSPC
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from prozess.app import run_process
from prozess.app.commands import offline, trials
from prozess.app.commands.options import SECTIONS
from prozess.harness.errors import ProzessError
from prozess.harness.exit_codes import ExitCode
from prozess.harness.installation import of_an_extra
from prozess.harness.printable import printable_streams


def _print_version(wanted: bool) -> None:
    """Prints the version, and of a checkout the commit, and ends with exit code 0."""
    if wanted:
        from prozess.harness.history.versions import own_version

        version = own_version()
        text = f"prozess {version['version'] or 'of unknown version'}"
        if commit := version.get("commit"):
            text += f" (commit {commit[:12]}{', with changes' if version['changed'] else ''})"
        typer.echo(text)
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit."),
    ] = False,
) -> None:
    """The options that stand before a command, such as `prozess --version`."""


class CommandsInSections(TyperGroup):
    """The commands of prozess, whose help lists them by section."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer does not export its types
        """Writes a section for each of `SECTIONS`."""
        commands = [(name, command) for name in self.list_commands(ctx) if (command := self.get_command(ctx, name))]
        limit = formatter.width - 6 - max(len(name) for name, _ in commands)
        for section in SECTIONS:
            rows = [
                (name, command.get_short_help_str(limit))
                for name, command in commands
                if getattr(command, "rich_help_panel", None) == section
            ]
            assert rows, f"no command is in section {section!r}"
            with formatter.section(section):
                formatter.write_dl(rows, col_max=20)


def make_app(products: Iterable[typer.Typer]) -> typer.Typer:
    """Returns the whole command: the commands of one run, and those of the products, which stand above it."""
    app = typer.Typer(
        name="prozess",
        cls=CommandsInSections,
        help="Put your Kafka on trial: break a real cluster on purpose, and prove which of its promises held.",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_options)
    for group in (*products, trials.app, offline.app, offline.server_app):
        app.add_typer(group)
    return app


# typer brings its own click since 0.26, and names only some of its exceptions; this is the root of them.
UsageProblem: type[Exception] = typer.BadParameter.__mro__[2]
assert UsageProblem.__name__ == "ClickException"


_TYPERS_INTERRUPT = 128 + 2
"""What typer returns after KeyboardInterrupt. No command of prozess ends with it."""


def main(app: typer.Typer) -> None:
    """Runs the command that the arguments name, and ends this process. Every way to end becomes an exit code, and every error
    becomes one sentence."""
    if not __debug__:
        sys.stderr.write("prozess needs its assertions: do not run Python with -O.\n")
        sys.exit(ExitCode.BAD_INPUT)
    # Imports and checks make few reference cycles: frequent garbage collection costs a tenth of a short command's time.
    gc.set_threshold(50_000)
    run_process.listen_for_signals()
    try:
        code = run(app)
    except KeyboardInterrupt:  # outside of the command itself: before it began, or after it ended
        code = int(ExitCode.UNKNOWN)
    sys.exit(run_process.exit_code(code))


def run(app: typer.Typer) -> int:
    """Runs the command that the arguments name, and returns its exit code."""
    with printable_streams():
        return _called(app)


def _called(app: typer.Typer) -> int:
    try:
        with of_an_extra("this command"):
            result = int(app(prog_name="prozess", standalone_mode=False) or 0)
        if result == _TYPERS_INTERRUPT:  # typer catches KeyboardInterrupt itself, and makes an exit code of it
            raise KeyboardInterrupt
        return result
    except UsageProblem as error:
        if (sentence := _refused_number(error)) is not None:
            typer.echo(f"prozess: {sentence}", err=True)
        else:
            error.show()  # type: ignore[attr-defined] # every ClickException has it
        return int(ExitCode.BAD_INPUT)
    except (typer.Abort, KeyboardInterrupt):
        typer.echo("Interrupted.", err=True)
        return int(ExitCode.UNKNOWN)
    except ProzessError as error:
        typer.echo(f"prozess: {error}", err=True)
        return int(error.exit_code)
    except RecursionError:
        typer.echo(
            "prozess: a file or an option is nested too deeply to be read: none needs more than ten levels. If yours has "
            f"fewer, this is a bug in prozess. The details are in {_keep_traceback()}",
            err=True,
        )
        return int(ExitCode.BAD_INPUT)
    except Exception as error:  # noqa: BLE001 - the last resort: say it in a sentence, keep the traceback in a file
        # pydantic makes a SchemaError of an interrupt that comes while it builds a model, and Python a SystemError of one
        # that comes within a function in C.
        if KeyboardInterrupt.__name__ in str(error) or isinstance(error.__cause__, KeyboardInterrupt):
            typer.echo("Interrupted.", err=True)
            return int(ExitCode.UNKNOWN)
        if isinstance(error, OSError) and error.errno in (ENOSPC, EDQUOT):
            where = f" while writing {error.filename}" if error.filename else ""
            typer.echo(
                f"prozess: no space left on the device{where}. What was recorded is kept. Free some space and run "
                "`prozess check` on the run directory, or give another --runs directory.",
                err=True,
            )
            return int(ExitCode.HARNESS_FAILED)
        typer.echo(
            f"prozess: this is a bug in prozess: {type(error).__name__}: {error}. The details are in {_keep_traceback()}",
            err=True,
        )
        return int(ExitCode.HARNESS_FAILED)


def _refused_number(error: Exception) -> str | None:
    """Returns the value, the rule and the way out for an option's value that is no number, or too small a number. None for
    every other mistake, for which typer has a sentence."""
    from pydantic import ValidationError

    option, cause = getattr(error, "param", None), error.__cause__
    if option is None or not isinstance(cause, ValidationError):
        return None
    problem = cause.errors()[0]
    least = problem.get("ctx", {}).get("ge")
    if least is not None:
        rule = f"the least value is {least:g}. Give {least:g} or more"
    elif problem["type"] in ("int_parsing", "float_parsing"):
        rule = f"this is no {'whole ' if problem['type'] == 'int_parsing' else ''}number. Give one"
    else:
        return None
    usual = "" if option.default is None else f", or leave {option.opts[0]} out for {option.default}"
    return f"{option.opts[0]} {problem['input']}: {rule}{usual}."


def _keep_traceback() -> str:
    import tempfile

    with tempfile.NamedTemporaryFile("w", prefix="prozess-", suffix=".traceback", delete=False) as file:
        traceback.print_exc(file=file)
    return file.name
