"""The guarantee table, part progress: once every fault is undone and what must settle has settled, what waits goes on."""

from prozess.harness.guarantees.table.rules import Guarantee, Rule, RuleEffect, markers_refused

_PEACE = (
    "at no time of that wait was there, for as long as the bound, neither a fault nor a change of leader nor a replica "
)
_HANGING = Guarantee(
    anomaly="hanging",
    meaning="A client waited in vain for the end of init_transactions, of a commit or of an abort, and nothing held it up.",
    promise="Once the faults are undone and every replica is in sync, init_transactions, a commit and an abort return within "
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
        Rule(
            id="hanging/starved",
            effect=RuleEffect.NOT_APPLICABLE,
            when=("whoever waited stood still",),
            label="a client process that stood still",
            reason="the client's own process stood still during that time, so it may not have noticed",
            source="A gap of more than 1 s between heartbeats of 100 ms",
        ),
        markers_refused("hanging"),
    ),
)
PROGRESS = (_HANGING,)
"""These guarantees, in the order in which reports list them."""
