"""The scenarios of Kafka's reliability, by number: what trials say that they run (`scenarios` of a trial file)."""

from collections.abc import Iterable, Mapping

from harness.trial import Trial

SCENARIOS: Mapping[str, str] = {
    "A0": "no fault, and every fault, with the safest settings: nothing forbidden",
    "A1": "order within a partition",
    "A2": "committed means written to every replica in sync",
    "A3": "committed records survive while one replica that was in sync lives",
    "A4": "consumers are given committed records only",
    "B1": "one, two, three copies: brokers down, a disk wiped",
    "B2": "all copies in one rack, or spread over racks",
    "B3": "unclean elections off: offline until a replica in sync is back",
    "B4": "unclean elections on: available, and losses",
    "B5": "followers out of sync because they crashed, or because they are slow",
    "B6": "min.insync.replicas 2 of 3 with one and with two down",
    "B7": "min.insync.replicas 1, the last replica in sync loses its disk",
    "B8": "session timeouts and the time to a new leader",
    "B9": "replica.lag.time.max.ms and followers that pause",
    "B10": "power loss, with flush.messages and without",
    "B11": "a leader that lives but is not heard: fenced, no second writer",
    "C1": "acks=1, and the leader dies before its followers have fetched",
    "C2": "acks=all without retries during an election",
    "C3": "acks=0 with the cluster down",
    "C4": "retries, and outages longer and shorter than delivery.timeout.ms",
    "C5": "the answer is lost, the request was written",
    "C6": "idempotence with five requests in flight",
    "C7": "errors that no retry heals reach the caller",
    "C8": "a restarted producer sends again",
    "C9": "rolling restart of producers",
    "D1": "commit before processing, and a crash",
    "D2": "commit after processing, and a crash",
    "D3": "automatic commits, crashes and rebalances",
    "D4": "auto.offset.reset",
    "D5": "everything that starts a rebalance",
    "D6": "the eager, cooperative and consumer protocols",
    "D7": "static membership",
    "D8": "rolling restart of consumers",
    "D9": "commit when partitions are revoked, or not",
    "D10": "consumers that try again: pause, retry topic",
    "D11": "the group coordinator is killed",
    "E1": "M1 to M4 on three replicas, acks=all",
    "E2": "M1 to M4 on three replicas, acks=1",
    "E3": "the old leader returns and truncates",
    "E4": "failover after failover",
    "E5": "reassignment, replication factor, preferred leaders under load",
    "E6": "segments roll, retention and compaction under faults",
    "F1": "the active controller is killed, paused, restarted",
    "F2": "the controllers lose a minority, and the majority",
    "F3": "ZooKeeper loses a server, its leader, the majority",
    "F4": "the same trial on every metadata mode",
    "F5": "migration from ZooKeeper to KRaft",
    "F6": "rolling upgrade, mixed versions",
    "F7": "controlled shutdown against a crash",
    "G1": "atomic writes to several partitions",
    "G2": "zombies of a transactional.id",
    "G3": "the transaction coordinator is killed",
    "G4": "transactions time out",
    "G5": "consume, process, produce: exactly once",
    "G6": "what brokers know of producers survives them",
    "G7": "delayed EndTxn and Produce, transaction versions 1 and 2",
    "H1": "a client loses its connection to one broker",
    "H2": "high latency between client and broker",
    "H3": "a full disk",
    "H4": "a disk that hangs",
    "H5": "leader elections, one and many",
    "H6": "rolling restart of brokers",
    "H7": "everything at once",
    "H8": "a user's own application",
    "H9": "metrics and alerts",
    "H10": "counts and latency over time",
    "H11": "high traffic",
}
"""Number → what it is about."""


def covered(trials: Iterable[Trial]) -> dict[str, list[str]]:
    """Number → names of the trials that run it; every scenario, those that none runs with an empty list."""
    found: dict[str, list[str]] = {number: [] for number in SCENARIOS}
    for trial in trials:
        for number in trial.scenarios:
            found.setdefault(number, []).append(trial.name)
    return found
