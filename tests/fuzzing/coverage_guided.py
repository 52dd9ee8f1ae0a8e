"""Coverage-guided garbage (atheris) for whatever reads files of others: -m tests.fuzzing.coverage_guided TARGET SECONDS.

Whatever is read, or refused in words, is right; any other exception, and standing still, is what is looked for. Checksums are
made right before a binary file is read, else nothing would get past them. An input that fails is left in `crash-…`.
"""

import gzip
import random
import struct
import sys
import tempfile
import tomllib
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import atheris

from tests.support.paths import DATA

with atheris.instrument_imports(include=["harness", "clusters"]):
    from prozess.clusters.files.metadata_log import LOG_DIRECTORY, decode_metadata_log
    from prozess.clusters.files.segments import crc32c, parse_snapshot, read_replicas
    from prozess.clusters.files.zookeeper_log import decode_zookeeper_logs
    from prozess.exchange.jepsen.edn import EdnError, read_edn
    from prozess.exchange.jepsen.history import read_jepsen
    from prozess.exchange.verifiable.events import read_verifiable
    from prozess.harness.errors import BadInput, HistoryUnreadable
    from prozess.harness.plan.planning import make_plan
    from prozess.harness.plan.trial_files import known_trials, parse_trial

from tests.support import garbage

IDS = {("alpha", 0): 0, ("alpha", 1): 1, ("beta", 0): 2, ("gone", 0): 3}
STANDS_STILL_S = 10
SEEDS = 200
FILE = Path(tempfile.mkdtemp(prefix="prozess-fuzz-"))
"""Where the file of a case is written, again and again."""


def jepsen(data: bytes) -> None:
    (FILE / "history.edn").write_bytes(data)
    _refused(lambda: read_jepsen(FILE / "history.edn"), BadInput)


def edn(data: bytes) -> None:
    _refused(lambda: read_edn(data.decode("utf-8", "replace")), EdnError)


def verifiable(data: bytes) -> None:
    (FILE / "client.jsonl").write_bytes(data)
    _refused(lambda: read_verifiable([FILE / "client.jsonl"]), BadInput)


def trial(data: bytes) -> None:
    try:
        document = tomllib.loads(data.decode("utf-8", "replace"))
    except (tomllib.TOMLDecodeError, RecursionError):
        return
    _refused(lambda: make_plan(parse_trial(document, source="fuzz"), seed=1), BadInput)


def metadata_log(data: bytes) -> None:
    log = FILE / "controller" / LOG_DIRECTORY
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{0:020d}.log").write_bytes(_with_checksums(data))
    _refused(
        lambda: decode_metadata_log([log.parent], partition_ids=IDS, wall_minus_monotonic_ns=10**18), HistoryUnreadable
    )


def segments(data: bytes) -> None:
    """One byte says where a checkpoint of leader epochs begins."""
    log = FILE / "broker" / "t-0"
    log.mkdir(parents=True, exist_ok=True)
    cut = len(data) * (data[0] if data else 0) // 256
    (log / f"{0:020d}.log").write_bytes(data[1 : cut + 1])
    (log / "leader-epoch-checkpoint").write_bytes(data[cut + 1 :])
    list(read_replicas({1: log.parent}, [(0, "t", 0)], on_problem=lambda _: None))


def snapshot(data: bytes) -> None:
    head = data[:2] + struct.pack(">I", crc32c(data[6:])) + data[6:]
    parse_snapshot(head, 0)


def zookeeper(data: bytes) -> None:
    log = FILE / "zookeeper" / "version-2"
    log.mkdir(parents=True, exist_ok=True)
    (log / "log.100000001").write_bytes(_with_sums(data))
    _refused(
        lambda: decode_zookeeper_logs([log.parent], partition_ids=IDS, wall_minus_monotonic_ns=10**18),
        HistoryUnreadable,
    )


def _refused(work: Callable[[], object], error: type[Exception]) -> None:
    try:
        work()
    except error:
        return


def _with_checksums(data: bytes) -> bytes:
    """Record batches, each with its right CRC, as far as their lengths lead on."""
    made, position = bytearray(data), 0
    while position + 61 <= len(made):
        length = struct.unpack_from(">i", made, position + 8)[0]
        end = position + 12 + length
        if length < 49 or end > len(made):
            break
        struct.pack_into(">I", made, position + 17, crc32c(bytes(made[position + 21 : end])))
        position = end
    return bytes(made)


def _with_sums(data: bytes) -> bytes:
    """ZooKeeper's records, each with its right Adler-32, as far as their lengths lead on."""
    made, position = bytearray(data), 16
    while position + 12 <= len(made):
        length = struct.unpack_from(">i", made, position + 8)[0]
        end = position + 12 + length
        if length < 1 or end > len(made):
            break
        struct.pack_into(">q", made, position, zlib.adler32(bytes(made[position + 12 : end])))
        position = end + 1
    return bytes(made)


def _unzipped(pattern: str, limit: int = 4096) -> list[bytes]:
    """Their first bytes: small cases are quick."""
    return [gzip.decompress(path.read_bytes())[:limit] for path in sorted(DATA.glob(pattern))]


def _lines(make: Callable[[random.Random], str]) -> list[bytes]:
    rng = random.Random(1)
    return ["\n".join(make(rng) for _ in range(rng.randrange(1, 6))).encode() for _ in range(SEEDS)]


def _trials() -> list[bytes]:
    return [path.read_bytes() for path in known_trials().values()]


TARGETS: Mapping[str, tuple[Callable[[bytes], None], Callable[[], Iterable[bytes]]]] = {
    "jepsen": (jepsen, lambda: _lines(lambda rng: garbage.operation(rng, odd=0.05))),
    "edn": (edn, lambda: _lines(garbage.text)),
    "verifiable": (verifiable, lambda: _lines(lambda rng: garbage.event(rng, odd=0.1))),
    "trial": (trial, _trials),
    "metadata-log": (metadata_log, lambda: _unzipped("metadata-?.?.?.log.gz")),
    "segments": (segments, lambda: [b"\xc0" + data for data in _unzipped("metadata-*.log.gz")]),
    "snapshot": (snapshot, lambda: [struct.pack(">hIi", 1, 0, 0), struct.pack(">hIi", 1, 0, 1) + bytes(46)]),
    "zookeeper": (zookeeper, lambda: _unzipped("zookeeper-*.log.*.gz", limit=16_384)),
}
"""What is fuzzed → how, and with what it begins."""


def main() -> None:
    """Until something is found, or the time is over."""
    name, seconds = sys.argv[1], int(sys.argv[2])
    target, seeds = TARGETS[name]
    corpus = FILE / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(seeds()):
        (corpus / str(number)).write_bytes(seed)
    words = [f"-max_total_time={seconds}", f"-timeout={STANDS_STILL_S}", "-rss_limit_mb=2000", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *words, str(corpus)], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
