"""Where this installation of prozess keeps its files, and which optional Python packages it lacks."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prozess.harness.errors import MissingTool

PACKAGE = Path(__file__).parent.parent.resolve()
"""The folder `prozess` itself. In a checkout its sub-packages are links to the folders beside it."""
SEARCH_PATH = PACKAGE.parent
"""The path from which a Python that prozess starts imports this very code: a checkout, or `site-packages`."""


def folder(name: str) -> Path | None:
    """Returns the folder `name` (`trials`, `compose`) of the checkout, or its copy in the wheel. None: neither is there."""
    checkout, copy = SEARCH_PATH / name, PACKAGE / "data" / name
    if (SEARCH_PATH / "pyproject.toml").is_file() and checkout.is_dir():
        return checkout
    return copy if copy.is_dir() else None


EXTRAS = {"aiokafka": "aiokafka", "docker": "docker", "testcontainers": "docker", "paramiko": "ssh"}
"""For each module of an optional package, the extra that installs it."""


@contextmanager
def of_an_extra(what: str) -> Iterator[None]:
    """A context for imports. If a module of an extra is missing, it raises MissingTool with the command that installs
    it. `what` is what needs the module, for the sentence."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if extra := EXTRAS.get(missing.partition(".")[0]):
            raise MissingTool(
                f"{what} needs the Python package {missing!r}: pip install 'prozess[{extra}]'."
            ) from error
        raise
