"""Settings by hand, and what is predicted of them."""

from prozess.harness.config.client_settings import translate_consumer, translate_producer
from prozess.harness.config.known_properties import Setting
from prozess.validation.prediction import Prediction
from prozess.validation.servers import translate_servers
from prozess.validation.trial import ConfigurationParts

VERSION = "4.4.0"
SAFE_TOPIC = {"replication.factor": "3", "min.insync.replicas": "2"}
SAFE_BROKER = {"min.insync.replicas": "2"}


def settings(**values):
    return {name.replace("_", "."): Setting(str(value), f"app:{name}") for name, value in values.items()}


def of(names):
    return {name: Setting(value, f"the file, {name}") for name, value in names.items()}


def predicted(
    producer=None,
    *,
    consumer=None,
    topic=SAFE_TOPIC,
    broker=SAFE_BROKER,
    client="java",
    commits="sync-after",
    version=VERSION,
    client_version=None,
    brokers=None,
    **more,
):
    parts = ConfigurationParts(
        translate_servers(
            None if topic is None else of(topic), None if broker is None else of(broker), version, brokers
        ),
        None if producer is None else translate_producer(of(producer), client, version),
        None if consumer is None else translate_consumer(of(consumer), client, version, commits=commits),
        version,
        client_version=client_version,
    )
    return Prediction(parts, **more)


def weak(prediction):
    return {weakness.guarantee.anomaly for weakness in prediction.weaknesses}
