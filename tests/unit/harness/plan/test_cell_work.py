"""What cells and clients do: each kind of workload has the one configuration that it needs, and nothing else can have it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from prozess.harness.config.configuration import (
    ApplicationConfiguration,
    CompactionConfiguration,
    ConsumerConfiguration,
    CopierConfiguration,
    GroupConfiguration,
    ProducerConfiguration,
    ProvocationConfiguration,
    ShareConfiguration,
    TopicConfiguration,
    TransactionConfiguration,
    Variant,
)
from prozess.harness.errors import BadInput
from prozess.harness.plan.axes import SCOPES
from prozess.harness.plan.cell_work import (
    PLAIN,
    WORK_OF_ROLES,
    CellWork,
    CopierWork,
    GroupWork,
    RecordedWork,
    TransactionsWork,
    work_as,
    work_with,
)
from prozess.harness.plan.plan import Cell, parse_plan
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import load_trial, parse_trial
from prozess.harness.plan.workloads.registry import KINDS
from prozess.harness.schema import role_named

OWN = {
    "group": GroupConfiguration(),
    "share_group": ShareConfiguration(),
    "transaction": TransactionConfiguration(),
    "compaction": CompactionConfiguration(),
    "provocation": ProvocationConfiguration(error="timeout"),
    "consumer": ConsumerConfiguration(command=("consume",)),
    "copier": CopierConfiguration(),
    "application": ApplicationConfiguration(command=("copy",)),
}
"""Scope → a configuration of it."""
GROUP = work_with(OWN["group"], Variant())
TRANSACTIONS = work_with(OWN["transaction"], Variant())
RECORDED = st.builds(
    RecordedWork, group=st.sampled_from([None, GROUP]), transactions=st.sampled_from([None, TRANSACTIONS])
)
WORK = st.sampled_from([work_with(own, Variant()) for own in (None, *OWN.values())]) | RECORDED


def cell(work, workload="log"):
    return Cell(
        cell=0,
        name="cell",
        workload=workload,
        topic_name="cell-000",
        axes={},
        topic=TopicConfiguration(),
        producer=ProducerConfiguration(),
        work=work,
        partitions=(0,),
    )


@given(WORK)
def test_work_is_read_as_it_was_written(work):
    adapter = TypeAdapter(CellWork)
    assert adapter.validate_json(adapter.dump_json(work)) == work


@pytest.mark.parametrize("scope", sorted(OWN))
def test_each_configuration_makes_work_of_a_kind_of_its_own(scope):
    assert work_with(OWN[scope], Variant()).configuration is OWN[scope]
    assert set(OWN) == set(SCOPES) - {"topic", "producer", "delivery"}
    assert len({work_with(own, Variant()).kind for own in OWN.values()}) == len(OWN)


def test_a_kind_of_workload_has_one_configuration_of_its_own_at_most():
    assert {kind.own for kind in KINDS.values()} == {None, *OWN}
    assert KINDS["log"].scopes == ("topic", "producer")
    assert KINDS["group"].scopes == ("topic", "producer", "group")


@given(WORK)
def test_only_work_with_a_group_has_one_and_only_work_in_transactions_has_those(work):
    made = cell(work)
    groups = {"group": work, "recorded": getattr(work, "group", None)}
    transactions = {"transactions": work, "recorded": getattr(work, "transactions", None)}
    assert made.group == groups.get(work.kind)
    told = transactions.get(work.kind)
    assert made.transaction == (None if told is None else told.configuration)


@pytest.mark.parametrize(
    ("work", "traits"),
    [
        (RecordedWork(), set()),
        (RecordedWork(group=GROUP), {"group"}),
        (RecordedWork(transactions=TRANSACTIONS), {"transactions"}),
        (RecordedWork(group=GROUP, transactions=TRANSACTIONS), {"group", "transactions"}),
    ],
)
def test_a_recorded_cell_may_have_a_group_and_transactions_and_is_judged_by_both(work, traits):
    assert cell(work, "recorded").traits == {"recorded", *traits}
    assert cell(work, "recorded").carriers == ("header", "header")


@pytest.mark.parametrize(
    ("configuration", "transactional"),
    [
        (CopierConfiguration(), True),
        (CopierConfiguration(client="java"), False),
        (CopierConfiguration(delivery="at-least-once"), False),
    ],
)
def test_copies_are_judged_as_transactions_where_our_own_copiers_make_some(configuration, transactional):
    made = cell(CopierWork(configuration=configuration), "exactly-once")
    assert ("transactions" in made.traits) == transactional
    assert made.delivery == configuration.delivery


def test_work_of_another_kind_than_the_one_that_must_be_is_our_mistake_and_is_named():
    assert work_as(GroupWork, GROUP) is GROUP
    with pytest.raises(AssertionError, match="expected TransactionsWork"):
        work_as(TransactionsWork, GROUP)


@pytest.mark.parametrize(
    "written",
    [
        {"kind": "group"},
        {"kind": "plain", "configuration": {}},
        {"kind": "transactions", "configuration": {}, "session": {"timeout_ms": 1, "heartbeat_ms": 1}},
        {"kind": "unheard-of"},
        {},
    ],
)
def test_what_is_no_work_is_refused(written):
    with pytest.raises(ValidationError):
        TypeAdapter(CellWork).validate_python(written)


def test_every_client_does_the_work_of_its_role():
    seen = set()
    for name in (
        "groups", "groups-java", "transactions", "compaction", "errors", "verifiable", "exactly-once", "java-copier",
        "share-groups",
    ):  # fmt: skip
        for client in make_plan(load_trial(name), seed=1).clients:
            assert isinstance(client.work, WORK_OF_ROLES.get(client.role, type(PLAIN)))
            seen.add(client.role)
    assert seen >= set(WORK_OF_ROLES) - {"application"}
    assert all(role_named(role) for role in WORK_OF_ROLES)


@pytest.mark.parametrize(
    ("trial", "role", "says"),
    [
        ("groups", "member", "its work is of the kind plain, and a client with the role member needs the kind group"),
        ("transactions", "transactor", "with the role transactor needs the kind transactions"),
        ("exactly-once", "copier", "with the role copier needs the kind copier"),
    ],
)
def test_a_plan_whose_client_lacks_the_work_of_its_role_is_refused(trial, role, says):
    document = json.loads(make_plan(load_trial(trial), seed=1).model_dump_json())
    next(client for client in document["clients"] if client["role"] == role)["work"] = {"kind": "plain"}
    with pytest.raises(BadInput, match=r"x\.json is no plan that can be run or checked: .*Put back") as refused:
        parse_plan(json.dumps(document), source="x.json")
    assert says in str(refused.value)


def test_a_plan_of_the_version_before_is_refused_by_its_version_though_its_keys_are_unknown():
    document = json.loads(
        make_plan(parse_trial({"name": "x", "title": "t"}, source="x.toml"), seed=1).model_dump_json()
    )
    document["cells"][0] = {key: value for key, value in document["cells"][0].items() if key != "work"} | {
        "group": None
    }
    with pytest.raises(BadInput, match="is not a plan of this version"):
        parse_plan(json.dumps(document), source="plan.json")
    with pytest.raises(BadInput, match=r"plan\.json has format version 4; this prozess reads 5\. Use the version"):
        parse_plan(json.dumps(document | {"format_version": 4}), source="plan.json")
