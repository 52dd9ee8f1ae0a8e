"""Metrics: what servers and clients report becomes rows, and rows become series; what is not reported is absent, never
zero."""

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.app.run.metrics_sampler import Changes, JmxOfNode, LeaderSampler, MetricRows, Quorum
from prozess.clusters.protocol.client import Cursor
from prozess.clusters.protocol.metrics import BROKER, ERRORS, attributes_of, reads, values
from prozess.clusters.protocol.requests import describe_producers_request, list_transactions_request
from prozess.harness.columns import empty_rows
from prozess.harness.interfaces.cluster import CoordinatedTransaction, OpenTransaction
from prozess.harness.recording.metric_series import MetricTable
from prozess.harness.recording.metrics import BY_NAME, FIXED_CODE, METRICS, Origin, code_of, known_metric
from prozess.harness.recording.rows import Recorder, read_rows
from prozess.harness.report.charts import monitor_panels
from prozess.harness.run_directory import RunDirectory, read_json
from prozess.harness.schema import METRICS as TABLE
from prozess.harness.schema import OBSERVATIONS
from prozess.harness.verdict import AlertResult, Verdict
from prozess.workloads.metrics import Statistics, samples
from tests.support.clock import FakeClock

S = 1_000_000_000


def answers_to(asked: Sequence[Mapping[str, Any]], told: Mapping[tuple[str, str], Any]) -> list[dict[str, Any]]:
    """What an agent answers that knows `told`: (MBean, attribute) → value."""
    found: list[dict[str, Any]] = []
    for read in asked:
        value = {a: told[read["mbean"], a] for a in read["attribute"] if (read["mbean"], a) in told}
        known = bool(value)
        found.append(
            {"request": dict(read), "status": 200, "value": value} if known else {"status": 404, "error": "none"}
        )
    return found


# --- the table and JMX ----------------------------------------------------------------------------------------------


def test_codes_are_fixed_and_apart_from_the_dictionary() -> None:
    assert all(metric.code > FIXED_CODE for metric in METRICS)
    assert code_of("under_replicated_partitions") == FIXED_CODE + 1  # in histories of every age
    assert code_of("records_acknowledged") == FIXED_CODE + 91


def test_every_metric_that_servers_tell_has_an_mbean_and_the_other_way_round() -> None:
    told = {attribute.metric for attribute in attributes_of(["broker", "controller"])}
    assert told == {metric.name for metric in METRICS if metric.origin in (Origin.BROKER, Origin.CONTROLLER)}


@given(st.dictionaries(st.sampled_from(BROKER), st.one_of(st.integers(0, 10**12), st.floats(), st.none(), st.text())))
def test_what_is_no_number_is_absent(told: dict[Any, Any]) -> None:
    found = values(BROKER, answers_to(reads(BROKER), {(a.mbean, a.attribute): v for a, v in told.items()}))
    for attribute in BROKER:
        value = told.get(attribute)
        number = isinstance(value, int | float) and value == value and abs(value) < 9.2e12
        assert found[attribute.metric] == (value if number else None)


def test_errors_are_summed_over_what_else_tells_them_apart() -> None:
    head = "kafka.network:type=RequestMetrics,name=ErrorsPerSec"
    value = {
        f"{head},request=Produce,error=NOT_ENOUGH_REPLICAS": {"Count": 3},
        f"{head},request=Produce,version=3,error=NOT_ENOUGH_REPLICAS": {"Count": 4},
        f"{head},request=Produce,error=NONE": {"Count": 100},
    }
    # Jolokia repeats a pattern with its keys sorted.
    request = {"mbean": "kafka.network:error=*,name=ErrorsPerSec,request=*,type=RequestMetrics"}
    found = values((), [{"request": request, "status": 200, "value": value}])
    assert found == {"errors(Produce,NOT_ENOUGH_REPLICAS)": 7.0}
    assert known_metric("errors(Produce,NOT_ENOUGH_REPLICAS)") is not None
    assert reads(())[-1]["mbean"] == ERRORS


def test_transactions_of_a_coordinator_are_counted() -> None:
    request = list_transactions_request(["Ongoing"])
    assert (request.api_key, request.body) == (66, b"\x02\x08Ongoing\x01\0")
    ongoing = b"\x02a" + (7).to_bytes(8, "big") + b"\x08Ongoing" + b"\0"
    answer = b"\0\0\0\0" + b"\0\0" + b"\x01" + b"\x02" + ongoing + b"\0"
    assert request.decode(Cursor(answer)) == (CoordinatedTransaction("a", 7, "Ongoing"),)
    assert request.decode(Cursor(b"\0\0\0\0" + b"\0\x0e" + b"\x01\x01\0")) is None


