"""Files that are imported may be compressed, and may be anything but a history."""

import gzip
import tracemalloc
from collections import deque

import pytest

from prozess.exchange.input_files import open_history
from prozess.exchange.jepsen.history import read_jepsen
from prozess.exchange.verifiable.events import read_verifiable
from prozess.harness.errors import BadInput
from tests.support.edn_histories import Jepsen

PRODUCER = (
    b'{"timestamp":17,"name":"startup_complete"}\n'
    b'{"timestamp":18,"name":"producer_send_success","key":null,"value":"0","offset":0,"partition":0,"topic":"t"}\n'
)


@pytest.fixture
def text(tmp_path):
    history = Jepsen()
    history.send(0, 5, 0, 0)
    history.poll(1, {5: [[0, 0]]})
    return history.write(tmp_path / "history.edn").read_bytes()


def test_what_is_compressed_reads_as_what_is_not(tmp_path, text):
    (tmp_path / "history.edn.gz").write_bytes(gzip.compress(text[:200]) + gzip.compress(text[200:]))
    plain, packed = (read_jepsen(tmp_path / name) for name in ("history.edn", "history.edn.gz"))
    assert (len(packed.sends), len(packed.reads)) == (len(plain.sends), len(plain.reads)) == (1, 1)
    (tmp_path / "p.jsonl").write_bytes(gzip.compress(PRODUCER))
    assert len(read_verifiable([tmp_path / "p.jsonl"]).sends) == 1


def test_an_unusual_history_may_be_compressed_too(tmp_path, text):
    (tmp_path / "h.gz").write_bytes(gzip.compress(text.replace(b":time 0,", b":time 0N,")))
    assert len(read_jepsen(tmp_path / "h.gz").reads) == 1


@pytest.mark.parametrize("spoil", [lambda packed: packed[:-9], lambda packed: packed[:40] + b"\0\0\0\0" + packed[44:]])
def test_a_damaged_file_is_refused_by_name(tmp_path, text, spoil):
    for name, content, read in (("h", text, read_jepsen), ("p", PRODUCER, lambda path: read_verifiable([path]))):
        (tmp_path / name).write_bytes(spoil(gzip.compress(content)))
        with pytest.raises(BadInput, match=rf"{name} is compressed by gzip, and damaged after [\d,]+ bytes"):
            read(tmp_path / name)


@pytest.mark.parametrize("read", [read_jepsen, lambda path: read_verifiable([path])])
def test_a_file_that_unpacks_to_anything_is_refused(tmp_path, read, monkeypatch):
    monkeypatch.setattr("prozess.exchange.input_files._FREE_BYTES", 1 << 20)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b" " * (1 << 23)))
    with pytest.raises(BadInput, match=r"bomb.gz is compressed by gzip, and holds more than [\d,]+ bytes of text"):
        read(tmp_path / "bomb.gz")


def test_what_is_refused_was_never_held(tmp_path):
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(1 << 27), 1))
    tracemalloc.start()
    with open_history(tmp_path / "bomb.gz") as file, pytest.raises(BadInput, match="holds more than"):
        deque(iter(lambda: file.read(1 << 16), b""), maxlen=0)
    assert tracemalloc.get_traced_memory()[1] < 1 << 21
    tracemalloc.stop()


def test_a_plain_file_is_read_as_it_is(tmp_path, text):
    with open_history(tmp_path / "history.edn") as file:
        assert file.read() == text
