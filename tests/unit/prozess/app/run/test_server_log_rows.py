"""What servers say in their own logs of truncations, high watermarks and refused markers becomes rows of the history."""

import json
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace

import pytest

from prozess.app.run.server_log_rows import keep_server_logs
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import NONE, ObservationKind

BEGAN = datetime(2026, 3, 28, 23, 59, 50, 250_000, UTC)
START_NS = 5_000
PLAN = SimpleNamespace(recorded={("orders", 1): 4, ("orders-eu", 1): 7})
REFUSED = (
    "org.apache.kafka.common.errors.UnsupportedVersionException: Received request for api with key 27 (WriteTxnMarkers) "
    "and unsupported version 2\n"
)


class Kept(list):
    def write(self, table, **columns):
        assert table == "observations"
        self.append((columns["node"], columns["kind"], columns["time_ns"], columns["value"], columns["partition"]))


def node(number, role="broker"):
    return SimpleNamespace(name=f"{role}-{number}", node_id=number, roles=(role,))


NODES = (node(1), node(2), node(3001, "controller"))


def kept(path, logs, *, zone=UTC):
    """Logs: node → (seconds of the trial, text) of each entry; text alone is a line that continues the last one."""
    run = RunDirectory(path)
    run.logs.mkdir(parents=True)
    wall_ns = int(BEGAN.timestamp() * 1e9)
    clock = {"start_monotonic_ns": START_NS, "wall_minus_monotonic_ns": wall_ns - START_NS}
    run.clock.write_text(json.dumps(clock), encoding="utf-8")
    for name, entries in logs.items():
        lines = []
        for entry in entries:
            if isinstance(entry, str):
                lines.append(entry)
                continue
            local = (BEGAN + timedelta(seconds=entry[0])).astimezone(zone)
            lines.append(
                f"[{local:%Y-%m-%d %H:%M:%S},{local.microsecond // 1000:03}] INFO {entry[1]} (kafka.Somewhere)\n"
            )
        (run.logs / f"{name}.log").write_text("".join(lines), encoding="utf-8")
    rows = Kept()
    assert keep_server_logs(run, PLAN, NODES, rows) == len(rows)
    return [row for row in rows if row[1] != ObservationKind.SERVER_LOG], {
        row[0]: row[3] for row in rows if row[1] == ObservationKind.SERVER_LOG
    }


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=5, minutes=45))])
def test_a_truncation_has_the_partition_the_offset_and_the_time_of_the_trial(tmp_path, zone):
    cut = "Truncating to offset"
    entries = [
        (-20, "starting"),
        (3.5, f"[UnifiedLog partition=orders-1, dir=/d] {cut} 40"),
        (4.25, f"[Log partition=orders-eu-1, dir=/d] {cut} 7"),
        (
            5,
            "[UnifiedLog partition=orders-1, dir=/d] Truncating to 9 has no effect as the largest offset in the log is 8",
        ),
        (6, f"[UnifiedLog partition=orders-2, dir=/d] {cut} 1"),
        (7, f"[UnifiedLog partition=__consumer_offsets-1, dir=/d] {cut} 1"),
        f"[UnifiedLog partition=orders-1, dir=/d] {cut} 2\n",
    ]
    rows, read = kept(tmp_path, {"broker-2": entries}, zone=zone)
    kind = int(ObservationKind.TRUNCATED)
    assert rows == [(2, kind, START_NS + 3_500_000_000, 40, 4), (2, kind, START_NS + 4_250_000_000, 7, 7)]
    assert list(read) == [2]
    assert read[2] == (tmp_path / "logs" / "broker-2.log").stat().st_size


def test_a_high_watermark_that_was_taken_back_has_the_offset_at_which_it_had_been(tmp_path):
    lower = "Non-monotonic update of high watermark from"
    entries = [
        (-20, "starting"),
        (
            3.5,
            f"[UnifiedLog partition=orders-1, dir=/d] {lower} (offset=94 segment=[0:9]) to (offset=84 segment=[0:8])",
        ),
        (4, f"[Log partition=orders-eu-1, dir=/d] {lower} (offset=9, segment=[0:9]) to (offset=8, segment=[0:8])"),
        (5, f"[UnifiedLog partition=orders-2, dir=/d] {lower} (offset=9 segment=[0:9]) to (offset=8 segment=[0:8])"),
    ]
    rows, _ = kept(tmp_path, {"broker-1": entries})
    kind = int(ObservationKind.HIGH_WATERMARK_TAKEN_BACK)
    assert rows == [(1, kind, START_NS + 3_500_000_000, 94, 4), (1, kind, START_NS + 4 * 10**9, 9, 7)]


def test_refused_markers_are_counted_by_the_second(tmp_path):
    entries = [(-20, "starting")]
    for at_s in (8.0, 8.4, 8.999, 10.5):
        entries += [(at_s, "Closing socket because of error"), REFUSED]
    entries += [(11, "Closing socket because of error"), REFUSED.replace("27 (WriteTxnMarkers)", "1 (Fetch)")]
    rows, _ = kept(tmp_path, {"broker-1": entries, "controller-3001": entries})
    kind = int(ObservationKind.MARKERS_REFUSED)
    assert rows == [(1, kind, START_NS + 8 * 10**9, 3, NONE), (1, kind, START_NS + 10 * 10**9, 1, NONE)]


def test_a_log_that_is_not_there_or_has_no_times_was_not_read(tmp_path):
    assert kept(tmp_path, {"broker-1": [], "broker-2": [REFUSED, REFUSED]}) == ([], {})
