"""A partition that is checked in pieces has the findings that it has as a whole: the same witnesses, counts and reasons."""

import random
import shutil
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from prozess.checkers.chunked.partitions import may_be_split, perform, remainders
from prozess.checkers.chunked.reading import LATE, STALLED, STUCK
from prozess.checkers.lookup import differs_from_previous
from prozess.checkers.partition_index import PartitionIndex, read_in_the_end
from prozess.checkers.registry import select
from prozess.exchange.commands import generate_history
from prozess.exchange.synthetic.plants import PLANTS
from prozess.harness.checking.checker import Cuts, Source, cut_evenly, cuts_of
from prozess.harness.checking.kernels import check_cell, check_locally, check_partition, in_order
from prozess.harness.clock import NS_PER_S
from prozess.harness.config.configuration import DeliveryBound
from prozess.harness.history.parquet import UNBOUNDED
from prozess.harness.history.reader import History
from prozess.harness.interfaces.checking import CellHistory, CopyFacts
from prozess.harness.plan.bounds import Bounds
from prozess.harness.plan.plan import PlannedClient
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import NONE, Isolation, ReadFlag, Role
from tests.support.cells.delivery import LOG, lives
from tests.support.cells.partitions import INFO, OK, PARTITION, PRODUCER, PRODUCER_ACKS_1, READER, table
from tests.support.cells.partitions import history as history_of
from tests.support.damages import rot
from tests.support.edn_histories import Jepsen
from tests.support.examples import examples
from tests.support.kafka_model.anomalies import KINDS, Spoiler
from tests.support.kafka_model.forgotten import forgotten
from tests.support.kafka_model.partition import FATES, PRODUCERS, READERS, Partition, drawn_facts
from tests.support.kafka_model.unaudited import own_rows, revealed, unaudited
from tests.support.stored_runs import verifiable_run

CHECKERS = {name: checker for name, checker in select().partition.items() if checker.in_pieces}
KERNELS = {name: checker.kernel for name, checker in CHECKERS.items()}
STREAMED = (LATE, STALLED, STUCK)
QUICK = settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
SEEDS = st.integers(0, 2**32)


class Arrays:
    """Rows of one table, as a run's files give them."""

    def __init__(self, columns):
        self._columns = {name: np.asarray(values) for name, values in columns.items()}

    def by_offset(self, low, high, without=()):
        offset = self._columns["log_offset"]
        rows = np.flatnonzero((offset >= low) & ((offset < high) | (high == UNBOUNDED)))
        rows = rows[~np.isin(rows, without)]
        return self.take(rows), rows

    def by_row(self, first, last):
        rows = np.arange(first, last)
        return self.take(rows), rows

    def take(self, rows):
        return {name: values[rows] for name, values in self._columns.items()}


def facts(findings):
    return [
        (
            *(f.anomaly, f.result.count, f.result.judged, f.result.incomplete),
            *(f.result.witnesses.tolist(), f.result.windows.tolist(), len(f.result.latencies)),
        )
        for f in findings
    ]


def drawn_cuts(history, rng):
    offsets = np.concatenate([history.sends["log_offset"], history.reads["log_offset"]])
    last = int(offsets.max(initial=0))
    low = int(offsets[offsets >= 0].min(initial=last))
    bounds = [rng.randint(low - 1, last + 1) for _ in range(rng.randrange(6))]
    return Cuts(
        offsets=(0, *sorted({b for b in bounds if b > 0}), UNBOUNDED),
        sends=cut(len(history.sends["client"]), rng),
        reads=cut(len(history.reads["client"]), rng),
    )


def cut(length, rng):
    return (0, *sorted(rng.sample(range(length + 1), min(length, rng.randrange(4)))), length)


def in_pieces(history, cuts):
    """What is left, and the findings."""
    source = Source(history, Arrays(history.sends), Arrays(history.reads))
    left = remainders({history.partition: cuts}, lambda jobs: [perform(source, job) for job in jobs], {})[
        history.partition
    ]
    return left, left.check(source, CHECKERS)


