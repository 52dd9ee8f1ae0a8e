"""Histories as other programs' clients saw them: nobody audited."""

from dataclasses import replace

import numpy as np

from prozess.harness.columns import of_clients
from prozess.harness.history.participants import REVEALED, RevealedReads
from prozess.harness.interfaces.checking import PartitionHistory
from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.schema import NONE, Role


def own_rows(one: PartitionHistory) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The sends of producers and the reads of consumers."""
    kept = of_clients(one.client_role, one.reads["client"], unknown=NONE) != Role.AUDIT
    reads = {name: values[kept] for name, values in one.reads.items()}
    return {name: values[one.sends["client"] != SENTINEL_CLIENT] for name, values in one.sends.items()}, reads


def unaudited(one: PartitionHistory) -> PartitionHistory:
    """What clients alone show of a partition."""
    sends, reads = own_rows(one)
    more = [0] * len(REVEALED)
    history = replace(
        one,
        audited=False,
        audit_end={},
        client_role=np.append(one.client_role, [Role.AUDIT] * len(REVEALED)),
        client_isolation=np.append(one.client_isolation, REVEALED),
        client_issued=np.append(one.client_issued, more),
        client_acks=np.append(one.client_acks, more),
        client_clock=np.append(one.client_clock, more),
    )
    return revealed(history, sends, reads)


def revealed(one: PartitionHistory, sends: dict[str, np.ndarray], reads: dict[str, np.ndarray]) -> PartitionHistory:
    """The same with these rows, and with what they reveal of the log."""
    first_id = len(one.client_role) - len(REVEALED)
    shown = RevealedReads(sends, reads, one.client_isolation[:first_id], first_id=first_id)
    return replace(one, sends=sends, reads={name: shown[name] for name in reads})
