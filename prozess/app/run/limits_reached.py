"""This module records which stages of a run did not come to their end. The verdict names them first (`limits.json`)."""

from collections.abc import Callable, Collection, Mapping, Sequence

from prozess.harness.interfaces import AuditResult, Workload
from prozess.harness.interfaces.cluster import HangingTransaction
from prozess.harness.run_directory import RunDirectory, write_json

_LATE = "within the limit"


class StageLimits:
    """Notes each stage that did not come to its end. `emit` writes an event."""

    def __init__(self, run: RunDirectory, emit: Callable[..., None]) -> None:
        self._run, self._emit = run, emit
        self._noted: list[str] = []

    def note(self, stage: str, limit_s: float | None, awaited: Sequence[str]) -> None:
        """Records what the stage awaited in vain; does nothing for an empty list. A long list is reported by its first
        entry and the number of the others.
        """
        if not awaited:
            return
        more = f", and {len(awaited) - 1:,} more" if awaited[1:] else ""
        limit = "" if limit_s is None else f" after {limit_s:g} s"
        text = f"{stage} is incomplete{limit}: {awaited[0].rstrip('.')}{more}"
        if text not in self._noted:
            self._noted.append(text)
            write_json(self._run.limits, self._noted)
            self._emit("limit-reached", text=text)


def fence_and_audit(
    clients: Workload,
    limits: StageLimits,
    audit_s: float,
    *,
    end_open: Callable[[Mapping[str, str]], Collection[HangingTransaction]] = lambda unfenced: (),
    topics_may_go: bool = False,
) -> tuple[Mapping[str, str], AuditResult]:
    """Fences every transactional.id, ends what is open all the same, and audits; each notes what it awaited in vain.

    `end_open` gets the transactional.ids that could not be fenced. Returns those, and what the audit read."""
    unfenced = clients.fence(timeout_s=audit_s)
    limits.note("the fencing before the audit", audit_s, of_fencing(unfenced))
    limits.note("the end of all transactions before the audit", None, of_open_transactions(end_open(unfenced)))
    result = clients.audit(timeout_s=audit_s)
    late = any(_LATE in why for why in result.incomplete.values())
    limits.note("the audit", audit_s if late else None, of_audit(result, topics_may_go=topics_may_go))
    return unfenced, result


def of_fencing(unfenced: Mapping[str, str]) -> list[str]:
    """Describes the transactional.ids that could not be initialised before the audit."""
    return [f"transactional.id {text} could not be initialised once more ({why})" for text, why in unfenced.items()]


def of_open_transactions(found: Collection[HangingTransaction]) -> list[str]:
    """Describes the transactions that were open when the audit began, and were not ended."""
    return [one.text for one in found if not one.ended]


def of_audit(result: AuditResult, *, topics_may_go: bool = False) -> list[str]:
    """Describes the partitions whose audit did not reach the end. `topics_may_go`: somebody else may delete topics, so only
    audits that ran out of time count."""
    whys = sorted(result.incomplete.items())
    return [f"partition {p}: {why}" for (p, _), why in whys if not topics_may_go or _LATE in why]