def long_facts(seed):
    """A long log of which nearly everything is plain: so little is left of it that a rule which is broken shows."""
    rng = random.Random(seed)
    partition = Partition(rng.choice((0, 5, 10**12)), rng, duplicates=seed % 3 == 0)
    for _ in range(rng.randrange(20, 60)):
        for _ in range(rng.randrange(1, 12)):
            partition.send(rng.choice((PRODUCER, PRODUCER_ACKS_1)), "acknowledged")
        if rng.random() < 0.1:
            partition.send(rng.choice(PRODUCERS), rng.choice(FATES))
        if rng.random() < 0.03:
            partition.seek(rng.choice(READERS), rng.randrange(300))
        if rng.random() < 0.03:
            rng.choice((partition.hole, partition.early_sentinel, lambda: partition.failover(rng.randrange(9))))()
        partition.commit()
        for reader in READERS:
            partition.read(reader, rng.choice((0, 10**4)))
    return partition.end(), rng


def spoiled(seed, *, long):
    made, rng = long_facts(seed) if long else drawn_facts(seed, duplicates=seed % 3 == 0)
    spoiler = Spoiler(made, rng)
    for kind in rng.choices(KINDS, k=rng.choice((0, 1, 1, 2, 3, 6))):
        getattr(spoiler, kind)()
    history = made.history()
    if seed % 5 < 2:
        history = forgotten(history, rng, lose=True)
    return history if seed % 6 else replace(history, audit_end={})


@settings(QUICK, max_examples=examples(400))
@given(SEEDS, st.booleans())
def test_whatever_was_planted_and_wherever_it_is_cut_the_findings_are_the_same(seed, long):
    history = spoiled(seed, long=long)
    _, found = in_pieces(history, drawn_cuts(history, random.Random(seed + 1)))
    assert facts(found) == facts(check_partition(history, KERNELS))


def without_audit(seed, *, long):
    """What clients alone show of a spoiled partition, with the flags that an import writes. In some, nobody was given some
    records, clients were opened anew, an acknowledgement came late, and one of them reads all of it, or a part, again in the
    end."""
    history, rng = unaudited(spoiled(seed, long=long)), random.Random(seed + 3)
    sends, reads = own_rows(history)
    if rng.random() < 0.4:
        offsets = sorted(set(reads["log_offset"].tolist()))
        unseen = rng.sample(offsets, min(len(offsets), rng.randrange(4))) + offsets[len(offsets) - rng.randrange(9) :]
        kept = ~np.isin(reads["log_offset"], unseen)
        reads = {name: values[kept] for name, values in reads.items()}
    for row in rng.sample(range(len(reads["span"])), min(len(reads["span"]), rng.randrange(3))):
        reads["span"][row:][reads["client"][row:] == reads["client"][row]] += 5000
    acknowledged = np.flatnonzero(sends["outcome"] == OK)
    if rng.random() < 0.3 and len(acknowledged):
        sends["completed_ns"][rng.choice(acknowledged.tolist())] += rng.randrange(10**12)
    if rng.random() < 0.5:
        reads = read_again(history, sends, reads, rng)
    starts = np.flatnonzero(differs_from_previous(reads["span"]) | differs_from_previous(reads["client"]))
    for row in starts.tolist():
        reads["flags"][row] |= rng.choice((0, 0, ReadFlag.FROM_START, ReadFlag.GOES_ON))
    return replace(revealed(history, sends, reads), readers_begin=rng.choice(("start", "unstated", "anywhere")))


def read_again(history, sends, reads, rng):
    """The reads, and behind those of one client whatever the log shows, later than everything else."""
    end_ns = max(int(times.max(initial=0)) for times in (sends["invoked_ns"], sends["completed_ns"], reads["read_ns"]))
    of_log = np.flatnonzero(history.reads["client"] == len(history.client_role) - 2)
    if rng.random() < 0.5:
        of_log = of_log[: rng.randrange(len(of_log) + 1)]
    more = {name: values[of_log].copy() for name, values in history.reads.items()}
    more["client"][:], more["span"][:] = rng.choice(READERS), 1000
    more["read_ns"][:] = end_ns + rng.choice((0, 1)) + np.arange(len(of_log))
    both = {name: np.concatenate([reads[name], more[name]]) for name in reads}
    order = np.argsort(both["client"], kind="stable")
    return {name: values[order] for name, values in both.items()}


