"""This module shows the state of a watch: its status in one line, and its metrics for Prometheus.

The names follow Prometheus's conventions: base units (seconds), `_total` behind counters, `_info` behind what never changes.
"""

import platform
from collections import Counter
from importlib.metadata import version

from prozess.harness.clock import NS_PER_S, Clock
from prozess.harness.schema import NONE
from prozess.watch.judging import CHECK_S
from prozess.watch.metrics_endpoint import PrometheusMetric, counter, gauge, histogram
from prozess.watch.notices import Notices
from prozess.watch.state import CLIENTS, OUTCOMES
from prozess.watch.watcher import ClusterWatch
from prozess.watch.window import WORDS
from prozess.workloads.librdkafka import library_version


def build_info() -> PrometheusMetric:
    """Returns the versions of prozess, librdkafka and Python."""
    labels = {"version": version("prozess"), "librdkafka": library_version(), "python": platform.python_version()}
    return gauge("build_info", "Which versions run. Always 1.", [("", labels, 1)])


def up(*, watching: bool) -> PrometheusMetric:
    """Returns a gauge that is 1 while the watch runs."""
    return gauge("up", "1 while the watch's clients run; 0 while it begins or ends.", [("", {}, float(watching))])


def metrics_of(watch: ClusterWatch, notices: Notices | None, clock: Clock) -> list[PrometheusMetric]:
    """Returns the metrics of a watch. Their number depends on the brokers, and not on time."""
    now_ns, counts, partitions = clock.monotonic_ns(), watch.counts, watch.partitions
    by = {n: {"topic": watch.topic.name, "partition": str(n)} for n in partitions}
    kinds, views, led = watch.silences, watch.views, watch.leaders()
    found = [
        up(watching=watch.watching),
        build_info(),
        counter("sends_total", "Records that were sent, by what became of them.",
               [("", {**by[n], "outcome": name}, counts.sends[n, name]) for n in by for name in OUTCOMES.values()]),
        counter("reads_total", "Records that the reader was given.", [("", by[n], counts.reads[n]) for n in by]),
        histogram("produce_latency_seconds", "How long acknowledgements took.",
                  [sample for n in by for sample in partitions[n].acknowledged.samples(by[n])]),
        histogram("end_to_end_latency_seconds", "How long it took from the send of a record until it was read.",
                  [sample for n in by for sample in partitions[n].delivered.samples(by[n])]),
        histogram("commit_latency_seconds", "How long commits of the reader's offsets took.",
                  counts.committed.samples({})),
        counter("commits_total", "Commits of the reader's offsets, by whether they were taken.",
               [("", {"outcome": name}, counts.commits[name]) for name in ("taken", "failed")]),
        counter("lost_records_total", "Acknowledged records that are gone, each counted once.",
               [("", by[n], partitions[n].records.lost) for n in by]),
        counter("deleted_records_total", "Records that were removed before the topic's retention allows it.",
               [("", by[n], counts.deleted[n]) for n in by]),
        counter("audits_total", "Logs that were read again because another broker leads.",
               [("", by[n], partitions[n].changes.count) for n in by]),
        gauge("silence_seconds", "For how long something has been waited for by now.",
               [("", {**by[n], "kind": kind}, of.silent_s(n, now_ns)) for kind, of in kinds.items() for n in by]),
        gauge("outage", "1 while the partition takes no records, or gives none.",
               [("", {**by[n], "kind": kind}, float(n in of.open)) for kind, of in kinds.items() for n in by]),
        counter("outages_total", "Outages of partitions that have begun.",
               [("", {"kind": kind}, of.count) for kind, of in kinds.items()]),
        counter("outage_seconds_total", "How long all outages of partitions lasted together.",
               [("", {"kind": kind}, of.lasted_s(now_ns)) for kind, of in kinds.items()]),
        gauge("longest_silence_seconds", "The longest silence so far.",
               [("", {"kind": kind}, of.longest_ns / NS_PER_S) for kind, of in kinds.items()]),
        counter("sightings_total", "What the checkers found, by anomaly.",
               [("", {"anomaly": name, "certain": str(certain).lower()}, counts.sightings[name, certain])
                for name in WORDS for certain in (True, False)]),
        counter("seen_total", "Outages, unreadable records and violations that were reported.", [("", {}, counts.seen)]),
        counter("unknown_total", "What was reported as unknown.", [("", {}, counts.unknown)]),
        counter("clients_replaced_total", "Clients that could not go on.",
               [("", {"client": name}, counts.replaced[name]) for name in CLIENTS]),
        gauge("window_rows", "Rows of the rolling window.", [("", by[n], partitions[n].window.rows) for n in by]),
        gauge("followed_records", "Acknowledged records that the log ought to have.",
               [("", by[n], len(partitions[n].records)) for n in by]),
        gauge("leader", "The broker that leads the partition; -1: none.",
               [("", by[n], leader) for n, (leader, _) in led.items() if n in by]),
        gauge("in_sync_replicas", "Replicas in sync.",
               [("", by[n], in_sync) for n, (_, in_sync) in led.items() if n in by]),
        gauge("broker_answers", "1 if the broker answered when it was last asked.",
               [("", {"broker": str(b)}, float(view is not None)) for b, view in views.items()]),
    ]  # fmt: skip
    return found + _of_cluster(watch) + _of_webhook(notices)


