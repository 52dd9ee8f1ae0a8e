"""However a partition of transactions is cut into pieces, its cell has the findings that it has as a whole."""

import pickle
import random
import shutil
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prozess.checkers.chunked import transactions as gathering
from prozess.checkers.chunked.partitions import may_be_split, perform, remainders
from prozess.checkers.registry import select
from prozess.exchange.synthetic.history import GenerateOptions, generate
from prozess.harness.checking import memory
from prozess.harness.checking.checker import CellShare, Source
from prozess.harness.checking.kernels import check_cell, check_locally, in_order
from prozess.harness.history.reader import History
from prozess.harness.run_directory import RunDirectory
from tests.support.anomalies import OF_CELLS
from tests.support.damages import rot
from tests.support.examples import ALL, examples
from tests.support.finding_values import said
from tests.unit.checkers.chunked.test_cell_parts import of_transactions
from tests.unit.checkers.chunked.test_pieces import Arrays, drawn_cuts

QUICK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
SEEDS = st.integers(0, 2**32)
CHECKERS = select(
    [name for name, checker in select().cell.items() if "transactions" in checker.traits and checker.knows]
)
CHECKERS = select([*CHECKERS.order, "own-read"])


def sources(history):
    return {p: Source(one, Arrays(one.sends), Arrays(one.reads)) for p, one in history.partitions.items()}


def drawn_shares(history, rng):
    """Most partitions in parts, however they are cut."""
    shares = []
    for number, source in sorted(sources(history).items()):
        if may_be_split(source.history, None) and rng.random() < 0.8:
            cuts = {number: drawn_cuts(source.history, rng)}
            left = remainders(cuts, lambda jobs, source=source: [perform(source, job) for job in jobs], {})
            shares += [CellShare(number, part.rows, part) for part in left[number].parts]
        else:
            shares.append(CellShare(number, 1))
    return shares


def with_share(history, partition, part, known):
    source = sources(history)[partition]
    few, rows = (replace(source.history), None) if part is None else part.of(source)
    return replace(history, partitions={partition: few}, part=rows, known=known)


def gathered(history, shares, rng):
    def each(looks):
        results = {}
        for look in rng.sample(list(looks), len(looks)):
            sent = pickle.loads(pickle.dumps(look))
            cell = with_share(history, sent.partition, sent.part, {})
            results[look.key] = pickle.loads(pickle.dumps(gathering.look(cell, sent.stage, *sent.arguments)))
        return [results[look.key] for look in looks]

    return {gathering.FACTS: pickle.loads(pickle.dumps(gathering.gather({0: shares}, each, CHECKERS.order)[0]))}


def found_in_parts(history, shares, rng):
    known = gathered(history, shares, rng)
    taken = gathering.rows_of_edges(known[gathering.FACTS])
    assert set(taken) == {share.partition for share in shares if share.part is not None}
    partitions = {
        number: replace(
            one, sends=Arrays(one.sends).take(taken[number][0]), reads=Arrays(one.reads).take(taken[number][1])
        )
        if number in taken
        else one
        for number, one in history.partitions.items()
    }
    cycles = {name: checker for name, checker in CHECKERS.cell.items() if checker.by_partition is None}
    found = check_cell(replace(history, partitions=partitions, known=known), cycles)
    others = {name: checker for name, checker in CHECKERS.cell.items() if checker.by_partition is not None}
    for share in rng.sample(shares, len(shares)):
        found += check_cell(with_share(history, share.partition, share.part, known), others)
    return in_order(found, CHECKERS, [history.cell])


LIMITS = ((256, 600_000_000), (0, 0), (2, 600_000_000), (256, 400))
"""How near edges must be in time, and how many bytes of them a cell may have."""


def test_transactions_are_the_same_wherever_their_partitions_are_cut(monkeypatch):
    found: Counter[str] = Counter()

    @settings(QUICK, max_examples=examples(len(LIMITS) * 300) if ALL else 100)
    @given(SEEDS, st.sampled_from(LIMITS))
    def check(seed, limits):
        monkeypatch.setattr(gathering, "NEAR", limits[0])
        monkeypatch.setattr(gathering, "EDGE_BYTES_MAX", limits[1])
        rng = random.Random(seed)
        history = of_transactions(rng)
        whole = in_order(check_cell(history, CHECKERS.cell), CHECKERS, [history.cell])
        assert not any("failed" in (f.result.incomplete or "") for f in whole)
        shares = drawn_shares(history, rng)
        assert [said(f) for f in found_in_parts(history, shares, rng)] == [said(f) for f in whole]
        if any(share.part is not None for share in shares):
            found.update(f.anomaly for f in whole if f.result.count)

    check()
    assert set(found) == set(CHECKERS.order)
    assert min(found.values()) >= (5 if ALL else 1), found


