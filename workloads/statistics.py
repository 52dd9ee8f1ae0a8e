"""What librdkafka counts of itself, once a second, as rows of `metrics` that the client writes itself.

Fields: https://github.com/confluentinc/librdkafka/blob/master/STATISTICS.md. Counters are summed over the brokers the client
knows; an offset below zero is not known, and what depends on it absent.
"""

import json
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from harness.metrics import MICRO, code_of
from harness.rows import RowWriter
from harness.schema import METRICS, NONE

INTERVAL_MS = 1_000
INTERVAL_PROPERTY = "statistics.interval.ms"
_COUNTED = {
    "client_retries": "txretries",
    "client_request_errors": "txerrs",
    "client_timeouts": "req_timeouts",
    "client_outbound_requests": "outbuf_cnt",
}
_OF_BROKERS = ("client_known_brokers", "client_stray_partitions")
_ASKED = ("configured", "learned")
"""Sources of brokers that metadata is asked of: not the connections to coordinators, which are "logical"."""


class Statistics:
    """Rows of one client. Off unless its properties ask for statistics."""

    def __init__(
        self,
        rows: Path,
        *,
        client: int,
        properties: Mapping[str, Any],
        partitions: Mapping[tuple[str, int], int],
        now_ns: Callable[[], int],
    ) -> None:
        self._rows, self._client, self._partitions, self._now_ns = rows, client, partitions, now_ns
        self._wanted = bool(properties.get(INTERVAL_PROPERTY))
        self._committed_only = properties.get("isolation.level", "read_committed") == "read_committed"
        self._writer: RowWriter | None = None

    @property
    def callbacks(self) -> dict[str, Any]:
        """What to give librdkafka beside its properties."""
        return {"stats_cb": self.record} if self._wanted else {}

    @property
    def callbacks_of_brokers(self) -> dict[str, Any]:
        """The same, of a client of which only what it knows of brokers is recorded: a member's lag is its group's."""
        return {"stats_cb": partial(self.record, only=_OF_BROKERS)} if self._wanted else {}

    def record(self, text: str, *, only: Collection[str] = ()) -> None:
        """Write what one report says, or `only` these metrics. Called by librdkafka's poll, in the client's own thread."""
        now_ns = self._now_ns()
        for metric, partition, value in samples(
            json.loads(text), self._partitions, committed_only=self._committed_only
        ):
            if not only or metric in only:
                self._append(now_ns, metric, partition, value)

    def sample(self, metric: str, value: float | None) -> None:
        """Write one value that the client came to know otherwise, if statistics are wanted; None = not known."""
        self.samples({metric: value}, time_ns=self._now_ns())

    def samples(self, told: Mapping[str, float | None], *, time_ns: int) -> None:
        """The same, of several at one time on the trial's clock."""
        for metric, value in told.items() if self._wanted else ():
            self._append(time_ns, metric, NONE, value)

    def _append(self, now_ns: int, metric: str, partition: int, value: float | None) -> None:
        if self._writer is None:
            self._writer = RowWriter(self._rows, METRICS, self._client)
        micro = 0 if value is None else round(value * MICRO)
        row = {"time_ns": now_ns, "value_micro": micro, "metric": code_of(metric), "node": NONE}
        row |= {"partition": partition, "absent": int(value is None)}
        self._writer.append(*(row[column.name] for column in METRICS.columns))

    def close(self) -> None:
        """Flush."""
        if self._writer is not None:
            self._writer.close()


def samples(
    report: Mapping[str, Any], partitions: Mapping[tuple[str, int], int], *, committed_only: bool
) -> list[tuple[str, int, float | None]]:
    """(metric, dense partition or NONE, value) of one report of librdkafka. `committed_only`: the reader sees committed
    records only, so that its end is the last stable offset."""
    brokers = list(report.get("brokers", {}).values())
    trips = [broker["rtt"]["p99"] for broker in brokers if broker.get("rtt", {}).get("cnt")]
    found: list[tuple[str, int, float | None]] = [
        (metric, NONE, float(sum(broker.get(field, 0) for broker in brokers))) for metric, field in _COUNTED.items()
    ]
    waiting = sum(broker.get("waitresp_cnt", 0) for broker in brokers)
    found = [(m, p, (v or 0.0) + waiting) if m == "client_outbound_requests" else (m, p, v) for m, p, v in found]
    found.append(("client_rtt_p99", NONE, max(trips) / 1000 if trips else None))
    found.append(("client_known_brokers", NONE, float(sum(broker.get("source") in _ASKED for broker in brokers))))
    found.append(("client_stray_partitions", NONE, float(sum(map(_strays, _own(report, partitions).values())))))
    if report.get("type") == "producer":
        found.append(("client_queued_records", NONE, float(report.get("msg_cnt", 0))))
        found.append(("client_records_sent", NONE, float(report.get("txmsgs", 0))))
        return found
    found.append(("client_records_received", NONE, float(report.get("rxmsgs", 0))))
    return found + _lags(report, partitions, "ls_offset" if committed_only else "hi_offset")


def _own(report: Mapping[str, Any], partitions: Mapping[tuple[str, int], int]) -> dict[int, Mapping[str, Any]]:
    """What is said of the client's partitions, by their dense ids."""
    return {
        dense: partition
        for name, topic in report.get("topics", {}).items()
        for number, partition in topic.get("partitions", {}).items()
        if (dense := partitions.get((name, int(number)))) is not None
    }


def _strays(partition: Mapping[str, Any]) -> bool:
    """`broker` serves the partition within librdkafka, `leader` is what the brokers said last."""
    broker = partition.get("broker", NONE)
    return bool(broker == NONE or broker != partition.get("leader", NONE))


def _lags(
    report: Mapping[str, Any], partitions: Mapping[tuple[str, int], int], end: str
) -> list[tuple[str, int, float | None]]:
    """Of the partitions that the client is reading. librdkafka's own `consumer_lag` counts from the committed offset, which a
    reader without a group has none of; so from the offset that the application has got to."""
    found: list[tuple[str, int, float | None]] = []
    for dense, partition in _own(report, partitions).items():
        if partition.get("fetch_state", "none") in ("none", "stopped"):
            continue
        end_offset, reached = partition.get(end, -1), partition.get("app_offset", -1)
        known = end_offset >= 0 and reached >= 0
        found.append(("consumer_lag", dense, float(max(0, end_offset - reached)) if known else None))
    return found
