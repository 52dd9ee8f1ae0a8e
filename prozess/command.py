"""All commands of `prozess`: those of one run, and those of each product. Each imports little until it is called."""

from prozess.app import cli
from prozess.campaigns.cli import app as campaigns
from prozess.exchange.cli import app as exchange
from prozess.validation.cli import app as validation
from prozess.watch.cli import app as watch

APP = cli.make_app((campaigns, validation, watch, exchange))


def main() -> None:
    """Runs the command that the arguments name, and ends this process with its exit code."""
    cli.main(APP)


def run() -> int:
    """Runs the command that the arguments name, and returns its exit code."""
    return cli.run(APP)