def unaudited_in_pieces(history, cuts):
    source = Source(history, *map(Arrays, own_rows(history)))
    left = remainders({history.partition: cuts}, lambda jobs: [perform(source, job) for job in jobs], {})
    return left[history.partition], left[history.partition].check(source, CHECKERS)


@settings(QUICK, max_examples=examples(400))
@given(SEEDS, st.booleans())
def test_what_nobody_audited_has_the_same_findings_wherever_it_is_cut(seed, long):
    history = without_audit(seed, long=long)
    sends, reads = own_rows(history)
    cuts = drawn_cuts(replace(history, sends=sends, reads=reads), random.Random(seed + 1))
    _, found = unaudited_in_pieces(history, cuts)
    assert facts(found) == facts(check_partition(history, KERNELS))


@settings(QUICK, max_examples=examples(200))
@given(SEEDS)
def test_what_nobody_audited_is_found_where_two_pieces_meet_at_it(seed):
    history, rng = without_audit(seed, long=True), random.Random(seed)
    whole = check_partition(history, KERNELS)
    offsets = {offset for f in whole for offset in f.result.witnesses["log_offset"].tolist() if offset > 0}
    assume(offsets)
    rows = [(0, len(table["client"])) for table in own_rows(history)]
    for offset in rng.sample(sorted(offsets), min(3, len(offsets))):
        for inner in ((offset,), (offset + 1,), (offset, offset + 1)):
            _, found = unaudited_in_pieces(history, Cuts((0, *inner, UNBOUNDED), *rows))
            assert facts(found) == facts(whole), inner


def test_what_nobody_audited_may_have_come_again_in_the_end_and_a_piece_may_hold_what_did_not():
    """The one record that nobody was given again is plain, and left out: its piece alone knows. The last one was first
    given when all sends were over."""
    sends = [(PRODUCER, n, OK, n, {"invoked_ns": 10 * n, "completed_ns": 10 * n + 5}) for n in range(LENGTH)]
    once = [(READER, n, PRODUCER, n, {"read_ns": 10 * n + 6}) for n in range(LENGTH)]
    for missing in (None, *range(LENGTH)):
        again = [(READER, n, PRODUCER, n, {"span": 1, "read_ns": 10**12 + n}) for n in range(LENGTH) if n != missing]
        made = unaudited(history_of(sends, [], [*once, *again]))
        whole = {f.anomaly: f for f in check_partition(made, KERNELS)}
        assert (whole["lost"].result.incomplete is None) == (missing in (None, LENGTH - 1))
        rows = [(0, len(table["client"])) for table in own_rows(made)]
        for low, high in combinations(range(1, LENGTH), 2):
            _, found = unaudited_in_pieces(made, Cuts((0, low, high, UNBOUNDED), *rows))
            assert facts(found) == facts(whole.values()), (missing, low, high)


@pytest.mark.parametrize("begin", ["start", "unstated", "anywhere"])
@pytest.mark.parametrize("flag", [0, ReadFlag.FROM_START, ReadFlag.GOES_ON])
def test_where_a_client_that_nobody_audits_began_anew_is_known_in_pieces(begin, flag):
    """It was given everything, and one record after the other, but for two: nobody saw it go from one span to the next."""
    sends = [(PRODUCER, n, OK, n) for n in range(LENGTH)]
    for opened in range(1, LENGTH):
        given = [
            (READER, n, PRODUCER, n, {"span": int(n >= opened)}) for n in range(LENGTH) if n not in (3, LENGTH - 1)
        ]
        made = unaudited(history_of(sends, [], given))
        made.reads["flags"][[n for n, row in enumerate(given) if row[1] >= opened][:1]] = flag
        made = replace(revealed(made, *own_rows(made)), readers_begin=begin)
        whole = check_partition(made, KERNELS)
        rows = [(0, len(table["client"])) for table in own_rows(made)]
        for bound in range(1, LENGTH):
            _, found = unaudited_in_pieces(made, Cuts((0, bound, UNBOUNDED), *rows))
            assert facts(found) == facts(whole), (opened, bound)