def test_open_transactions_of_partitions_are_told_by_where_they_begin() -> None:
    request = describe_producers_request({"t": [0, 3]})
    assert (request.api_key, request.body) == (61, b"\x02\x02t\x03\0\0\0\0\0\0\0\x03\0\0")

    def producer(number: int, start: int) -> bytes:
        return struct.pack(">qiiqiq", number, 2, 40, 1005, 6, start) + b"\0"

    active = b"\x04" + producer(9, 70) + producer(8, -1) + producer(7, 50)
    partitions = struct.pack(">ih", 0, 0) + b"\0" + active + b"\0" + struct.pack(">ih", 3, 6) + b"\0\x01\0"
    answer = request.decode(Cursor(b"\0\0\0\0" + b"\x02\x02t\x03" + partitions + b"\0" + b"\0"))
    assert answer == {("t", 0): (OpenTransaction(50, 7, 2, 1005, 6), OpenTransaction(70, 9, 2, 1005, 6))}


# --- sampling -------------------------------------------------------------------------------------------------------


class Told:
    """An observer whose answers a test sets."""

    brokers, controllers = (1, 2), (3001,)

    def __init__(self) -> None:
        self.of_jmx: Mapping[str, float | None] | None = None
        self.led: dict[int, Mapping[tuple[str, int], Any] | None] = {}
        self.of_quorum: tuple[int, int] | None = None

    def expected(self, node_id: int) -> Sequence[str]:
        return ("leaders", "under_replicated_partitions")

    def jmx(self, node_id: int, *, timeout_s: float) -> Mapping[str, float | None] | None:
        return self.of_jmx

    def led_by(self, node_id: int, topics: Sequence[str], *, timeout_s: float) -> Mapping[tuple[str, int], Any] | None:
        return self.led.get(node_id)

    def open_transactions(self, node_id: int, *, timeout_s: float) -> int | None:
        return 0

    def quorum(self, node_id: int, *, timeout_s: float) -> tuple[int, int] | None:
        return self.of_quorum

    def elr_sizes(self, topics: Sequence[str], *, timeout_s: float) -> Mapping[tuple[str, int], int] | None:
        return None

    def close(self) -> None:
        return


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    made = RunDirectory(tmp_path)
    made.create()
    return made


class Sampled:
    """A recorder, a clock and an observer; `table` is what was recorded so far."""

    def __init__(self, run: RunDirectory) -> None:
        self.run, self.clock, self.told = run, FakeClock(), Told()
        self.recorder = Recorder(run)
        self.rows = MetricRows(self.recorder, self.clock)

    def raw(self) -> np.ndarray:
        return read_rows(self.run.rows, TABLE, self.recorder.client)[0]

    def observed(self) -> np.ndarray:
        return read_rows(self.run.rows, OBSERVATIONS, self.recorder.client)[0]

    def table(self) -> MetricTable:
        rows = self.raw()
        columns = {"client": np.zeros(len(rows), dtype=np.int32)} | {c.name: rows[c.name] for c in TABLE.columns}
        texts = read_json(self.run.dictionaries) if self.run.dictionaries.exists() else {}
        return MetricTable(columns, texts.get("metric", ()))


@pytest.fixture
def sampled(run: RunDirectory) -> Sampled:
    return Sampled(run)


def test_a_node_that_does_not_answer_is_absent_in_every_metric_it_should_tell(sampled: Sampled) -> None:
    JmxOfNode(sampled.told, 1, sampled.rows).sample()
    rows = sampled.raw()
    assert rows["absent"].tolist() == [1, 1, 1]
    assert set(rows["metric"].tolist()) == {
        code_of(m) for m in ("jmx_answer", "leaders", "under_replicated_partitions")
    }


def test_an_error_is_counted_from_zero_wherever_its_node_answered(sampled: Sampled) -> None:
    node, name = JmxOfNode(sampled.told, 1, sampled.rows), "errors(Produce,INVALID_RECORD)"
    for answer in ({"leaders": 2.0}, None, {"leaders": 2.0}, {"leaders": 2.0, name: 5.0}):
        sampled.told.of_jmx = answer
        node.sample()
        sampled.clock.sleep(1.0)
    (series,) = sampled.table().series(name)
    assert np.array_equal(series.value, [0.0, np.nan, 0.0, 5.0], equal_nan=True)
    (never,) = sampled.table().series("errors(Fetch,INVALID_RECORD)")
    assert np.array_equal(never.value, [0.0, np.nan, 0.0, 0.0], equal_nan=True)


def led(
    epoch: int, isr: int, high: int | None, stable: int | None, transactions: tuple[Any, ...] | None = ()
) -> SimpleNamespace:
    return SimpleNamespace(
        leader_epoch=epoch,
        isr_size=isr,
        high_watermark=high,
        log_start=None,
        last_stable_offset=stable,
        watermark_epoch=epoch,
        transactions=transactions,
    )