def _of_cluster(watch: ClusterWatch) -> list[PrometheusMetric]:
    """Returns the metrics about the cluster by one broker's answer; nothing before the first answer."""
    if (health := watch.health) is None:
        return []
    return [
        gauge("cluster_brokers", "Brokers that are alive.", [("", {}, len(health.addresses))]),
        gauge("cluster_partitions", "Partitions of the topics that the watch may describe.",
              [("", {}, health.partitions)]),
        gauge("cluster_under_replicated_partitions", "Partitions in whose ISR a replica lacks.",
              [("", {}, health.under_replicated)]),
        gauge("cluster_offline_partitions", "Partitions without a leader.", [("", {}, health.offline)]),
        gauge("cluster_active_controller", "The node id of the active controller; -1: nobody names one.",
              [("", {}, health.controller)]),
        gauge("cluster_has_active_controller", "1 if there is an active controller.",
              [("", {}, float(health.controller != NONE))]),
    ]  # fmt: skip


def _of_webhook(notices: Notices | None) -> list[PrometheusMetric]:
    if notices is None:
        return []
    samples = [("", {"outcome": "taken"}, notices.posted), ("", {"outcome": "failed"}, notices.failed)]
    return [
        counter("webhook_messages_total", "Messages to the webhook, by whether it took them.", samples),
        counter("webhook_lines_dropped_total", "Lines that were not posted because too many waited.",
                [("", {}, notices.dropped)]),
    ]  # fmt: skip


def status_of(watch: ClusterWatch, clock: Clock) -> str:
    """Returns one line on how the watch is doing."""
    now_ns, counts = clock.monotonic_ns(), watch.counts
    sends = Counter[str]()
    for (_, name), count in counts.sends.items():
        sends[name] += count
    parts = [f"{(now_ns - watch.began_ns) / NS_PER_S:,.0f} s", f"{sends['acknowledged']:,} acknowledged"]
    parts.append(f"{sum(counts.reads.values()):,} read")
    parts += [f"{sends['in-doubt']:,} in doubt"] if sends["in-doubt"] else []
    lost = sum(watched.records.lost for watched in watch.partitions.values())
    parts += [f"{lost:,} LOST"] if lost else []
    silent_s = max(watch.silences["write"].silent_s(n, now_ns) for n in watch.partitions)
    parts += [f"silent for {silent_s:.1f} s"] if silent_s > CHECK_S else []
    led = watch.leaders()
    leaderless = sum(leader < 0 for leader, _ in led.values())
    parts += [f"{leaderless} without a leader"] if leaderless else []
    shrunken = sum(in_sync < watch.topic.copies for _, in_sync in led.values())
    parts += [f"{shrunken} with a shrunken ISR"] if shrunken else []
    silent = [broker for broker, view in watch.views.items() if view is None]
    parts += [f"no answer from {', '.join(map(str, silent))}"] if silent else []
    open_now = sorted({number for silences in watch.silences.values() for number in silences.open})
    parts += [f"OUTAGE of {', '.join(map(str, open_now))}"] if open_now else []
    parts += [f"last error: {error}"] if (error := watch.last_error()) else []
    parts.append(f"{counts.seen} seen, {counts.unknown} unknown")
    return " · ".join(parts)
