"""Settings by hand, and what is predicted of them."""

from pathlib import Path

from harness.validation.clients import translate_consumer, translate_producer
from harness.validation.known import Setting
from harness.validation.predict import Prediction
from harness.validation.servers import translate_servers
from harness.validation.trial import Parts

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
VERSION = "4.3.1"
SAFE_TOPIC = {"replication.factor": "3", "min.insync.replicas": "2"}


def settings(**values):
    return {name.replace("_", "."): Setting(str(value), f"app:{name}") for name, value in values.items()}


def of(names):
    return {name: Setting(value, f"the file, {name}") for name, value in names.items()}


def predicted(producer=None, *, consumer=None, topic=SAFE_TOPIC, client="java", commits="sync-after"):
    return Prediction(
        Parts(
            translate_servers(of(topic), None, VERSION, None),
            None if producer is None else translate_producer(of(producer), client, VERSION),
            None if consumer is None else translate_consumer(of(consumer), client, VERSION, commits=commits),
            VERSION,
        )
    )


def weak(prediction):
    return {weakness.guarantee.anomaly for weakness in prediction.weaknesses}