def test_a_hanging_transaction_names_its_producer_for_as_long_as_it_is_open(sampled: Sampled) -> None:
    leaders, begun_ms = LeaderSampler(sampled.told, {("t", 0): 7}, sampled.rows), sampled.clock.wall_ns() // 1_000_000
    hanging = OpenTransaction(80, 2001, 4, begun_ms, 3)
    for opened in ((), (hanging, OpenTransaction(90, 5, 0, begun_ms, -1)), (hanging,), None, ()):
        sampled.told.led = {1: {("t", 0): led(5, 3, 100, 80, opened)}}
        leaders.sample(1)
        sampled.clock.sleep(2.0)
    told = {
        what: next(iter(sampled.table().series(f"oldest_transaction_{what}"))).value
        for what in ("idle", "offset", "producer", "epoch", "coordinator_epoch")
    }
    assert np.allclose(told["idle"], [0.0, 2.0, 4.0, np.nan, 0.0], equal_nan=True, atol=0.01)
    for what, value in (("offset", 80), ("producer", 2001), ("epoch", 4), ("coordinator_epoch", 3)):
        assert np.array_equal(told[what], [-1, value, np.nan, -1], equal_nan=True), what


def test_the_newest_leader_speaks_for_a_partition_and_a_zombie_does_not(sampled: Sampled) -> None:
    leaders = LeaderSampler(sampled.told, {("t", 0): 7}, sampled.rows)
    for node, state in ((1, led(5, 3, 10, 8)), (2, led(6, 2, 12, None)), (1, led(5, 3, 99, 99))):
        sampled.told.led = {node: {("t", 0): state, ("other", 0): state}}
        leaders.sample(node)
        sampled.clock.sleep(1.0)
    (isr,) = sampled.table().series("isr_size")
    assert isr.value.tolist() == [3.0, 2.0]
    seen = sampled.observed()
    told = [seen[name].tolist() for name in ("node", "leader_epoch", "value")]
    assert told == [[1, 2, 1], [5, 6, 5], [10, 12, 99]], "what a deposed leader answers is a fact of its own"
    (lag,) = sampled.table().series("last_stable_offset_lag")
    assert np.array_equal(lag.value, [2.0, np.nan], equal_nan=True)


def test_a_partition_whose_leader_is_silent_is_absent(sampled: Sampled) -> None:
    leaders = LeaderSampler(sampled.told, {("t", 0): 7}, sampled.rows)
    sampled.told.led = {1: {("t", 0): led(5, 3, 10, 10)}}
    leaders.sample(1)
    sampled.told.led = {}
    sampled.clock.sleep(1.0)
    leaders.sample(1)
    (high,) = sampled.table().series("high_watermark")
    assert np.array_equal(high.value, [10.0, np.nan], equal_nan=True)


def test_what_does_not_change_is_written_now_and_then() -> None:
    changes = Changes()
    told = [changes.accepts(("isr_size", 0), 3.0, second * S) for second in range(25)]
    assert [second for second, wrote in enumerate(told) if wrote] == [0, 10, 20]
    assert changes.accepts(("isr_size", 0), None, 25 * S)


def test_a_controller_that_knows_no_leader_is_not_leader_minus_one(sampled: Sampled) -> None:
    quorum = Quorum(sampled.told, {("t", 0): 7}, sampled.rows)
    sampled.told.of_quorum = (-1, 4)
    quorum.sample()
    (leader,), (epoch,) = sampled.table().series("quorum_leader"), sampled.table().series("quorum_epoch")
    assert np.isnan(leader.value).all()
    assert epoch.value.tolist() == [4.0]
    (elr,) = sampled.table().series("elr_size")
    assert np.isnan(elr.value).all()


# --- clients --------------------------------------------------------------------------------------------------------

REPORT = {
    "type": "consumer",
    "rxmsgs": 40,
    "brokers": {
        "a": {
            "source": "learned", "txretries": 2, "outbuf_cnt": 3, "waitresp_cnt": 1, "rtt": {"p99": 2500, "cnt": 9},
        },
        "b": {
            "source": "logical", "txretries": 1, "req_timeouts": 4, "outbuf_cnt": 0, "waitresp_cnt": 0,
            "rtt": {"p99": 0, "cnt": 0},
        },
    },
    "topics": {
        "t": {
            "partitions": {
                "0": {"fetch_state": "active", "hi_offset": 12, "ls_offset": 10, "app_offset": 7, "consumer_lag": -1},
                "1": {"fetch_state": "active", "hi_offset": -1001, "ls_offset": -1001, "app_offset": -1001},
                "-1": {"fetch_state": "none"},
            }
        }
    },
}  # fmt: skip
NAMES = {("t", 0): 5, ("t", 1): 6}


