"""The guarantee table, part reading on: what is promised to who waits for records."""

from harness.guarantees.rules import Effect, Guarantee, Rule

STALLS = (
    Guarantee(
        anomaly="stalled",
        promise="After healing, with every replica in sync, a reader is given what there is to read, within 20 s.",
        found=("1 time a reader was given nothing for 20 s although there was something", "{n} times readers were given "
               "nothing for 20 s although there was something"),
        did=("let a reader wait for nothing", "let readers wait for nothing {n} times"),
        nothing="no reader lived",
        nothing_is_unknown=False,
        workloads=("log", "group", "compaction", "transactions", "errors"),
        source="KafkaConsumer, 'Offsets and Consumer Position'; KIP-98: a transaction past its timeout is aborted",
        rules=(
            Rule(
                id="stalled/unsettled",
                effect=Effect.NOT_APPLICABLE,
                when=("unsettled",),
                label="faults at work",
                reason="a fault, a change of leader or a gap in the ISR came within the time a reader is given",
                source="The definition: after healing, with whole ISR. While the ISR is below min.insync.replicas the high "
                "watermark does not advance (KIP-966)",
            ),
            Rule(
                id="stalled/starved",
                effect=Effect.NOT_APPLICABLE,
                when=("reader stood still",),
                label="a reader that stood still",
                reason="the reader's own heart stood still meanwhile, so it may not have asked",
                source="A gap of more than 1 s between heartbeats of 100 ms",
            ),
            Rule(
                id="stalled/transaction-state-lost",
                when=("last stable offset stood still", "transaction state lost"),
                label="a lost __transaction_state",
                reason="the coordinator forgot a transaction whose records are still in the log: nobody ends it until an "
                "operator does",
                change="flush.messages=1 for __transaction_state too, or more copies in sync,",
                source="KIP-664, hanging transactions; seen: all brokers without power, flush.messages=1 for the data alone",
            ),
            Rule(
                id="stalled/KAFKA-14402",
                effect=Effect.DEFECT,
                when=("brokers to 3.5", "last stable offset stood still"),
                label="KAFKA-14402",
                reason="a late write to a partition that its transaction no longer contains hangs: nobody ends it",
                source="KAFKA-14402, KIP-890 part 1 (transaction.partition.verification.enable)",
                defect="KAFKA-14402, fixed in 3.6.0",
            ),
        ),
    ),
)  # fmt: skip
