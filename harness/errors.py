"""Every error that prozess raises on purpose, and the exit code of each.

    ProzessError                  255
    + BadInput                    254   the user's value, the rule it breaks, the way out
    | + UnsupportedFault          254   the trial needs what the backend lacks
    + Interrupted                 2     the user stopped the run; what was recorded stays
    + NotJudged                   2     what was asked about has no verdict
    + HarnessFailed               255   something outside prozess failed
      + MissingTool               255   no Java, no jars, no namespaces
      + NotReady                  255   a wait timed out: what was awaited, for how long, what was last seen
      + ClusterFailed             255   a node died, or refused what was asked
      + StorageFull               255   the run directory has no room left
      + HistoryUnreadable         255   a table is torn, missing or of another version
        + Contradicted            255   tables of a history cannot all be what happened

The text of an error is for the user. It names the value, the rule and the way out, in one or two sentences. Our own mistakes
are assertions.
"""

from prozess.harness.exit_codes import ExitCode


class ProzessError(Exception):
    """The root of all errors. The command line returns its `exit_code`."""

    exit_code: ExitCode = ExitCode.HARNESS_FAILED


class BadInput(ProzessError):
    """The user's value breaks a rule. The text names the value, the rule and the way out."""

    exit_code = ExitCode.BAD_INPUT


class UnsupportedFault(BadInput):
    """A trial asks for a fault that the chosen backend cannot make here."""


class Interrupted(ProzessError):
    """The user stopped the run. Everything was healed and what was recorded is kept."""

    exit_code = ExitCode.UNKNOWN


class NotJudged(ProzessError):
    """Says that what was asked about has no verdict. The text says how to get one."""

    exit_code = ExitCode.UNKNOWN


class HarnessFailed(ProzessError):
    """Says that prozess could not do its work. This says nothing about Kafka."""


class MissingTool(HarnessFailed):
    """Says that something which this machine must have is missing."""


class NotReady(HarnessFailed):
    """A wait ran out of time."""

    def __init__(self, *, awaited: str, timeout_s: float, last_seen: str) -> None:
        self.awaited, self.timeout_s, self.last_seen = awaited, timeout_s, last_seen
        super().__init__(f"waited {timeout_s:g} s for {awaited}; last seen: {last_seen}")


class ClusterFailed(HarnessFailed):
    """A node of the cluster died or refused what was asked."""


class TargetMissing(ClusterFailed):
    """The target of a fault does not exist at this moment, or cannot be broken in this way now. Nothing was touched."""


class StorageFull(HarnessFailed):
    """Says that there is no room left where the history is written."""


class HistoryUnreadable(HarnessFailed):
    """A table of the history is torn, missing, or of another version."""


CONTRADICTION = "the tables contradict one another:"
"""How the clause begins that says so."""


class Contradicted(HistoryUnreadable):
    """Tables of a history contradict one another. What rests on them is unknown."""

    def __init__(self, how: str) -> None:
        super().__init__(f"{CONTRADICTION} {how}")
