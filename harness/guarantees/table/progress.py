"""The guarantee table, part progress: once every fault is undone and what must settle has settled, what waits goes on."""

from prozess.harness.guarantees.table.rules import Guarantee, Rule, RuleEffect, epochs_begin_again, markers_refused

_PEACE = (
    "at no time of that wait was there, for as long as the bound, neither a fault nor a change of leader nor a replica "
)


def _starved(anomaly: str, label: str = "client process", process: str = "the client's own process") -> Rule:
    """Returns the rule for a wait of a process that stood still meanwhile."""
    return Rule(
        id=f"{anomaly}/starved",
        effect=RuleEffect.NOT_APPLICABLE,
        when=("whoever waited stood still",),
        label=f"a {label} that stood still",
        reason=f"{process} stood still during that time, so it may not have noticed",
        source="A gap of more than 1 s between heartbeats of 100 ms",
    )


_HANGING = Guarantee(
    anomaly="hanging",
    meaning="init_transactions, a commit or an abort did not end in time, and no fault explains the delay.",
    promise="Once the faults are healed and every replica is in sync, init_transactions, a commit and an abort return within "
    "request.timeout.ms of the brokers, the client's own request timeout, and 10 s.",
    found=(
        "1 time init_transactions, a commit or an abort did not return within its bound",
        "{n} times init_transactions, a commit or an abort did not return within its bound",
    ),
    nothing="no client initialised, committed or aborted anything",
    source="KIP-98: a coordinator answers EndTxn once its decision is durable, and InitProducerId once the transaction "
    "before it has ended; TransactionMarkerChannelManager asks a leader again after request.timeout.ms; KafkaProducer, "
    "commitTransaction: a call that timed out may be made again",
    workloads=("transactions",),
    rules=(
        Rule(
            id="hanging/held-up",
            effect=RuleEffect.NOT_APPLICABLE,
            when=("held up",),
            label="an unsettled cluster",
            reason=f"{_PEACE}out of sync",
            source="The definition: after healing, with whole ISR. A coordinator writes its decision with acks=all, and to "
            "__transaction_state with transaction.state.log.min.isr (KIP-98)",
        ),
        _starved("hanging"),
        markers_refused("hanging"),
    ),
)
_STUCK = Guarantee(
    anomaly="stuck",
    meaning="A producer had something to send to a partition, no record of it was acknowledged, and no fault explains "
    "the delay.",
    promise="Once the faults are healed and every replica is in sync, a producer that has something to send to a partition "
    "gets an acknowledgement within linger.ms, request.timeout.ms of the brokers, the client's own request timeout, and 10 s "
    "(or its longest pause before it tries again).",
    found=(
        "1 time a producer with something to send got no acknowledgement within its bound",
        "{n} times a producer with something to send got no acknowledgement within its bound",
    ),
    nothing="no producer sent anything outside transactions while it was known to be awake",
    nothing_is_unknown=False,
    source="KafkaProducer: a record that cannot be delivered is sent again, with new metadata, until delivery.timeout.ms; "
    "Kafka documentation, design, 'Replication': a leader takes records as long as min.insync.replicas are in sync; KIP-516: "
    "what is asked for an id that is gone is asked for again with the id that the topic has",
    workloads=("log", "group", "compaction", "recorded", "exactly-once", "application"),
    rules=(
        Rule(
            id="stuck/held-up",
            effect=RuleEffect.NOT_APPLICABLE,
            when=("partition held up",),
            label="an unsettled partition",
            reason=f"{_PEACE}out of sync, and the topic was there",
            source="The definition: after healing, with whole ISR. A leader refuses records while fewer than "
            "min.insync.replicas are in sync, and a follower refuses all (Kafka protocol, error codes 19 and 6)",
        ),
        _starved("stuck"),
        epochs_begin_again("stuck", "librdkafka"),
    ),
)
_UNANSWERED = Guarantee(
    anomaly="unanswered",
    meaning="A call of an administrator got no answer in time, and no fault explains the delay.",
    promise="Once the faults are healed and every replica is in sync, each broker answers an administrator's calls, and the "
    "active controller those that brokers hand on to it, with success or a definite error, within request.timeout.ms of the "
    "brokers, the client's own request timeout, and 10 s.",
    found=(
        "1 call of an administrator got no answer within its bound",
        "{n} calls of administrators got no answer within their bound",
    ),
    nothing="no call of an administrator was recorded",
    nothing_is_unknown=False,
    source="KIP-533: a call of KafkaAdminClient is made again, each request with its own timeout, until "
    "default.api.timeout.ms; KIP-590: a broker hands what the controller decides on to it, and reports the client what came "
    "of it",
    rules=(
        Rule(
            id="unanswered/held-up",
            effect=RuleEffect.NOT_APPLICABLE,
            when=("call held up",),
            label="an unsettled cluster",
            reason=f"{_PEACE}out of sync; or nothing shows that the broker that was asked was well",
            source="The definition: after healing, with whole ISR. A broker that does not fetch for replica.lag.time.max.ms "
            "leaves the ISR, and one that is not heard of is fenced (KIP-631)",
        ),
        _starved("unanswered", "process", "the process that made the call"),
    ),
)
_NOT_LINEARIZABLE = Guarantee(
    anomaly="not-linearizable",
    meaning="An administrator was answered what contradicts what administrators had been answered before.",
    promise="Calls that make, delete and alter topics take effect one after the other, each between its begin and its end, "
    "and the active controller's answers show all that was answered before. A server's own copy of the metadata is at most "
    "10 s behind while nothing holds it up.",
    found=(
        "1 answer to an administrator contradicts earlier ones",
        "{n} answers to administrators contradict earlier ones",
    ),
    nothing="no administrators of the trial made changes (`administrators`)",
    nothing_is_unknown=False,
    source="KIP-631: the active controller answers a change once it is committed by a majority of the controllers, and its "
    "log gives changes one order; KIP-590: brokers hand changes on to it; KIP-516: a topic that is made again is another "
    "one. The 10 s are ours: Kafka gives no number",
    rules=(
        Rule(
            id="not-linearizable/carried-out-later",
            effect=RuleEffect.NOT_APPLICABLE,
            when=("may have been carried out later",),
            label="a call that was not yet answered",
            reason="the call that set the value was not answered before the other one took effect, and may have been carried "
            "out then, or twice",
            source="KIP-590: a broker sends a request again to the next controller if the connection to the last one broke "
            "(NodeToControllerChannelManager), and a controller that died may have carried it out",
        ),
        Rule(
            id="not-linearizable/held-up",
            effect=RuleEffect.NOT_APPLICABLE,
            when=("call held up",),
            label="an unsettled cluster",
            reason="at no time since that other value was there was there, for 10 s, neither a fault nor a change of leader "
            "nor a replica out of sync; so the copy may have been behind",
            source="KIP-631: brokers and controllers fetch the metadata log, and one that is held up or cut off goes on "
            "answering from the copy that it has",
        ),
    ),
)
PROGRESS = (_HANGING, _STUCK, _UNANSWERED, _NOT_LINEARIZABLE)
"""These guarantees, in the order in which reports list them."""
