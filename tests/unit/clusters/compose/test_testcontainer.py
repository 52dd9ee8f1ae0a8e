"""What a broker for testcontainers learns when it starts."""

from prozess.clusters.compose.testcontainer import _environment
from prozess.clusters.machine.server_properties import DEDUPE_BUFFER_BYTES, HEAP

BUFFER = "KAFKA_LOG_CLEANER_DEDUPE_BUFFER_SIZE"


def test_the_log_cleaners_buffer_leaves_room_in_the_heap_unless_somebody_wants_it_otherwise():
    """With Kafka's default of 128 MiB in a heap of 256 MiB a broker ended with OutOfMemoryError while it started."""
    heap = " ".join(HEAP["broker"])
    assert _environment(9092, {}, heap)[BUFFER] == str(DEDUPE_BUFFER_BYTES)
    (most,) = (int(option.removeprefix("-Xmx").rstrip("m")) for option in heap.split() if option.startswith("-Xmx"))
    assert most * 2**20 / 16 >= DEDUPE_BUFFER_BYTES
    assert _environment(9092, {"log.cleaner.dedupe.buffer.size": "16777216"}, heap)[BUFFER] == "16777216"