def test_all_came_again_only_if_what_was_left_out_did_after_the_last_send_was_over_left_out_or_not():
    sends = [(PRODUCER, 0, OK, 0, {"invoked_ns": 10, "completed_ns": 15})]
    made = unaudited(history_of(sends, [], [(READER, 0, PRODUCER, 0, {"read_ns": 20})]))

    def again(left_out_ns):
        history = replace(made, left_out_ns=left_out_ns)
        return read_in_the_end(PartitionIndex.of(history), history)

    assert again(None)
    assert again((5, 16))
    assert not again((5, 15)), "a record that was left out was last given when the last send was over"
    assert again((19, 20))
    assert not again((20, 21)), "the last send was left out, and what is here was not given after it"


@pytest.mark.parametrize("without", [False, True], ids=["audited", "not audited"])
def test_that_consumers_received_all_before_a_later_record_is_known_although_most_of_it_is_left_out(without):
    """The record that stands nowhere was acknowledged without an offset; what was sent after that stands in any piece."""
    epoch = {"leader_epoch": 4}
    given = [(READER, n, PRODUCER, n, epoch) for n in range(3 * LENGTH)]
    for done in (5, 205, 10 * 3 * LENGTH - 5, 10 * 3 * LENGTH):
        sends = [(PRODUCER, n, OK, n) for n in range(3 * LENGTH)]
        sends.append((PRODUCER, 3 * LENGTH, OK, NONE, {"invoked_ns": 1, "completed_ns": done}))
        log = [] if without else [row[1:] for row in given[1:]]
        made = history_of(sends, log, given, log_start=int(not without))
        made = unaudited(made) if without else made
        whole = check_partition(made, KERNELS)
        assert {f.anomaly: f.result.count for f in whole}["lost"] == (done < 10 * 3 * LENGTH)
        rows = [(0, len(table["client"])) for table in (own_rows(made) if without else (made.sends, made.reads))]
        for bound in range(1, 3 * LENGTH, 5):
            _, found = (unaudited_in_pieces if without else in_pieces)(made, Cuts((0, bound, UNBOUNDED), *rows))
            assert facts(found) == facts(whole), (done, bound)


def bounded_cell(history, rng):
    """A cell of this partition, whose readers live all the time, but for where they stood still."""
    lived = []
    for client in (*PRODUCERS, *READERS):
        hearts = np.arange(-5, 200, 0.1)
        if rng.random() < 0.3:
            still = rng.randrange(150)
            hearts = hearts[(hearts < still) | (hearts > still + rng.randrange(20))]
        lived.append(lives(client, end_s=200, beats=hearts, killed=rng.random() < 0.2))
    assigned = [
        {"client": c, "time_ns": rng.randrange(10**10), "event": 1, "partition": PARTITION, "log_offset": 0}
        for c in READERS
    ]
    tables = {
        "clients": table("clients", [told for told, _ in lived]),
        "heartbeats": table("heartbeats", [beat for _, hearts in lived for beat in hearts]),
        "positions": table("positions", assigned),
        "leader_offsets": table("metrics", []),
        "transactions": table("transactions", []),
    }
    levels = {int(Isolation.READ_COMMITTED): "read_committed"}
    readers = [
        PlannedClient(
            client=client,
            role="reader",
            name=f"reader-{client}",
            partitions=(PARTITION,),
            cell=0,
            isolation_level=levels.get(int(history.client_isolation[client]), "read_uncommitted"),
        )
        for client in READERS
    ]
    bound = DeliveryBound(latency_s=rng.choice((0.1, 0.2, 0.5, 2, 10)), window_s=rng.choice((0.1, 1, 7)))
    kind = LOG.model_copy(update={"delivery_bound": bound})
    tables["clients"]["role"][np.isin(tables["clients"]["client"], PRODUCERS)] = Role.PRODUCER
    bounds = Bounds(acknowledgement_ns=rng.choice((1, 5, 20)) * NS_PER_S)
    return CellHistory(cell=kind, partitions={PARTITION: history}, tables=tables, clients=readers, bounds=bounds)


