"""KAFKA-18641: a Java member commits by itself what its application was not given yet, or had not processed."""

from dataclasses import replace

import pytest

from prozess.harness.config.configuration import GroupConfiguration
from prozess.harness.guarantees.evidence.envelope import Envelope
from prozess.harness.guarantees.table import TABLE
from prozess.harness.guarantees.table.cell_configuration import CellConfiguration, commits_while_it_collects
from prozess.harness.guarantees.verdict.evaluation import Judgement, evaluate_witnesses
from prozess.harness.interfaces.witnesses import GroupCase, make_witnesses
from prozess.harness.schema import NONE
from tests.support.cells.evidence import ns

EARLY = CellConfiguration(
    acks="all", idempotent=True, retries=True, several_in_flight=True, commits_while_it_collects=True
)


@pytest.mark.parametrize(
    ("member", "case", "early", "label"),
    [
        (NONE, GroupCase.NO_CAUSE, True, "KAFKA-18641"),
        (5, GroupCase.CRASHED, True, "KAFKA-18641"),
        (5, GroupCase.NO_CAUSE, True, None),
        (NONE, GroupCase.NO_CAUSE, False, None),
    ],
    ids=["given to nobody", "its member died", "its member lives", "another client"],
)
def test_a_record_that_nobody_processed_is_ascribed_to_early_commits(member, case, early, label):
    columns = {"log_offset": 7, "begin_ns": ns(1), "reader": member, "case": int(case)}
    envelope = Envelope(acks="all", unclean_enabled=False)
    configuration = replace(EARLY, commits_while_it_collects=early)
    found = evaluate_witnesses("unprocessed", configuration, envelope, make_witnesses(1, columns))
    assert found.judgement.tolist() == [Judgement.FORBIDDEN]
    rule = int(found.rule[0])
    assert (TABLE["unprocessed"].rules[rule].label if rule >= 0 else None) == label


@pytest.mark.parametrize(
    ("version", "expected"),
    [("3.9.2", True), ("4.0.2", False), ("4.1.2", False), ("4.2.2", True), ("4.4.0", True), (None, True)],
)
def test_which_clients_commit_while_they_collect_goes_by_their_version(version, expected):
    group = GroupConfiguration(client="java", protocol="consumer", commit="auto", client_version=version)
    assert commits_while_it_collects(group, (4, 4, 0)) is expected
    for other in ({"client": "librdkafka"}, {"protocol": "classic-eager"}, {"commit": "sync-after"}):
        assert not commits_while_it_collects(group.model_copy(update=other), (4, 4, 0)), other
    unknown = group.model_copy(update={"client_version": None})
    assert not commits_while_it_collects(unknown, None), "of an unknown version nothing is known"
