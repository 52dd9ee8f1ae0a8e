"""What settings change: found where it was planted, not found where nothing is, and the same as by loops."""

from itertools import product
from statistics import fmean

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.campaigns.comparing.effects_page import change_words, interaction_words, report_effects, write_effects
from prozess.campaigns.comparing.setting_effects import (
    HARMS,
    RUNS_MIN,
    ShareChange,
    effects,
    interactions,
    observe,
)
from prozess.harness.errors import NotJudged
from prozess.harness.guarantees.table import TABLE
from prozess.harness.guarantees.table.harm import HARM
from prozess.harness.run_tables.definitions import RUN_TABLES

ACKS, ISR, UNCLEAN = "producer.acks", "topic.min_insync_replicas", "topic.unclean_leader_election_enable"


def tables(cells, outcomes):
    """Reads made-up tables: cells are (run, cell, axes, version), outcomes (run, cell, anomaly, outcome, count)."""
    rows = {
        "cells": [
            {"run": r, "cell": c, "workload": "log", "axes": list(axes.items()), "variant_kafka_version": version,
             "variant_metadata_mode": "kraft-isolated"}
            for r, c, axes, version in cells
        ],
        "outcomes": [
            dict(zip(("run", "cell", "anomaly", "outcome", "count"), one, strict=True)) for one in outcomes
        ],
    }  # fmt: skip

    def read(name, columns):
        schema = RUN_TABLES[name].schema
        return pa.Table.from_pylist(rows[name], schema=pa.schema([schema.field(column) for column in columns]))

    return read


def matrix(loses, *, runs=4, version=lambda run: "4.4.0"):
    """Every combination of three settings in each run; `loses(run, axes)` says in which cells records were lost."""
    combinations = [
        dict(zip((ACKS, ISR, UNCLEAN), values, strict=True)) for values in product("1a", "12", ("false", "true"))
    ]
    cells, outcomes = [], []
    for run in range(runs):
        for cell, axes in enumerate(combinations):
            lost = loses(run, axes)
            cells.append((f"run-{run}", cell, axes, version(run)))
            outcomes.append((f"run-{run}", cell, "lost", "permitted" if lost else "held", 9 * lost))
    return tables(cells, outcomes)


def gone(effect):
    return effect.changes[list(HARMS).index("gone")]


def test_a_setting_that_loses_in_each_run_is_first_and_its_change_is_all_cells():
    observations = observe(matrix(lambda run, axes: axes[ACKS] == "1"))
    first, *others = effects(observations)
    assert (first.setting, first.reference, first.value) == (ACKS, "a", "1")
    assert gone(first) == ShareChange(1.0, 1.0, 1.0, 4)
    assert first.basis == "cells alike in all else"
    assert [gone(one).mean for one in others] == [0.0, 0.0]


def test_two_settings_that_lose_only_together_are_named_and_no_other_pair_is():
    observations = observe(matrix(lambda run, axes: axes[ISR] == "1" and axes[UNCLEAN] == "true"))
    (one,) = interactions(observations)
    assert (one.settings, one.values, one.harm) == ((ISR, UNCLEAN), ("1", "true"), "gone")
    assert one.shares == (0.0, 0.0, 0.0, 1.0)
    assert one.only_together
    assert "only together: gone in 100 % of the cells" in interaction_words(one)


def test_what_adds_up_is_no_interaction():
    def loses(run, axes):  # acks decides in every other run, and min.insync.replicas in the others
        return axes[ACKS] == "1" if run % 2 else axes[ISR] == "1"

    assert interactions(observe(matrix(loses, runs=8))) == []


def test_fewer_runs_give_no_interval_and_say_how_many_there_were():
    observations = observe(matrix(lambda run, axes: axes[ACKS] == "1", runs=RUNS_MIN - 1))
    change = gone(effects(observations)[0])
    assert (change.mean, change.runs) == (1.0, RUNS_MIN - 1)
    assert np.isnan([change.low, change.high]).all()
    assert change_words(change) == "+100 (?)"
    assert interactions(observations) == []


