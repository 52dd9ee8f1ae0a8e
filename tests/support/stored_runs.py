"""Small stored runs of several kinds, checked and judged, to be damaged: of rows, without rows, held, violated, unknown."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from prozess.exchange.imported_run import ImportOptions, new_directory, write_imported
from prozess.exchange.synthetic.history import GenerateOptions, generate
from prozess.exchange.verifiable.events import read_verifiable
from prozess.harness.report.reports import report_run
from prozess.harness.run_directory import RunDirectory
from prozess.harness.verdict import TrialVerdict
from prozess.testing.recorded.consumer import RecordedConsumer
from prozess.testing.recorded.producer import RecordedProducer
from prozess.testing.recording import Recording
from tests.support.damages import judged
from tests.support.edn_histories import Jepsen
from tests.support.mock_kafka import mock_kafka

TOPIC = "orders"


def recorded_run(path: Path, *, read: bool = True) -> RunDirectory:
    """Rows of a test's own clients, against librdkafka's mock cluster: held. `read`: by a group, too."""
    with mock_kafka() as kafka:
        kafka.create(TOPIC, partitions=2)
        recording = Recording(RunDirectory(path), test="tests/test_x.py::test_y", command="pytest x")
        recording.registry.add_topic(TOPIC, [[1], [1]], {})
        servers = {"bootstrap.servers": kafka.bootstrap_servers}
        reading = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        producer = recording.client_class(RecordedProducer)(servers)
        for number in range(20):
            producer.produce(TOPIC, f"order {number}", f"key-{number}")
        producer.flush(15)
        if read:
            _read(recording.client_class(RecordedConsumer)(servers | reading))
        recording.conclude()
        recording.close()
    report_run(recording.run)
    return recording.run


def _read(consumer: Any) -> None:
    consumer.subscribe([TOPIC])
    for _ in range(20):
        message = consumer.poll(15)
        assert message is not None
        assert message.error() is None, message.error()
        consumer.commit(message, asynchronous=False)
    consumer.close()


def generated_run(path: Path, *kinds: str, **planted: int) -> RunDirectory:
    """A history out of nothing."""
    run = RunDirectory(path)
    run.create()
    options = GenerateOptions(rows=400, partitions=4, kinds=kinds, planted=planted)
    generate(run, options, command="test")
    return checked(run)


def jepsen_run(path: Path) -> RunDirectory:
    """Imported: unknown, because nobody audited it."""
    path.mkdir()
    history = Jepsen()
    for number in range(6):
        history.send(0, "t", number, number)
    history.assign(1, ["t"])
    history.poll(1, {"t": [[number, number] for number in range(6)]})
    return checked(history.checked(path)[0])


def verifiable_run(path: Path) -> RunDirectory:
    """Imported, of one that is lost and one that is read twice at two offsets: violated."""
    path.mkdir()
    sent = [f'{{"timestamp": {n}, "name": "producer_send_success", "key": null, "value": "1.{n}", "topic": "t", '
            f'"partition": 0, "offset": {n}}}' for n in range(6)]  # fmt: skip
    read = [f'{{"timestamp": {n}, "name": "record_data", "key": null, "value": "1.{n if n < 5 else 1}", "topic": "t", '
            f'"partition": 0, "offset": {n}}}' for n in range(6)]  # fmt: skip
    files = []
    for name, lines in (("p", sent), ("c", read)):
        files.append(path / f"{name}.jsonl")
        files[-1].write_text("\n".join(['{"timestamp": 0, "name": "startup_complete"}', *lines]), encoding="utf-8")
    run = new_directory(path / "run")
    write_imported(run, read_verifiable(files), ImportOptions(faults="none"), command="test")
    return checked(run)


def checked(run: RunDirectory) -> RunDirectory:
    """As `prozess check` leaves it."""
    verdict = judged(run)
    assert not isinstance(verdict, str), verdict
    report_run(run)
    return run


MAKERS: Mapping[str, Callable[[Path], RunDirectory]] = {
    "recorded": recorded_run,
    "recorded, sent alone": lambda path: recorded_run(path, read=False),
    "generated log and groups": lambda path: generated_run(path, "log", "group"),
    "generated, lost and duplicated": lambda path: generated_run(path, "log", "transactions", lost=3, duplicate=2),
    "generated compaction": lambda path: generated_run(path, "compaction"),
    "Jepsen's": jepsen_run,
    "of verifiable clients": verifiable_run,
}


def judgements(verdict: TrialVerdict) -> Counter[tuple[int, str, str]]:
    """How many witnesses a verdict counts by (cell, anomaly, judgement), without those of which there are none."""
    told: Counter[tuple[int, str, str]] = Counter()
    for cell in verdict.cells:
        for name, anomaly in cell.anomalies.items():
            counts = {"forbidden": anomaly.forbidden, "permitted": anomaly.permitted, "unknown": anomaly.unknown}
            counts["not applicable"] = anomaly.count - sum(counts.values())
            told.update({(cell.cell, name, judgement): count for judgement, count in counts.items() if count})
    return told


def inputs_added_up(rows: Iterable[Mapping[str, Any]]) -> Counter[tuple[int, str, str]]:
    """The same of rows of `verdict_inputs`."""
    told: Counter[tuple[int, str, str]] = Counter()
    for row in rows:
        told[row["cell"], row["anomaly"], row["judgement"]] += row["count"]
    return told