@settings(QUICK, max_examples=examples(60))
@given(SEEDS)
def test_whoever_waited_and_whatever_was_late_is_found_in_pieces_as_in_the_whole(seed):
    with pytest.MonkeyPatch.context() as patched:
        for module in ("reading.positions", "chunked.reading"):
            patched.setattr(f"prozess.checkers.{module}.STALLED_NS", (20, 5, 1)[seed % 3] * 10**9)
        history, rng = spoiled(seed, long=seed % 4 > 0), random.Random(seed + 2)
        cell = bounded_cell(history, rng)
        source = Source(history, Arrays(history.sends), Arrays(history.reads), lambda: cell)
        asked = {PARTITION: STREAMED}
        left = remainders({PARTITION: drawn_cuts(history, rng)}, lambda jobs: [perform(source, j) for j in jobs], asked)
        found = left[PARTITION].check_cell(source, STREAMED)
        whole = check_cell(cell, select(STREAMED).cell)
        assert facts(found) == facts(whole)
        assert found[0].result.latencies.tolist() == whole[0].result.latencies.tolist()


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """A large partition, in several row groups, and small ones, with whatever can be planted in logs."""
    path = tmp_path_factory.mktemp("generated") / "run"
    planted = ",".join(f"{name}=2" for name, plant in PLANTS.items() if plant.kind == "log")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("prozess.harness.history.parquet.ROW_GROUP_MAX", 1500)
        patched.setattr("prozess.exchange.synthetic.history.SHARED_ROWS_MAX", 0)
        generate_history(path, rows=30_000, partitions=3, plant=planted, workloads=["log"], seed=5)
    return RunDirectory(path)


