"""Healing a cluster that outlives the run: what the journal has open is undone there, by a process that knows nothing else.

The cluster is built again from `plan.json`, and reaches what runs now; nothing of it is started or formatted. Its own
teardown then leaves it as it was found before the run.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from harness import catalogue
from harness.clock import Clock
from harness.errors import ProzessError
from harness.plan import parse_plan
from harness.run_directory import RunDirectory
from nemesis.journal import Journal, UndoState, read_journal
from nemesis.nemesis import Nemesis


class _NoRecorder:
    """The history ended with the run: what a later process undoes is told to the user, and noted in the journal."""

    def write(self, table: str, **columns: int) -> None:
        """Nothing."""

    def code(self, dictionary: str, text: str) -> int:
        """Of no dictionary."""
        return 0


@dataclass(slots=True)
class Healed:
    """Sentences, as of `nemesis.heal.HealReport`."""

    found: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def heal_lasting(run: RunDirectory, *, clock: Clock) -> Healed:
    """Undo what is open, and leave the cluster as it was. Safe to repeat; what failed is told, and stays for later."""
    healed = Healed()
    if not run.lasting.exists():
        return healed
    healed.found.append("the run was not finished with a cluster that was there before it")
    try:
        plan = parse_plan(run.plan.read_text(encoding="utf-8"), source=str(run.plan))
        cluster = catalogue.resolve(catalogue.BACKENDS, plan.backend, what="backend")(plan, run, clock=clock)
        admin = catalogue.service("admin")(cluster)
    except (ProzessError, OSError) as error:
        healed.left.append(f"the cluster cannot be reached again: {error}")
        return healed
    try:
        _forget_clients(run, {client.name for client in plan.clients})
        nemesis = Nemesis(run, cluster, admin, _NoRecorder(), clock)
        count = len(read_journal(run.journal).open)
        if count and not _did(healed, "undo what the journal has open", lambda: nemesis.heal(None)):
            return healed  # Its teardown would forget that it is not as it was.
        if count:
            healed.done.append(f"{count} undos of the journal were carried out, and seen to work")
        if _did(healed, "leave the cluster as it was", cluster.teardown):
            healed.done.append("the cluster is left as it was found")
    finally:
        admin.close()
    return healed


def _forget_clients(run: RunDirectory, names: set[str]) -> None:
    """They ended with the run, and with them whatever was wrong with them."""
    journal = Journal(run.journal)
    if ended := [entry for entry in journal.open if entry.undo.node in names]:
        journal.mark(ended, UndoState.UNDONE)


def _did(healed: Healed, what: str, deed: Callable[[], object]) -> bool:
    try:
        deed()
    except (ProzessError, OSError) as error:
        healed.left.append(f"could not {what}: {error}")
        return False
    return True
