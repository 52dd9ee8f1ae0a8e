"""Run by test_java_producer in a process of its own, which a JVM does not leave: a Java producer that reaches nobody."""

import json
import sys
from pathlib import Path

from confluent_kafka import KafkaException

from prozess.clusters.install.kafka_jars import ensure_jars
from prozess.clusters.install.tools import find_java
from prozess.workloads.java import JavaOptions
from prozess.workloads.transactions.java_producer import JavaProducer

NOBODY = "127.0.0.1:1"
VALUE = bytes([0, 127, 200, 255])


def problem(call):
    """(retriable, to be aborted, fatal) of the error that a call ends with."""
    try:
        call()
    except KafkaException as error:
        told = error.args[0]
        return [told.retriable(), told.txn_requires_abort(), told.fatal()]
    return None


def main():
    runtime = Path(find_java().executable).resolve()
    properties = {"bootstrap.servers": NOBODY, "transactional.id": "t", "max.block.ms": 100}
    java = JavaOptions(
        library=str(runtime.parents[1] / "lib" / "server" / "libjvm.so"),
        jars=tuple(str(jar) for jar in ensure_jars(sys.argv[1])),
        properties=properties,
    )
    producer = JavaProducer(java, on_delivery=lambda error, record: None)
    seen = {
        "nobody answers": problem(lambda: producer.init_transactions(0.1)),
        "out of order": problem(producer.begin_transaction),
        "nothing is reported": producer.poll(0.01),
    }
    producer.purge(blocking=False)
    del java.properties["transactional.id"]
    reports = []
    plain = JavaProducer(java, on_delivery=lambda error, record: reports.append((error, record)))
    seen["refused"] = problem(lambda: plain.produce("topic", VALUE, None, 0))
    seen["reported"] = plain.poll(5.0)
    ((error, record),) = reports
    seen["failed"] = [error.retriable(), record.offset(), list(record.value())]
    plain.purge(blocking=False)
    print(json.dumps(seen))  # noqa: T201 - for the test


main()
