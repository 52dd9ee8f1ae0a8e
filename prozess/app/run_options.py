"""The options of a run besides the trial: its directory, the engine of the check, and the output."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, get_args

from prozess.harness.errors import BadInput, MissingTool

EngineName = Literal["local", "spark"]
AUTO = "auto"
"""The name of the default engine: threads, unless an address or a setting of Spark is given. On one machine threads were
faster at every size that was measured, up to 10⁹ rows (docs/performance.md, threads or Spark)."""
_NAMES: tuple[EngineName, ...] = get_args(EngineName)
ENGINES: tuple[str, ...] = (AUTO, *_NAMES)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The choices of the command line besides the trial."""

    runs: Path
    engine: str
    """The engine that checks the history: auto, local or spark."""
    workers: int
    isolation: str
    quiet: bool
    as_json: bool
    master: str | None = None
    """The Spark master. None: a local one with as many threads as workers."""
    remote: str | None = None
    """A Spark Connect server to use in place of a master."""
    report: bool = True
    """Whether to write the reports, too."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark: key → value."""
    out: str | None = None
    """Where findings, verdict and reports go, for people. None: beside the run."""
    tables: str | None = None
    """Where the rows of the run are written for tables over many runs: a directory or its URI. None: nowhere."""
    print_verdict: bool = True
    """Whether to print the verdict. A command that runs several trials prints their outcomes at its end."""

    @property
    def used_engine(self) -> EngineName:
        """Returns the engine that checks. An address or a setting of Spark asks for it. Errors are those of `engine_name`."""
        asked = self.engine == AUTO and (self.master is not None or self.remote is not None or bool(self.conf))
        return engine_name("spark" if asked else self.engine)

    def refuse_contradictions(self) -> None:
        """Raises BadInput for an unknown engine, and for a Spark address that the engine does not use. MissingTool if Spark
        is asked for and not installed."""
        engine = self.used_engine
        given = [name for name, value in (("--master", self.master), ("--remote", self.remote)) if value is not None]
        if engine != "spark" and given:
            raise BadInput(f"{given[0]} says where Spark is, but --engine is {self.engine!r}. Leave one of them out.")
        if engine != "spark" and self.conf:
            raise BadInput(
                f"--conf {next(iter(self.conf))} is a setting of Spark, but --engine is {self.engine!r}. Leave one of them "
                "out."
            )
        if len(given) > 1:
            raise BadInput("--master and --remote both say where Spark is. Give only one of them.")


def engine_name(text: str) -> EngineName:
    """Returns the name of the engine that an option means. BadInput if there is no such engine; MissingTool, with the
    command that installs it, for Spark where it is not installed."""
    if text == AUTO:
        return "local"
    for name in _NAMES:
        if name == text:
            if name == "spark":
                refuse_without_spark("--engine spark", "--engine local checks with threads.")
            return name
    raise BadInput(f"--engine {text!r} is not known. Known: {', '.join(sorted(ENGINES))}.")


NO_SETTINGS: Mapping[str, str] = {}
"""No setting of Spark's."""


def refuse_without_spark(what: str, instead: str = "") -> None:
    """Raises MissingTool if Spark is not installed. `what` needs Spark; `instead` is a sentence with another way."""
    if find_spec("pyspark") is None:
        raise MissingTool(
            f"{what} needs Spark, which is not installed: pip install 'prozess[spark]'. {instead}".rstrip()
        )
