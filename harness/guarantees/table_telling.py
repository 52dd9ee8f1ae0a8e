"""The guarantee table, part telling: whose records are refused, and who hears of it."""

from harness.guarantees.rules import Guarantee, Rule

UNTOLD = Guarantee(
    anomaly="untold",
    promise="Who sent a record that did not get into the log was told so.",
    found=(
        "1 record is not in the log, and its sender was told of no error",
        "{n} records are not in the log, and their senders were told of no error",
    ),
    did=("left a sender untold of 1 record that is not there", "left senders untold of {n} records that are not there"),
    undone="would have told them",
    absence=True,
    nothing="no send failed",
    nothing_is_unknown=False,
    source="Kafka documentation, producer configuration delivery.timeout.ms: an upper bound on the time to report success or "
    "failure",
    rules=(
        Rule(
            id="untold/acks-0",
            when=("acks=0",),
            label="acks=0",
            reason="acks=0 waits for no reply, so nobody can be told what the broker made of the record",
            change="acks=1 or acks=all",
            source="Kafka documentation, producer configuration acks: no guarantee can be made that the server has received "
            "the record, and the client won't generally know of any failures",
        ),
    ),
)
ERRORS = (
    Guarantee(
        anomaly="unenforced",
        promise="What breaks a limit of its topic or its client is refused.",
        found=(
            "1 record is in the log although it breaks a limit",
            "{n} records are in the log although they break a limit",
        ),
        did=("took 1 record that breaks a limit", "took {n} records that break a limit"),
        nothing="the error was not provoked",
        source="Kafka documentation, topic configurations max.message.bytes, segment.bytes, cleanup.policy, "
        "message.timestamp.before.max.ms; security, ACLs",
        workloads=("errors",),
    ),
    Guarantee(
        anomaly="collateral",
        promise="An error that one record brings about concerns that record alone.",
        found=(
            "1 record was refused because of another one",
            "{n} records were refused because of another one",
        ),
        did=("refused 1 record because of another one", "refused {n} records because of another one"),
        undone="would have let them through",
        nothing="no record brought an error about",
        nothing_is_unknown=False,
        source="a record that the client refuses never enters a batch; a batch of one has no neighbours",
        rules=(
            Rule(
                id="collateral/batched",
                when=("refused by brokers", "several per batch"),
                label="batches of several records",
                reason="a broker takes a batch or refuses it whole, so a bad record takes its neighbours with it",
                change="a batch of one record (batch.num.messages=1), or sending the neighbours again,",
                source="KIP-467; LogValidator; librdkafka's _INVALID_DIFFERENT_RECORD: dropped due to invalid different "
                "record in batch",
            ),
        ),
        workloads=("errors",),
    ),
)
