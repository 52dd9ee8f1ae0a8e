"""How fast the batches of replicas are read from their segments, compared with a plain read of the same bytes.

    python benchmarks/replicas.py [--megabytes 1000] [--batch-bytes 16000] [--copies 3] [--keep DIRECTORY]

Headers are hopped over, so larger batches are read faster than a plain read could. Everything is measured in one go on one
machine, with the files in the page cache (they were just written); best of three. The ratio says more than the seconds.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from prozess.clusters.files.segments import HEADER, LENGTH_FROM, read_replicas

SEGMENT_BYTES = 256 << 20
PARTITIONS = 4
CHUNK_BYTES = 1 << 20


def write_partition(directory: Path, *, size_bytes: int, batch_bytes: int) -> int:
    """Writes segments of empty batches of that size, and returns how many batches."""
    directory.mkdir(parents=True)
    written = offset = 0
    while written < size_bytes:
        count = max(1, min(SEGMENT_BYTES, size_bytes - written) // batch_bytes)
        headers = np.zeros(count, dtype=HEADER)
        headers["base_offset"] = offset + np.arange(count) * 10
        headers["length"], headers["magic"], headers["records"] = batch_bytes - LENGTH_FROM, 2, 10
        headers["last_offset_delta"] = 9
        whole = np.zeros((count, batch_bytes), dtype=np.uint8)
        whole[:, : HEADER.itemsize] = headers.view(np.uint8).reshape(count, -1)
        whole.tofile(directory / f"{offset:020d}.log")
        written, offset = written + whole.nbytes, offset + 10 * count
    return offset // 10


def plain_read(files: list[Path]) -> int:
    """Reads every byte, and does nothing with it."""
    total, buffer = 0, bytearray(CHUNK_BYTES)
    for path in files:
        with path.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
            while count := file.readinto(buffer):
                total += count
    return total


def best_of_three(work: Callable[[], int]) -> tuple[float, int]:
    """Returns the seconds of the fastest run, and what it returned."""
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - begun)
    return min(times), result


def main() -> None:
    """Measures, and prints the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1_000, help="of all copies together")
    parser.add_argument("--batch-bytes", type=int, default=16_000)
    parser.add_argument("--copies", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="make the files there, and leave them")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        root = given.keep or Path(temporary)
        brokers = {node: root / f"broker-{node}" for node in range(1, given.copies + 1)}
        size_bytes = given.megabytes * 1_000_000 // given.copies // PARTITIONS
        batches = sum(
            write_partition(directory / f"t-{number}", size_bytes=size_bytes, batch_bytes=given.batch_bytes)
            for directory in brokers.values()
            for number in range(PARTITIONS)
        )
        named = [(number, "t", number) for number in range(PARTITIONS)]
        files = sorted(root.glob("*/*/*.log"))

        def read_batches() -> int:
            return sum(len(r.batches["base_offset"]) for r in read_replicas(brokers, named, on_problem=print))

        plain_s, total = best_of_three(lambda: plain_read(files))
        ours_s, found = best_of_three(read_batches)
        assert found == batches, (found, batches)
        megabytes = total / 1e6
        print(f"{megabytes:,.0f} MB in {batches:,} batches of {given.batch_bytes:,} bytes, {given.copies} copies")
        print(f"plain read     {plain_s:7.3f} s  {megabytes / plain_s:8,.0f} MB/s")
        print(
            f"batch headers  {ours_s:7.3f} s  {megabytes / ours_s:8,.0f} MB/s  ({plain_s / ours_s:.1f} of a plain read)"
        )


if __name__ == "__main__":
    main()