def test_every_row_is_in_one_part_and_all_rows_of_a_record_and_of_an_offset_are_in_the_same():
    @settings(QUICK, max_examples=examples(200))
    @given(SEEDS)
    def check(seed):
        rng = random.Random(seed)
        history = of_transactions(rng)
        for share in (shares := drawn_shares(history, rng)):
            source = sources(history)[share.partition]
            if share.part is None or share.part.offsets is None:
                continue
            seen = {"sends": [], "reads": []}
            records, offsets = Counter(), Counter()
            for other in shares:
                if other.partition != share.partition:
                    continue
                few, rows = other.part.of(source)
                seen["sends"] += rows.sends.tolist()
                seen["reads"] += rows.reads.tolist()
                sent = {(int(c), int(s)) for c, s in zip(few.sends["client"], few.sends["sequence"], strict=True)}
                read = {(int(c), int(s)) for c, s in zip(few.reads["sender"], few.reads["sequence"], strict=True)}
                records.update(sent | read)
                offsets.update({*few.sends["log_offset"].tolist(), *few.reads["log_offset"].tolist()} - {-1})
            for name, numbers in seen.items():
                assert sorted(numbers) == list(range(len(getattr(source.history, name)["client"])))
            assert max(offsets.values()) == 1
            sends = source.history.sends
            own = {(int(c), int(s)) for c, s in zip(sends["client"], sends["sequence"], strict=True)}
            assert max(records[record] for record in own) == 1

    check()


PLANTED = {"torn": 6, "lost-transaction": 5, "zombie-write": 4, "aborted-read": 7, "early-read": 3}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One partition of transactions, in several row groups, and with whatever can be planted in it."""
    run = RunDirectory(tmp_path_factory.mktemp("generated") / "run")
    run.create()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("prozess.harness.history.parquet.ROW_GROUP_MAX", 1000)
        patched.setattr("prozess.exchange.synthetic.history.SHARED_ROWS_MAX", 0)
        generate(
            run, GenerateOptions(rows=40_000, partitions=1, kinds=("transactions",), planted=PLANTED), command="test"
        )
    return run


@pytest.mark.parametrize("pieces", [2, 5, 9])
def test_an_engine_finds_the_same_of_transactions_in_parts_read_from_files(run, pieces):
    rows, checkers = History.open(run).rows_of(0), select(OF_CELLS)
    whole = check_locally(History.open(run), checkers, workers=2)
    assert {f.anomaly: f.result.count for f in whole if f.result.count} == PLANTED
    found = check_locally(History.open(run), checkers, workers=2, rows_max=rows // pieces)
    assert [said(f) for f in found] == [said(f) for f in whole]


def test_an_engine_never_reads_a_partition_that_is_checked_in_parts_at_once(run, monkeypatch):
    history = History.open(run)
    rows, most = history.rows_of(0), 0
    decoded = type(history.files["reads"])._decoded

    def counted(self, columns, groups):
        nonlocal most
        result = decoded(self, columns, groups)
        if self.table.name in ("sends", "reads"):
            most = max([most, *(len(values) for values in result.values())])
        return result

    monkeypatch.setattr("prozess.harness.history.parquet.WHOLE_ROWS_MAX", 0)
    monkeypatch.setattr(type(history.files["reads"]), "_decoded", counted)
    check_locally(history, select(), workers=2, rows_max=rows // 5)
    assert 0 < most <= 1000


def test_a_partition_of_which_a_part_cannot_be_read_is_unknown_with_all_its_transactions(run, tmp_path):
    path = tmp_path / "rotten"
    shutil.copytree(run.path, path)
    rot(RunDirectory(path), "reads", row_group=5, column="sequence")
    rows = History.open(RunDirectory(path)).rows_of(0)
    found = check_locally(History.open(RunDirectory(path)), CHECKERS, workers=2, rows_max=rows // 4)
    assert [finding.anomaly for finding in found] == [n for n in CHECKERS.order]
    for finding in found:
        assert (finding.result.count, finding.result.judged) == (0, 0)
        assert f"the kernel {finding.anomaly} failed: HistoryUnreadable: table reads" in finding.result.incomplete


def test_what_only_a_later_look_cannot_read_is_unknown_and_never_read_whole(run, monkeypatch):
    """The pieces could be looked at, and then a part could not."""
    looked = gathering._survey

    def failing(history, bytes_max):
        if history.part is not None and history.part.number == 1:
            raise ValueError("a page is gone")
        return looked(history, bytes_max)

    monkeypatch.setitem(gathering._STAGES, "survey", failing)
    rows = History.open(run).rows_of(0)
    found = {f.anomaly: f.result for f in check_locally(History.open(run), CHECKERS, workers=2, rows_max=rows // 4)}
    assert set(found) == set(CHECKERS.order)
    for name, result in found.items():
        if name != "own-read":
            assert f"the kernel {name} failed: ValueError: a page is gone" in result.incomplete
            assert (result.count, result.judged) == (0, 0)
    assert found["own-read"].incomplete is None


class Library:
    """A C library that counts how often memory was given back."""

    given_back = 0

    def malloc_trim(self, _padding):
        Library.given_back += 1

    def mallopt(self, *_):
        pass


@pytest.mark.parametrize(("resident_bytes", "pieces"), [(10**12, 4), (10**12, 0), (0, 4)])
def test_memory_is_given_back_after_pieces_alone_and_where_there_is_much_of_it(
    run, monkeypatch, resident_bytes, pieces
):
    monkeypatch.setattr(memory, "resident_bytes", lambda: resident_bytes)
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda _: Library())
    monkeypatch.setattr(Library, "given_back", 0)
    rows = History.open(run).rows_of(0)
    check_locally(History.open(run), CHECKERS, workers=1, rows_max=rows // pieces if pieces else 2 * rows)
    if resident_bytes and pieces:
        assert Library.given_back > 2 * pieces
    else:
        assert Library.given_back == 0


def test_a_process_knows_how_much_memory_it_has():
    before = memory.resident_bytes()
    held = np.ones(1 << 25)
    assert memory.resident_bytes() - before > held.nbytes // 2
