"""Clients that forgot every broker, by their own statistics."""

from collections.abc import Mapping

import numpy as np

from harness.clock import NS_PER_S
from harness.guarantees.faults import Columns
from harness.metrics import code_of

KNOWN_BROKERS = "client_known_brokers"
FORGOTTEN_NS = 10 * NS_PER_S
"""With librdkafka 2.16.0 who comes back does so within 2 s (`docs/decisions.md`)."""
DEFECT = (
    "a known defect of librdkafka, librdkafka#5301, open: an answer that names no broker makes it forget all of them"
)
"""Who knows none has nobody to ask for others, whether they are well or not, and stands still for good. Brokers that are
merely down stay known. [librdkafka rdkafka_metadata.c, rd_kafka_metadata_decommission_unavailable_brokers]"""


def brokerless(told: Columns, clients: Columns) -> Mapping[int, int]:
    """Planned client → since when, in ns, one in its place knew no broker, although it had known some: in every sample to its
    last one, for FORGOTTEN_NS at least. `told`: rows of `metrics`."""
    planned = dict(zip(clients["client"].tolist(), clients["planned"].tolist(), strict=True))
    mine = (told["metric"] == code_of(KNOWN_BROKERS)) & (told["absent"] == 0)
    found: dict[int, int] = {}
    for client in np.unique(told["client"][mine]).tolist():
        rows = np.flatnonzero(mine & (told["client"] == client))
        rows = rows[np.argsort(told["time_ns"][rows], kind="stable")]
        times, knew = told["time_ns"][rows], np.flatnonzero(told["value_micro"][rows] > 0)
        if not len(knew) or knew[-1] + 1 == len(rows):
            continue
        since_ns = int(times[knew[-1] + 1])
        if int(times[-1]) - since_ns >= FORGOTTEN_NS:
            found[planned.get(client, client)] = since_ns
    return found
