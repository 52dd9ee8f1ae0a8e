"""How a second opinion is compared with what the kernels found: numbers per cell, and witnesses where all are there."""

import re
from collections import Counter

import numpy as np
import pytest

from prozess.app.run.check import CheckOptions, check_run, compare_with_oracle
from prozess.harness.errors import HarnessFailed
from prozess.harness.exit_codes import ExitCode
from prozess.harness.interfaces.checking import Finding, KernelResult
from prozess.harness.interfaces.witnesses import make_witnesses
from prozess.harness.schema import TABLES
from prozess.spark_checkers.oracle import second_opinion
from prozess.spark_checkers.oracle.facts import FACTS
from prozess.spark_checkers.oracle.second_opinion import (
    AUDITED,
    QUERIES,
    UNAUDITED,
    Opinion,
    disagreements,
    needed_views,
)
from tests.support.anomalies import ANOMALIES
from tests.support.small_runs import make_small

CELLS = {0: 0, 1: 0, 2: 1}


def agreeing(run: object, findings: object, *, workers: int, session: object) -> tuple[str, ...]:
    return ()


def differing(run: object, findings: object, *, workers: int, session: object) -> tuple[str, ...]:
    return ("lost in cell 0: the kernel counted 3, SQL 2",)


def test_a_difference_is_a_failure_of_the_harness_that_says_what_differs(tmp_path, monkeypatch):
    run = make_small(tmp_path).run
    check_run(run, CheckOptions(engine="local", anomalies=["lost"]))
    monkeypatch.setattr(second_opinion, "second_opinion", agreeing)
    compare_with_oracle(run, workers=1)
    monkeypatch.setattr(second_opinion, "second_opinion", differing)
    with pytest.raises(HarnessFailed, match="lost in cell 0: the kernel counted 3, SQL 2") as raised:
        compare_with_oracle(run, workers=1)
    assert raised.value.exit_code == ExitCode.HARNESS_FAILED


def finding(partition: int, sequences: list[int], *, more: int = 0) -> Finding:
    columns = {"partition": partition, "client": 1, "sequence": np.array(sequences, dtype=np.int64)}
    witnesses = make_witnesses(len(sequences), columns)
    return Finding("lost", partition, KernelResult(witnesses, len(sequences) + more, judged=100))


def opinion(*rows: tuple[int, int, int]) -> dict[str, Opinion]:
    return {"lost": Opinion(("partition", "client", "sequence"), Counter(rows))}


def test_the_same_numbers_and_witnesses_agree():
    found = [finding(0, [4]), finding(1, [5, 6]), finding(2, [])]
    assert disagreements(found, opinion((0, 1, 4), (1, 1, 5), (1, 1, 6)), CELLS) == ()


def test_another_number_is_named_with_its_cell():
    found = [finding(0, [4]), finding(1, [5, 6]), finding(2, [])]
    said = disagreements(found, opinion((0, 1, 4), (1, 1, 5), (2, 1, 9)), CELLS)
    assert said == (
        "lost in cell 0: the kernel counted 3, SQL 2",
        "lost in cell 1: the kernel counted 0, SQL 1",
    )


def test_other_witnesses_are_named_though_there_are_as_many():
    (said,) = disagreements([finding(0, [4])], opinion((0, 1, 7)), CELLS)
    assert said == (
        "lost: the kernel and SQL found other witnesses (partition, client, sequence): "
        "the kernel [(0, 1, 4)], SQL [(0, 1, 7)]"
    )


def test_where_not_every_witness_was_kept_only_numbers_are_compared():
    assert disagreements([finding(0, [4], more=1)], opinion((0, 1, 7), (0, 1, 8)), CELLS) == ()


def test_a_cell_in_which_the_kernel_does_not_apply_is_not_compared():
    assert disagreements([finding(0, [4])], opinion((0, 1, 4), (2, 1, 9)), CELLS) == ()


def test_every_anomaly_of_the_second_opinion_is_known_and_its_name_is_not_a_table():
    assert set(QUERIES) <= set(ANOMALIES)
    assert not set(FACTS) & set(TABLES)


def test_only_the_views_that_a_text_needs_are_made_and_each_after_those_that_it_is_made_of():
    assert needed_views(["commit-ahead"]) == ()
    assert needed_views(["corrupt"]) == ("given", "sent")
    views = needed_views(["resurrected"])
    assert set(views) >= {"given", "log", "first_copy", "sent"}
    assert views.index("given") < views.index("log") < views.index("first_copy")
    assert "owned" not in views


@pytest.mark.parametrize("texts", [AUDITED, UNAUDITED], ids=["audited", "unaudited"])
def test_every_view_that_a_text_reads_from_is_made_before_it(texts):
    def read_by(text):
        own = set(re.findall(r"\b(\w+) as \(", text))
        return set(re.findall(r"\b(?:from|join) (\w+)", text)) & texts.views.keys() - own

    for index, (name, text) in enumerate(texts.views.items()):
        assert read_by(text) <= set(list(texts.views)[:index]), name
    for name, text in texts.queries.items():
        assert read_by(text) <= set(needed_views([name], texts)), name