@pytest.mark.parametrize("pieces", [2, 4, 9])
def test_the_local_engine_finds_the_same_in_pieces_read_from_files(generated, pieces):
    whole = check_locally(History.open(generated), select(), workers=1)
    assert {f.anomaly for f in whole if f.result.count} >= set(CHECKERS) - {"unreported", "unseen"}
    history = History.open(generated)
    largest = max(history.rows_of(p) for p in history.partitions)
    assert len(history.files["reads"].row_ranges[0]) > 2
    found = check_locally(History.open(generated), select(), workers=2, rows_max=largest // pieces)
    assert facts(found) == facts(whole)


def jepsen_of_one_key(path):
    """300 sends, of which one is lost, and one is read at two offsets; a second client reads half of them."""
    path.mkdir()
    jepsen = Jepsen()
    for number in range(300):
        jepsen.send(0, "t", number, number)
    shown = [[offset, 7 if offset == 200 else offset] for offset in range(300) if offset != 150]
    for client, of_log in ((1, shown), (2, shown[:140])):
        jepsen.assign(client, ["t"])
        for begin in range(0, len(of_log), 20):
            jepsen.poll(client, {"t": of_log[begin : begin + 20]})
    return jepsen.checked(path)[0]


@pytest.mark.parametrize(("make", "found"), [(jepsen_of_one_key, "lost"), (verifiable_run, "duplicate")])
def test_the_local_engine_finds_the_same_in_pieces_of_an_import(tmp_path, make, found):
    run, checkers = make(tmp_path / "import"), select()
    whole = check_locally(History.open(run), checkers, workers=1)
    assert {f.anomaly: f.result.count for f in whole}[found] > 0
    for rows_max in (4, 10, 200, 600):
        jobs = []

        def counted(source, job, jobs=jobs):
            jobs.append(job)
            return perform(source, job)

        spied = replace(checkers, pieces=replace(checkers.pieces, perform=counted))
        in_pieces = check_locally(History.open(run), spied, workers=2, rows_max=rows_max)
        assert facts(in_pieces) == facts(whole), rows_max
        rows = sum(History.open(run).rows(name) for name in ("sends", "reads"))
        assert bool(jobs) == (rows > rows_max // 2)


@given(
    st.lists(st.tuples(st.integers(-1, 10**6), st.integers(0, 10**6), st.integers(1, 10**6)), min_size=1, max_size=9),
    st.integers(1, 20),
)
def test_pieces_have_equal_numbers_of_rows_by_what_footers_say(drawn, number):
    ranges = np.array([(low, low + length, rows) for low, length, rows in drawn], dtype=np.float64)
    bounds = cut_evenly(ranges, number)
    assert bounds == sorted(bounds)
    if not any(low + length >= 0 for low, length, _ in drawn):
        assert bounds == []
        return
    low, behind, rows = np.maximum(ranges[:, 0], 0), ranges[:, 1] + 1, ranges[:, 2]
    low, behind, rows = low[behind > 0], behind[behind > 0], rows[behind > 0]

    def before(offset):
        return (rows * np.clip((offset - low) / (behind - low), 0, 1)).sum()

    for n, bound in enumerate(bounds, 1):
        wanted = rows.sum() * n / number
        assert before(bound) <= wanted * (1 + 1e-9)
        assert before(bound + 1) >= wanted * (1 - 1e-9)


def test_one_offset_far_behind_all_others_does_not_put_all_rows_into_one_piece():
    bounds = cut_evenly(np.array([(0, 10**6, 10**6), (0, 2**48, 10**6)], dtype=np.float64), 4)
    assert bounds[:2] == [500_000, 10**6]


def test_a_cell_in_its_partitions_has_the_delivery_windows_that_it_has_as_a_whole(generated):
    history = History.open(generated)
    late = select(["late"])
    whole = in_order(check_cell(history.cell_history(0), late.cell), late, [])
    assert facts(check_locally(History.open(generated), late, workers=2)) == facts(whole)
    assert len(whole[0].result.windows) > 0


def test_nearly_nothing_is_left_of_a_partition_in_which_nearly_nothing_happened(generated):
    history = History.open(generated)
    cuts = cuts_of(history, 0, rows_max=history.rows_of(0) // 4)
    source = Source.of(history, 0)
    left = remainders({0: cuts}, lambda jobs: [perform(source, job) for job in jobs], {})[0]
    assert len(left.sends) + len(left.reads) < history.rows_of(0) / 10


def test_what_is_compacted_is_checked_whole_and_what_nobody_audited_where_more_than_its_log_is_judged():
    history = drawn_facts(1)[0].history()
    assert may_be_split(history, None)
    assert not may_be_split(replace(history, compacted=True), LOG)
    alone, cell = unaudited(history), LOG.model_copy(update={"delivery_bound": None})
    assert may_be_split(alone, cell)
    assert not may_be_split(replace(alone, compacted=True), cell)
    assert not may_be_split(alone, None)
    assert not may_be_split(alone, LOG), "a delivery bound"
    for kind in ("transactions", "group", "share"):
        assert not may_be_split(alone, cell.model_copy(update={"workload": kind}))


@pytest.mark.parametrize("starts", [(0, 0), (3, 0), (0, 5), (3, 5)], ids=str)
def test_that_an_audit_passed_over_what_nobody_names_is_found_in_pieces_also_where_the_log_begins_late(starts):
    """Every replica has a record at 7, of which no send was recorded. `starts`: of the partition, and of each copy."""
    log_start, begins = starts
    log = [row for row in PLAIN_LOG if row[0] >= log_start and row[0] != 7]
    made = history_of([row for row in PLAIN_SENDS if row[1] != 7], log, log_start=log_start)
    batches = [
        {"node": n, "step": NONE, "base_offset": begins, "last_offset": LENGTH - 1, "attributes": 0} for n in (1, 2)
    ]
    copies = {node: CopyFacts(begins, 2000) for node in (1, 2)}
    made = replace(made, replicas=table("replicas", batches), copies=copies, assignment=(1, 2))
    whole = check_partition(made, KERNELS)
    assert "every replica has" in str({f.anomaly: f.result.incomplete for f in whole}["invisible"])
    rows = (0, len(made.sends["client"])), (0, len(made.reads["client"]))
    for low, high in combinations(range(1, LENGTH + 1), 2):
        assert facts(in_pieces(made, Cuts((0, low, high, UNBOUNDED), *rows))[1]) == facts(whole), (low, high)


def test_a_partition_of_which_a_piece_cannot_be_looked_at_is_unknown_and_the_others_are_not(generated, tmp_path):
    path = tmp_path / "rotten"
    shutil.copytree(generated.path, path)
    history = History.open(RunDirectory(path))
    length, [_, group, *_] = history.rows_of(0) // 4, history.files["reads"].row_ranges[1]
    rot(RunDirectory(path), "reads", row_group=group, column="sequence")
    names = ["lost", "stalled", "late"]
    findings = {
        (f.anomaly, f.partition): f.result
        for f in check_locally(History.open(RunDirectory(path)), select(names), workers=2, rows_max=length)
    }
    for name, partition in (("lost", 1), ("late", 0), ("stalled", 0)):
        assert f"the kernel {name} failed: HistoryUnreadable: table reads" in str(findings[name, partition].incomplete)
    assert [findings["lost", p].incomplete for p in (0, 2)] == [None, None]
    assert all(findings["lost", p].judged > 0 for p in (0, 2))
    assert findings["late", 0].judged > 0


def test_a_copy_before_the_acknowledged_one_makes_others_late_in_pieces_between_them():
    """The record at 0 was sent after those at 1 and 2 were acknowledged; its own acknowledgement names its second copy, at 5,
    in another piece: when it was sent is only known once that piece has been asked."""
    late = history_of(
        sends=[(PRODUCER, 0, OK, 5, {"invoked_ns": 500, "completed_ns": 505})]
        + [(PRODUCER_ACKS_1, n, OK, n + 1) for n in range(4)],
        log=[(0, PRODUCER, 0), *((n + 1, PRODUCER_ACKS_1, n) for n in range(4)), (5, PRODUCER, 0)],
        reads=[],
    )
    whole = check_partition(late, KERNELS)
    assert {f.anomaly: f.result.count for f in whole}["time-travel"] > 0
    for bound in range(1, 7):
        cuts = Cuts((0, bound, UNBOUNDED), (0, len(late.sends["client"])), (0, len(late.reads["client"])))
        assert facts(in_pieces(late, cuts)[1]) == facts(whole)


LENGTH = 12
PLAIN_SENDS = [(PRODUCER, n, OK, n) for n in range(LENGTH)]
PLAIN_LOG = [(n, PRODUCER, n) for n in range(LENGTH)]
COPIED_ELSEWHERE = history_of(PLAIN_SENDS, [*PLAIN_LOG, (LENGTH, PRODUCER, 4)])
IN_DOUBT = {"transaction": 3}
DOUBTED_ELSEWHERE = history_of(
    [(*send, IN_DOUBT) if send[1] == 4 else send for send in PLAIN_SENDS] + [(PRODUCER, LENGTH, INFO, NONE, IN_DOUBT)],
    PLAIN_LOG,
)


@pytest.mark.parametrize(
    ("anomaly", "history"),
    [
        pytest.param("duplicate", COPIED_ELSEWHERE, id="its second copy stands in another piece"),
        pytest.param("lost", DOUBTED_ELSEWHERE, id="it proves that a transaction in doubt was committed"),
    ],
)
def test_a_piece_is_looked_at_again_for_a_plain_record_that_another_place_names(anomaly, history):
    """In its own piece nothing can be found of the record at 4, nor does a rule of order, time or steps keep it there:
    readers begin and end in others."""
    whole = check_partition(history, KERNELS)
    assert {f.anomaly: f.result.count for f in whole}[anomaly] == 1
    rows = (0, len(history.sends["client"])), (0, len(history.reads["client"]))
    left, found = in_pieces(history, Cuts((0, 2, 8, UNBOUNDED), *rows))
    assert history.sends["sequence"][left.sends].tolist().count(4) == 1
    assert facts(found) == facts(whole)
    for low, high in combinations(range(1, LENGTH + 1), 2):
        assert facts(in_pieces(history, Cuts((0, low, high, UNBOUNDED), *rows))[1]) == facts(whole), (low, high)
