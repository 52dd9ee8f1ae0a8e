"""docs/exit-codes.md has every command and every code, and nothing else."""

import re

import typer.main

from prozess.command import APP as app
from prozess.harness.exit_codes import ExitCode
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "exit-codes.md").read_text("utf-8")
COMMAND = re.compile(r"`prozess ([a-z-]+(?: [a-z][a-z-]*)*)[` ]")


def rows(header):
    """The rows of the table with this header, each as the texts of its cells."""
    table = PAGE.partition(header)[2].partition("\n\n")[0]
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("| ")
    ]


def commands(command, path=()):
    """The words of every command that does something."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield " ".join(path)
    else:
        for name, one in inner.items():
            yield from commands(one, (*path, name))


def test_every_command_is_on_the_page_and_every_command_of_the_page_is_there():
    wanted = set(commands(typer.main.get_command(app)))
    told = {name for row in rows("| command | 0 | 1 | 2 |") for name in COMMAND.findall(row[0])}
    assert told == wanted, "docs/exit-codes.md names other commands than there are: add or remove their rows"


def test_every_code_is_on_the_page():
    told = {int(code) for row in rows("| code | what it means |") for code in row[0].split(", ") if code.isdigit()}
    assert {int(code) for code in ExitCode} <= told
    assert {128 + 15, 128 + 1, 128 + 9, 128 + 11} <= told


def test_every_row_says_what_a_success_is():
    for row in rows("| command | 0 | 1 | 2 |"):
        assert row[1], row[0]
        assert len(row) == 4, row[0]