def test_a_readers_lag_ends_where_its_isolation_level_ends() -> None:
    for committed_only, lag in ((True, 3.0), (False, 5.0)):
        found = {(m, p): v for m, p, v in samples(REPORT, NAMES, committed_only=committed_only)}
        assert found["consumer_lag", 5] == lag
        assert found["consumer_lag", 6] is None
    assert found["client_retries", -1] == 3.0
    assert found["client_outbound_requests", -1] == 4.0
    assert found["client_rtt_p99", -1] == 2.5


def test_a_client_that_forgot_all_brokers_knows_none_though_its_coordinator_is_there() -> None:
    def told(report: dict[str, Any]) -> tuple[float | None, float | None]:
        found = {m: v for m, _, v in samples(report, NAMES, committed_only=True)}
        return found["client_known_brokers"], found["client_stray_partitions"]

    served, strays, orphaned = {"broker": 2, "leader": 2}, {"broker": 2, "leader": 3}, {"broker": -1, "leader": -1}
    for partitions, count in (((served, served), 0), ((served, strays), 1), ((orphaned, strays), 2)):
        topics = {"t": {"partitions": {str(number): p for number, p in enumerate(partitions)} | {"-1": orphaned}}}
        assert told(REPORT | {"topics": topics}) == (1.0, count)
    assert told({"type": "consumer", "brokers": {"GroupCoordinator": {"source": "logical"}}}) == (0.0, 0.0)
    assert told({"type": "producer", "brokers": {"x/bootstrap": {"source": "configured"}}}) == (1.0, 0.0)


def test_a_client_writes_its_own_rows_and_only_if_it_is_asked_to(run: RunDirectory) -> None:
    silent = Statistics(run.rows, client=3, properties={}, partitions=NAMES, now_ns=lambda: 5)
    assert silent.callbacks == silent.callbacks_of_brokers(lambda report: None) == {}
    wanted = {"statistics.interval.ms": 1000, "isolation.level": "read_committed"}
    statistics = Statistics(run.rows, client=3, properties=wanted, partitions=NAMES, now_ns=lambda: 5)
    statistics.callbacks["stats_cb"](json.dumps(REPORT))
    statistics.close()
    rows, torn = read_rows(run.rows, TABLE, 3)
    assert torn == 0
    lags = rows[rows["metric"] == BY_NAME["consumer_lag"].code]
    assert lags["partition"].tolist() == [5, 6]
    assert lags["absent"].tolist() == [0, 1]
    assert lags["value_micro"].tolist() == [3_000_000, 0]


def test_of_a_member_only_what_it_knows_of_brokers_is_written(run: RunDirectory) -> None:
    wanted = {"statistics.interval.ms": 1000}
    statistics = Statistics(run.rows, client=3, properties=wanted, partitions=NAMES, now_ns=lambda: 5)
    told: list[Mapping[str, Any]] = []
    statistics.callbacks_of_brokers(told.append)["stats_cb"](json.dumps(REPORT))
    statistics.close()
    rows, _ = read_rows(run.rows, TABLE, 3)
    assert rows["metric"].tolist() == [BY_NAME[f"client_{n}"].code for n in ("known_brokers", "stray_partitions")]
    assert told == [REPORT]
    assert rows["value_micro"].tolist() == [1_000_000, 2_000_000], "of REPORT's partitions no broker is reported"


# --- the report -----------------------------------------------------------------------------------------------------


def test_the_report_shows_lines_alerts_and_who_told_nothing(sampled: Sampled) -> None:
    node = JmxOfNode(sampled.told, 1, sampled.rows)
    for second in range(20):
        sampled.told.of_jmx = None if 8 <= second < 14 else {"under_replicated_partitions": float(second >= 14)}
        node.sample()
        sampled.clock.sleep(1.0)
    alert = AlertResult(name="a", expr="e", verdict=Verdict.HELD, fired=((14.0, 18.0),), unknown=((8.0, 13.75),))
    panel, lanes = monitor_panels(sampled.table(), [alert], {1: "broker-1"}, 20.0)
    (series,) = panel.series
    shown = dict(zip(panel.at_s.tolist(), ~np.isnan(series.values), strict=True))
    assert shown[7.5]
    assert shown[14.5]
    assert not shown[9.0]
    assert not shown[12.0]
    assert [lane.name for lane in lanes.lanes] == ["a", "broker-1"]
    assert [[lanes.kinds[kind] for *_, kind in lane.spans] for lane in lanes.lanes] == [
        ["may have fired", "fired"],
        ["reported nothing"],
    ]


def test_without_metrics_nothing_is_drawn() -> None:
    assert monitor_panels(MetricTable(empty_rows(TABLE), ()), [], {}, 10.0) == []
