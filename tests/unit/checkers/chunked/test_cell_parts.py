"""However a cell is shared out, its kernels find what they find in the whole: the same bytes."""

import pickle
import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prozess.checkers.chunked import transactions as gathering
from prozess.checkers.groups.assignments import thinned
from prozess.checkers.registry import select
from prozess.exchange.synthetic.history import GenerateOptions, generate
from prozess.harness.checking.checker import CellShare
from prozess.harness.checking.kernels import (
    check_cell,
    check_locally,
    checkers_of,
    in_order,
    perform,
    units_of,
)
from prozess.harness.history.reader import History
from prozess.harness.interfaces.checking import CellHistory
from prozess.harness.run_directory import RunDirectory
from tests.support.anomalies import OF_CELLS
from tests.support.examples import ALL, examples
from tests.support.finding_values import said
from tests.support.kafka_model import groups, transactions
from tests.support.kafka_model.unaudited import unaudited
from tests.unit.checkers.transactions.test_cycles_by_brute_force import drawn

QUICK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
SEEDS = st.integers(0, 2**32)


def with_partitions(history, partitions):
    """The same cell with these partitions."""
    return replace(history, partitions=partitions, cell=replace_cell(history, partitions))


def replace_cell(history, partitions):
    return history.cell.model_copy(update={"partitions": tuple(partitions)})


def numbered(partition, number):
    """The same rows, in another partition."""
    tables = {
        name: {**getattr(partition, name), "partition": np.full_like(getattr(partition, name)["partition"], number)}
        for name in ("sends", "reads")
    }
    return replace(partition, partition=number, **tables)


def of_transactions(rng) -> CellHistory:
    """Valid or spoilt, or nonsense with cycles; audits that were not finished, transactions that were not recorded, and
    further partitions."""
    if rng.random() < 0.5:
        history = drawn(rng.randrange(2**32)).cell()
    else:
        cell = transactions.drawn_cell(rng.randrange(2**32))
        kinds = rng.sample(sorted(transactions.SPOILERS), rng.randrange(6))
        for kind in (*kinds, *["zombie-write"][: rng.randrange(2)]):  # few histories have a zombie
            transactions.SPOILERS[kind](cell)
        history = cell.history()
    partitions = dict(history.partitions)
    for number in range(9, 9 + rng.randrange(3)):
        partitions[number] = numbered(rng.choice(list(partitions.values())), number)
    for number, partition in partitions.items():
        if rng.random() < 0.2:
            partitions[number] = replace(partition, audit_end={})
    table = history.tables["transactions"]
    kept = np.array([rng.random() < 0.98 for _ in table["client"]], dtype=bool)
    tables = {"transactions": {name: values[kept] for name, values in table.items()}}
    return with_partitions(replace(history, tables=tables), partitions)


def imported(rng) -> CellHistory:
    """The same, as other programs' clients saw it: nobody audited."""
    history = of_transactions(rng)
    return replace(history, partitions={number: unaudited(one) for number, one in history.partitions.items()})


def of_groups(rng) -> CellHistory:
    """Several partitions of one group, of which each lived on its own."""
    found = []
    for number in range(7, 8 + rng.randrange(4)):
        group = groups.drawn_group(rng.randrange(2**32))
        for kind in rng.sample(sorted(groups.SPOILERS), rng.randrange(3)):
            groups.SPOILERS[kind](group)
        found.append((number, group.history()))
    first = found[0][1]
    tables = {}
    for name, table in first.tables.items():
        parts = [
            {**one.tables[name], "partition": np.full_like(one.tables[name]["partition"], number)}
            if "partition" in table
            else one.tables[name]
            for number, one in found
        ]
        parts = parts[:1] if name == "clients" else parts
        tables[name] = {column: np.concatenate([part[column] for part in parts]) for column in table}
    partitions = {number: numbered(next(iter(one.partitions.values())), number) for number, one in found}
    return with_partitions(replace(first, tables=tables), partitions)


def gathered(history, checkers, rng):
    """What is known of all partitions together: looks are made in any order, and sent about."""

    def each(looks):
        results = {}
        for look in rng.sample(list(looks), len(looks)):
            look = pickle.loads(pickle.dumps(look))
            one = replace(history, partitions={look.partition: replace(history.partitions[look.partition])})
            perform = checkers.facts[look.facts].look
            results[look.partition] = pickle.loads(pickle.dumps(perform(one, look.stage, *look.arguments)))
        return [results[look.partition] for look in looks]

    known = {}
    for facts in checkers.facts.values():
        asked = [name for name, checker in checkers.cell.items() if checker.knows == facts]
        cells = {0: [CellShare(partition, 1) for partition in sorted(history.partitions)]}
        known[facts.name] = facts.gather(cells, each, asked)[0]
    return pickle.loads(pickle.dumps(known))


def shared_out(history, checkers, known, rng):
    """What the kernels find, a partition at a time wherever that may be, in any order."""
    alone = {name: checker for name, checker in checkers.cell.items() if checker.is_cut(history.cell, known)}
    found = check_cell(replace(history, known=known), {n: c for n, c in checkers.cell.items() if n not in alone})
    for number in rng.sample(list(history.partitions), len(history.partitions)):
        one = replace(history, partitions={number: replace(history.partitions[number])}, known=known)
        found += check_cell(one, alone)
    return in_order(found, checkers, [history.cell])


