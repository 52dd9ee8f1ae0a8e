"""Lists what can be planted in a generated history: for each anomaly the kind of cell it goes into, and what else it
implies."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from prozess.harness.errors import BadInput
from prozess.harness.schema import NONE

NO_POSITIONS = np.empty(0, dtype=np.int64)
INSERTED = np.dtype(
    [
        ("after", "<i8"),  # position that it stands behind
        ("sequence", "<i8"),
        ("invoked_ns", "<i8"),
        ("transaction", "<i8"),
        ("sooner_ns", "<i8"),  # the tailing reader is given it so much sooner than all else
        ("client", "<i4"),
        ("sent_partition", "<i4"),  # NONE = where it stands
        ("plant", "<i4"),  # code of the anomaly that it was put in for, in PLANT_CODES
        ("outcome", "<i4"),  # of its send; NONE = it has none of its own (a copy, a phantom, a record sent elsewhere)
        ("in_tail", "?"),
        ("in_log", "?"),
        ("in_visible", "?"),
    ]
)


@dataclass(frozen=True, slots=True)
class Plantable:
    """One anomaly that can be planted."""

    kind: str
    """The kind of cell that it goes into."""
    implies: Mapping[str, int] = field(default_factory=dict)
    """The other anomalies that it also is, by definition."""
    implied_every: int = 1
    """The implied anomaly shows at the first one, and at every nth after it."""
    per_partition: int | None = None
    """The most that one partition can have; None = one per batch."""
    every_cell: bool = False
    """True if it belongs to the whole cluster, and is found once in every cell."""
    of_cluster: int = 0
    """How many kinds of it belong to the whole cluster: after each one of a cell come so many of these."""

    def in_cells(self, count: int) -> int:
        """Returns how many of these are not one of the kinds of the cluster."""
        return -(-count // (1 + self.of_cluster))


PLANTS: Mapping[str, Plantable] = {
    "lost": Plantable("log", implies={"late": 1, "out-of-sequence": 1}),
    "duplicate": Plantable("log"),
    "reordered": Plantable("log"),
    "offset-conflict": Plantable("log"),
    "phantom": Plantable("log"),
    "corrupt": Plantable("log", implies={"late": 1}, implied_every=2),  # the others have another key, and are delivered
    "misplaced": Plantable("log"),
    "resurrected": Plantable("log"),
    "dirty-read": Plantable("log"),
    "invisible": Plantable("log"),
    "skipped": Plantable("log", implies={"late": 1}),
    "rewound": Plantable("log"),
    "time-travel": Plantable("log"),
    "late": Plantable("log"),
    "diverged": Plantable("log"),
    "out-of-sequence": Plantable("log"),
    "watermark-regression": Plantable("log"),
    "log-start-regression": Plantable("log"),
    "mistimed": Plantable("log"),
    # The first one is in one copy alone, and every fourth.
    "epoch-regression": Plantable("log", implies={"diverged": 1}, implied_every=4),
    "under-acknowledged": Plantable("log"),
    "unclean": Plantable("log"),
    "two-controllers": Plantable("log", every_cell=True),
    "stale-controller": Plantable("log", every_cell=True),
    "unanswered": Plantable("log", every_cell=True),
    "not-linearizable": Plantable("log", every_cell=True),
    "leaderless": Plantable("log"),
    "illegal-transition": Plantable("log", of_cluster=13),
    "stuck": Plantable("log"),
    "unreported": Plantable("log"),
    "snapshot-conflict": Plantable("log", per_partition=45),  # within the first batch: 15 offsets, in each of 3 copies
    # The first one is a reader, which is given the record late, and every second; the others are last stable offsets.
    "stalled": Plantable("log", implies={"late": 1}, implied_every=2),
    "torn": Plantable("transactions"),
    "lost-transaction": Plantable("transactions"),
    "zombie-write": Plantable("transactions"),
    "aborted-read": Plantable("transactions"),
    "early-read": Plantable("transactions"),
    "hanging": Plantable("transactions"),
    "illegal-transaction-state": Plantable("transactions"),
    "unprocessed": Plantable("group"),
    "reprocessed": Plantable("group"),
    "commit-regression": Plantable("group"),
    "commit-ahead": Plantable("group"),
    "two-owners": Plantable("group"),
    "orphaned": Plantable("group", per_partition=1),
    "unstable": Plantable("group"),
    "starved": Plantable("group"),
    "illegal-group-state": Plantable("group"),
    "undelivered": Plantable("share"),
    "accepted-again": Plantable("share"),
    "rejected-again": Plantable("share"),
    "two-holders": Plantable("share"),
    "miscounted": Plantable("share"),
    "given-up": Plantable("share"),
    "dead-letter-missing": Plantable("share"),
    "dead-letter-extra": Plantable("share"),
    "share-start-regression": Plantable("share"),
    "illegal-share-state": Plantable("share"),
    "remote-gap": Plantable("tiered"),
    "remote-conflict": Plantable("tiered"),
    "remote-left": Plantable("tiered"),
    "uncopied": Plantable("tiered", per_partition=1),
    "compacted-away": Plantable("compaction", implies={"lost": 1}),
    "tombstone-lost": Plantable("compaction"),
}
"""Anomaly → how it is planted, for every anomaly that a kernel looks for."""


PLANT_CODES: Mapping[str, int] = {name: code for code, name in enumerate(PLANTS)}
"""Anomaly → its `plant` in INSERTED."""


def parse_plants(text: str) -> dict[str, int]:
    """Parses `lost=50,duplicate=40` into the number of each anomaly. BadInput for what cannot be planted."""
    found: dict[str, int] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, separator, number = part.partition("=")
        if name not in PLANTS:
            raise BadInput(f"--plant {part!r}: {name!r} cannot be planted. Known: {', '.join(sorted(PLANTS))}.")
        if not separator or not (number.isascii() and number.isdigit()) or len(number) > 9:
            raise BadInput(f"--plant {part!r} is not NAME=NUMBER, such as lost=50.")
        if name in found:
            raise BadInput(f"--plant names {name} twice. Give one number for it.")
        found[name] = int(number)
    return {name: count for name, count in found.items() if count}


def expected_findings(planted: Mapping[str, int], *, cells: int) -> dict[str, int]:
    """Returns the findings that a check must have: the planted anomalies, and those that they imply."""
    found: dict[str, int] = {}
    for name, count in planted.items():
        plant = PLANTS[name]
        own = 0 if plant.every_cell else plant.in_cells(count)
        found[name] = found.get(name, 0) + own + (count - own) * cells
        for implied, times in plant.implies.items():
            found[implied] = found.get(implied, 0) + -(-count // plant.implied_every) * times
    return found


def inserted(name: str, after: np.ndarray, **columns: np.ndarray | int | bool) -> np.ndarray:
    """Records to put in behind these positions for an anomaly: array of INSERTED; what is not given is NONE, and shown to
    nobody."""
    made = np.empty(len(after), dtype=INSERTED)
    made["after"] = after
    made["plant"] = PLANT_CODES[name]
    defaults = {"sequence": NONE, "invoked_ns": 0, "transaction": NONE, "client": NONE, "sent_partition": NONE}
    shown = {"outcome": NONE, "sooner_ns": 0, "in_tail": False, "in_log": False, "in_visible": False}
    for name, value in (defaults | shown | columns).items():
        made[name] = value
    return made
