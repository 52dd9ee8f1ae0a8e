"""What the guarantee table makes of one key in two partitions: which partitioners, producers and additions permit it."""

import pytest

from prozess.harness.guarantees.evidence.envelope import Envelope
from prozess.harness.guarantees.table.cell_configuration import configuration_of
from prozess.harness.guarantees.verdict.evaluation import Judgement, evaluate_witnesses
from prozess.harness.interfaces.witnesses import KeyCase, make_witnesses
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial

ONE, TWO, ADDED, PERHAPS = KeyCase.ONE_PRODUCER, KeyCase.TWO_PRODUCERS, KeyCase.ADDED, KeyCase.PERHAPS_ADDED
FORBIDDEN, PERMITTED, UNKNOWN = Judgement.FORBIDDEN, Judgement.PERMITTED, Judgement.UNKNOWN
ROUND_ROBIN = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
COMMAND = ["mine", "--topic", "x"]


@pytest.mark.parametrize(
    ("base", "case", "judgement"),
    [
        ({"producer.client": "java"}, ONE, FORBIDDEN),
        ({"producer.client": "librdkafka"}, ONE, FORBIDDEN),
        ({"producer.client": "java"}, ADDED, PERMITTED),
        ({"producer.client": "java"}, PERHAPS, UNKNOWN),
        ({"producer.properties.partitioner": "random"}, ONE, PERMITTED),
        ({"producer.properties.partitioner": "fnv1a"}, ONE, FORBIDDEN),
        ({"producer.client": "java", "producer.properties.partitioner.class": ROUND_ROBIN}, ONE, PERMITTED),
        ({"producer.client": "java", "producer.properties.partitioner.class": "com.acme.Mine"}, ONE, UNKNOWN),
        ({"producer.client": "java", "producer.properties.partitioner.ignore.keys": "true"}, ONE, PERMITTED),
        ({"producer.client": "java", "producer.beside": "librdkafka"}, TWO, PERMITTED),
        ({"producer.client": "java", "producer.beside": "librdkafka"}, ONE, FORBIDDEN),
        ({"producer.client": "librdkafka", "producer.beside": "java"}, TWO, FORBIDDEN),
        ({"producer.properties.partitioner": "consistent", "producer.beside": "java"}, TWO, PERMITTED),
        ({"producer.properties.partitioner": "consistent", "producer.beside": "librdkafka"}, TWO, FORBIDDEN),
        ({"producer.command": COMMAND}, ONE, UNKNOWN),
    ],
)
def test_a_split_key_is_permitted_by_what_chose_the_partition(base, case, judgement):
    document = {"name": "t", "title": "t", "workload": "verifiable", "base": base}
    (cell,) = make_plan(parse_trial(document, source="test"), seed=1).cells
    witness = make_witnesses(1, {"case": int(case)})
    envelope = Envelope(acks="all", unclean_enabled=False)
    found = evaluate_witnesses("split-key", configuration_of(cell, "4.4.0"), envelope, witness)
    assert Judgement(int(found.judgement[0])) is judgement