@pytest.mark.parametrize("make", [of_transactions, imported, of_groups])
def test_any_way_of_sharing_a_cell_out_gives_the_same_findings(make):
    found: Counter[str] = Counter()

    @settings(QUICK, max_examples=examples(300))
    @given(SEEDS)
    def check(seed):
        rng = random.Random(seed)
        history = make(rng)
        checkers = select([n for n in CONCERNED if OF_A_CELL[n].applies(history.cell.traits)])
        whole = in_order(check_cell(history, checkers.cell), checkers, [history.cell])
        assert not any("failed" in (f.result.incomplete or "") for f in whole)
        for known in (gathered(history, checkers, rng), {}):
            assert [said(f) for f in shared_out(history, checkers, known, rng)] == [said(f) for f in whole]
        found.update(f.anomaly for f in whole if f.result.count)

    check()
    expected = {n for n in CONCERNED if not OF[make].isdisjoint(OF_A_CELL[n].traits)}
    if make is imported:  # whoever writes as a zombie here is not shown to anybody but the audit
        expected -= {"zombie-write"}
    if make is of_groups:  # the model's producers are answered
        expected -= {"stuck"}
    assert set(found) >= expected
    assert min(found[name] for name in expected) >= (5 if ALL else 1), found


@pytest.mark.parametrize(("near", "bytes_max"), [(0, 0), (2, 600_000_000), (256, 0), (256, 400)])
def test_cycles_are_the_same_where_partitions_must_be_looked_at_again(monkeypatch, near, bytes_max):
    monkeypatch.setattr(gathering, "NEAR", near)
    monkeypatch.setattr(gathering, "EDGE_BYTES_MAX", bytes_max)
    stages: Counter[str] = Counter()
    look, alone = gathering.look, gathering._candidates_alone
    # Which edges there are may depend on what another partition shows of a transaction whose commit is in doubt.
    some = random.Random(near)
    monkeypatch.setattr(gathering, "_candidates_alone", lambda *given: alone(*given) if some.random() < 0.5 else None)

    def counted(history, stage, *arguments):
        stages[stage] += 1
        return look(history, stage, *arguments)

    checkers = select(["information-cycle", "write-cycle"])
    facts = replace(checkers.cell["write-cycle"].knows, look=counted)
    checkers = replace(checkers, cell={name: replace(c, knows=facts) for name, c in checkers.cell.items()})

    @settings(QUICK, max_examples=examples(100))
    @given(SEEDS)
    def check(seed):
        rng = random.Random(seed)
        history = of_transactions(rng)
        whole = in_order(check_cell(history, checkers.cell), checkers, [history.cell])
        known = gathered(history, checkers, rng)
        assert [said(f) for f in shared_out(history, checkers, known, rng)] == [said(f) for f in whole]

    check()
    assert min(stages["edges"], stages["candidates"]), stages


OF_A_CELL = select().cell
CONCERNED = [n for n, c in OF_A_CELL.items() if (c.by_partition or c.knows) and n != "stalled"]
OF = {of_transactions: {"transactions"}, imported: {"transactions"}, of_groups: {"group"}}


@settings(QUICK, max_examples=examples(500))
@given(st.lists(st.lists(st.integers(-500, 500), max_size=30), min_size=1, max_size=4), st.integers(0, 60))
def test_thinned_times_have_the_same_silences_among_whatever_others(partitions, silence):
    parts = [np.unique(np.array(times, dtype=np.int64)) for times in partitions]
    whole, thin = (np.unique(np.concatenate(p)) for p in (parts, [thinned(times, silence) for times in parts]))
    for limit in (silence, silence + 7):
        assert silences(whole, limit) == silences(thin, limit)


def silences(times, limit):
    return [(a, b) for a, b in zip(times[:-1].tolist(), times[1:].tolist(), strict=True) if b - a >= max(1, limit)]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A history of groups and transactions with anomalies."""
    run = RunDirectory(tmp_path_factory.mktemp("generated"))
    run.create()
    planted = {"torn": 3, "lost-transaction": 2, "aborted-read": 4, "unprocessed": 2, "commit-regression": 2}
    kinds = ("group", "transactions")
    generate(run, GenerateOptions(rows=6_000, partitions=6, kinds=kinds, planted=planted), command="test")
    return run


def test_an_engine_finds_the_same_in_cells_that_are_too_large_for_one_place(run):
    checkers = select(OF_CELLS)
    whole = check_locally(History.open(run), checkers, workers=2)
    assert sum(finding.result.count for finding in whole) >= 10
    cut = check_locally(History.open(run), checkers, workers=2, rows_max=500)
    assert [said(f) for f in cut] == [said(f) for f in whole]


def test_a_cell_is_one_heavy_unit_only_for_what_must_look_at_all_of_it_at_once(run):
    history, checkers = History.open(run), select(OF_CELLS)

    def each(looks):
        return [perform(checkers, history, look) for look in looks]

    units, found = units_of(history, checkers, each, cell_rows_max=500)
    for unit in units:
        if unit.cell is not None:
            cell = history.plan.cells[unit.cell]
            chosen = checkers_of(unit, cell, checkers)
            assert unit.rows == 0
            assert not any(checker.looks_at_rows(unit.known) for checker in chosen.values())
    left = {unit.partition for unit in units if unit.partition is not None}
    assert left | {finding.partition for finding in found} == set(history.partitions)
    assert all(unit.looked_at for unit in units if unit.partition in {finding.partition for finding in found})
    assert sum(unit.rows for unit in units) == sum(history.rows_of(p) for p in left)