def test_runs_that_differ_have_an_interval_around_their_mean():
    change = gone(effects(observe(matrix(lambda run, axes: axes[ACKS] == "1" and run % 2 == 0, runs=8)))[0])
    assert change.mean == pytest.approx(0.5)
    assert change.low < 0.2 < 0.8 < change.high <= 1


def test_versions_are_compared_between_runs():
    read = matrix(lambda run, axes: run % 2 == 0, runs=8, version=lambda run: ("3.9.2", "4.4.0")[run % 2])
    first = effects(observe(read))[0]
    assert (first.setting, first.reference, first.value) == ("variant.kafka_version", "4.4.0", "3.9.2")
    assert first.basis == "runs"
    assert gone(first) == ShareChange(1.0, 1.0, 1.0, 8)


def test_what_is_unknown_is_neither_seen_nor_not_seen():
    cells = [("r", 0, {ACKS: "1"}, "4.4.0"), ("r", 1, {ACKS: "all"}, "4.4.0")]
    unknown = [("r", 0, "lost", "unknown", 0), ("r", 0, "skipped", "held", 0), ("r", 1, "lost", "held", 0)]
    seen = observe(tables(cells, unknown)).seen
    assert np.isnan(seen[0, 0])
    assert seen[1, 0] == 0
    assert effects(observe(tables(cells, unknown))) == [], "nothing that both cells have can be compared"
    shown = observe(tables(cells, [*unknown, ("r", 0, "unreported", "permitted", 3)])).seen
    assert shown[0, 0] == 1, "what was seen was seen, whatever else is unknown"


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("1a"), st.sampled_from("12"), st.booleans()), max_size=40))
def test_the_change_is_that_which_loops_find(drawn):
    cells = [(f"run-{run}", cell, {ACKS: acks, ISR: isr}, "4.4.0") for cell, (run, acks, isr, _) in enumerate(drawn)]
    outcomes = [(f"run-{run}", cell, "lost", "permitted", int(lost)) for cell, (run, *_, lost) in enumerate(drawn)]
    for effect in effects(observe(tables(cells, outcomes))):
        if effect.setting != ACKS or effect.basis != "cells alike in all else":
            continue
        by_run = []
        for run in range(4):
            by_stratum = []
            for isr in "12":
                shares = {
                    value: [float(lost) for r, a, i, lost in drawn if (r, a, i) == (run, value, isr)] for value in "1a"
                }
                if all(shares.values()):
                    by_stratum.append(fmean(shares[effect.value]) - fmean(shares[effect.reference]))
            by_run += [fmean(by_stratum)] if by_stratum else []
        assert gone(effect).mean == pytest.approx(fmean(by_run))
        assert gone(effect).runs == len(by_run)


def test_every_harm_has_a_column_and_every_anomaly_a_harm():
    assert tuple(HARMS.values()) == tuple(HARM)
    assert {name for names in HARM.values() for name in names} >= TABLE.keys()


def test_the_page_shows_each_setting_and_loads_nothing(tmp_path):
    read = matrix(lambda run, axes: axes[ACKS] == "1" or (axes[ISR] == "1" and axes[UNCLEAN] == "true"))
    observations = observe(read)
    path = write_effects(observations, effects(observations), interactions(observations), tmp_path / "page.html")
    text = path.read_text("utf-8")
    for words in ("acks", "min.insync.replicas", "a → 1", "4 runs", "32 cells"):
        assert words in text, words
    assert "<script" not in text
    assert 'aria-label="acks, a to 1: gone +' in text


def test_tables_without_a_judged_cell_are_refused_with_a_way_out(tmp_path):
    with pytest.raises(NotJudged, match="prozess check RUN"):
        report_effects(tables([], []), tmp_path / "page.html")
