"""Tables that contradict one another: what nobody can have recorded is named, and nothing of its cell is held or violated."""

import numpy as np
import pytest

from prozess.exchange.synthetic.history import KINDS, GenerateOptions, generate
from prozess.exchange.synthetic.plants import PLANTS
from prozess.harness.history.contradictions import contradictions
from prozess.harness.history.convert import History
from prozess.harness.history.manifest import seal_recorded
from prozess.harness.history.parquet import TableWriter
from prozess.harness.run_directory import RunDirectory, read_object, write_json
from prozess.harness.schema import MISSING, NONE, TABLES, Outcome, Role, role_named
from prozess.harness.verdict import Verdict
from tests.support.damages import judged


def made(folder, **options):
    run = RunDirectory(folder)
    run.create()
    generate(run, GenerateOptions(**{"rows": 1600, "partitions": 2, "kinds": KINDS} | options), command="test")
    return run


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    return made(tmp_path_factory.mktemp("clean") / "run")


@pytest.fixture
def changed(clean):
    """Changes a column of the first row for which a condition holds, and takes it back at the end of the test."""
    before = {}

    def change(table, column, value, where=lambda rows: np.ones(len(rows["client"]), dtype=bool)):
        history = History.open(clean)
        rows = history.table(table)
        before.setdefault(table, dict(rows))
        row = int(np.flatnonzero(where(rows))[0])
        values = rows[column].copy()
        values[row] = value(values[row]) if callable(value) else value
        written(clean, table, {**rows, column: values})
        return clean

    yield change
    for table, rows in before.items():
        written(clean, table, rows)
    seal_recorded(clean)


def written(run, table, rows):
    with TableWriter(run, TABLES[table]) as writer:
        if not TABLES[table].partitioned:
            writer.write(rows)
            return
        order = np.lexsort([rows["client"], rows["partition"]])
        rows = {name: values[order] for name, values in rows.items()}
        for partition in np.unique(rows["partition"]):
            mine = rows["partition"] == partition
            writer.write({name: values[mine] for name, values in rows.items()})


CASES = [
    ("sends", "completed_ns", lambda ns: ns - 10**10, "completed_ns is before invoked_ns"),
    ("sends", "completed_ns", MISSING, "an acknowledged record was never acknowledged"),
    ("sends", "code", -7, "an acknowledged record has the code of an error"),
    ("sends", "outcome", 9, "outcome has a value that nothing has"),
    ("sends", "partition", NONE, "the plan does not have the partition"),
    ("clients", "issued", lambda issued: issued + 1, "records, and sends has"),
    ("sends", "client", 999, "there is no such client"),
    ("sends", "invoked_ns", -(10**12), "the client did not run at invoked_ns"),
    ("reads", "client", lambda client: client + 1, "records, and reads has"),
    ("reads", "span", 4, "the client never began the span"),
    ("reads", "flags", 64, "flags has a value that nothing has"),
    ("processed", "group", 17, "the group is not the client's"),
    (
        "processed",
        "started_ns",
        lambda ns: ns - 10**7,
        "the step began before its member was given a record of the span",
    ),
    ("processed", "done_ns", 10**12, "the client did not run at done_ns"),
    ("commits", "partition", 0, "does not serve the partition"),
    ("commits", "completed_ns", lambda ns: ns - 10**10, "completed_ns is before invoked_ns"),
    ("transactions", "transaction", 70, "there is no such transaction"),
    ("transactions", "initialised_ns", lambda ns: ns - 5, "the client has no instance that was initialised then"),
    ("transactions", "ended_by", NONE, "ended_by and end_invoked_ns do not agree"),
    ("transactions", "completed_ns", MISSING, "a transaction that ended was never completed"),
    ("commits", "client", lambda client: client + 1, "the client was never given the partition"),
    ("assignments", "client", NONE, "there is no such client"),
    ("assignments", "client", 1, "the client is in no group"),  # a producer of another cell
    ("clients", "ended_ns", -(10**13), "ended_ns is before started_ns"),
    ("clients", "client", 2**30, "there is no such client"),
    ("metadata", "isr", 2**9, "a member of the ISR is no replica"),
    ("metadata", "leader", 9, "the leader is no replica"),
    ("positions", "log_offset", 2**20, "the span was read from a greater offset on"),
    ("replicas", "leader_epoch", 5, "no leader of the partition had the epoch"),
    ("reads", "leader_epoch", 5, "no leader of the partition had the epoch"),
    ("metadata", "leader_epoch", 5, "no leader of the partition had the epoch"),
]
CHOSEN = {
    "metadata": lambda rows: (rows["kind"] == 1) & (rows["leader_epoch"] == 1),
    "transactions": lambda rows: rows["transaction"] != NONE,
    "sends": lambda rows: rows["client"] != 0,
    "clients": lambda rows: (rows["role"] == 1) & (rows["issued"] > 0),
}
"""Of which row a value is changed: not of a controller, an instance or a sentinel."""


@pytest.mark.parametrize(("table", "column", "value", "told"), CASES, ids=[f"{c[0]}.{c[1]}: {c[3]}" for c in CASES])
def test_what_nobody_can_have_recorded_is_named(changed, table, column, value, told):
    run = changed(table, column, value, *([CHOSEN[table]] if table in CHOSEN else []))
    found = [clause for clauses in contradictions(History.open(run)).values() for clause in clauses]
    assert any(told in clause for clause in found), found
    assert all(clause.startswith("the tables contradict one another: ") for clause in found)


def test_a_record_that_was_refused_while_its_transaction_went_on_has_no_offset(changed):
    run = changed(
        "sends", "outcome", Outcome.FAIL, lambda rows: (rows["transaction"] == 0) & (rows["outcome"] == Outcome.OK)
    )
    found = [clause for clauses in contradictions(History.open(run)).values() for clause in clauses]
    assert any("a refused record has an offset, or no error" in clause for clause in found), found


def test_members_of_a_share_group_have_neither_assignments_nor_spans(tmp_path):
    run = made(tmp_path / "run", kinds=("group",))
    plan = read_object(run.plan)
    members = {c["client"]: c | {"role": "verifiable-share-consumer"} for c in plan["clients"] if c["role"] == "member"}
    plan["clients"] = [members.get(c["client"], c) for c in plan["clients"]]
    write_json(run.plan, plan)
    history = History.open(run)
    for table in ("clients", "reads", "processed", "assignments", "positions"):
        rows = dict(history.table(table))
        mine = np.isin(rows["client"], list(members))
        if table == "clients":
            rows["role"] = np.where(mine, role_named("verifiable-share-consumer").value, rows["role"]).astype(np.int32)
        elif table in ("reads", "processed"):
            rows["span"] = np.where(mine, NONE, rows["span"]).astype(rows["span"].dtype)
        else:
            rows = {name: values[~mine] for name, values in rows.items()}
        written(run, table, rows)
    found = [clause for clauses in contradictions(History.open(run)).values() for clause in clauses]
    assert not [clause for clause in found if "span" in clause or "was never given" in clause], found


def test_a_member_keeps_what_it_was_given_when_the_topic_is_made_again(tmp_path):
    """Seen: cooperative members go on with the next topic of that name, and only hear of it when it is taken from them."""
    run = made(tmp_path / "run", kinds=("group",), partitions=4)
    rows = History.open(run).table("assignments")
    given = (rows["event"] == 1) & (rows["partition"] != NONE)
    member = int(rows["client"][given][0])
    first, second = np.unique(rows["partition"][given & (rows["client"] == member)]).tolist()[:2]
    never = given & (rows["client"] == member) & (rows["partition"] == second)
    written(run, "assignments", {name: values[~never] for name, values in rows.items()})

    def found():
        return [clause for clauses in contradictions(History.open(run)).values() for clause in clauses]

    assert any("the client was never given the partition" in clause for clause in found())
    plan = read_object(run.plan)
    plan["partitions"][second] |= {name: plan["partitions"][first][name] for name in ("topic_name", "number")}
    write_json(run.plan, plan)
    assert not any("the client was never given the partition" in clause for clause in found())


def test_a_record_cannot_be_sent_while_its_transaction_is_not_open(changed):
    run = changed("transactions", "begun_ns", lambda ns: ns + 10**10, lambda rows: rows["transaction"] == 0)
    found = [clause for clauses in contradictions(History.open(run)).values() for clause in clauses]
    assert any("sent while its transaction was not open" in clause for clause in found), found


def test_of_a_cell_whose_tables_contradict_one_another_nothing_is_held_and_nothing_violated(changed):
    # A send that is over before it begins would be a travel in time.
    run = changed(
        "sends", "completed_ns", lambda ns: ns - 10**10, lambda rows: (rows["partition"] == 0) & (rows["client"] > 0)
    )
    seal_recorded(run)
    verdict = judged(run)
    assert verdict.verdict is Verdict.UNKNOWN
    assert (
        "The tables contradict one another: in 1 row of sends completed_ns is before invoked_ns"
        in verdict.unknown_reasons[0]
    )
    assert [cell.verdict for cell in verdict.cells] == ["unknown", *["held"] * (len(KINDS) - 1)]


def test_two_sends_of_one_client_with_one_sequence_are_named_and_no_kernel_fails(changed):
    where = lambda rows: (rows["partition"] == 0) & (rows["client"] > 0) & (rows["sequence"] > 1)  # noqa: E731
    run = changed("sends", "sequence", lambda sequence: sequence - 2, where)
    seal_recorded(run)
    verdict = judged(run)
    assert verdict.verdict is Verdict.UNKNOWN
    whys = [anomaly.why for cell in verdict.cells for anomaly in cell.anomalies.values()]
    assert any("one sequence" in why for why in whys)
    assert not any("failed" in why for why in whys)


def test_nothing_that_was_planted_contradicts_anything(tmp_path):
    planted = dict.fromkeys(PLANTS, 2)
    run = made(tmp_path / "planted", rows=26_000, partitions=4, planted=planted, kinds=())
    assert contradictions(History.open(run)) == {}


def test_a_clean_history_contradicts_nothing(clean):
    assert contradictions(History.open(clean)) == {}


def test_what_an_earlier_generate_left_out_contradicts_nothing_and_is_not_judged(tmp_path):
    run = made(tmp_path / "run", planted={"duplicate": 2})
    clients, positions = History.open(run).table("clients"), History.open(run).table("positions")
    reading = np.isin(clients["role"], [Role.READER.value, Role.AUDIT.value])
    written(run, "clients", {**clients, "issued": np.where(reading, 0, clients["issued"])})
    members = np.isin(positions["client"], clients["client"][clients["role"] == Role.MEMBER.value])
    written(run, "positions", {name: values[members] for name, values in positions.items()})
    seal_recorded(run)
    assert any("never began the span" in why for why in contradictions(History.open(run)).get(0, ()))
    run.plan.write_text(run.plan.read_text(encoding="utf-8").replace('"synthetic"', '"generated"'), encoding="utf-8")
    seal_recorded(run)
    assert contradictions(History.open(run)) == {}
    verdict = judged(run)
    assert verdict.verdict is Verdict.VIOLATED
    assert verdict.not_judged.keys() == {"out-of-sequence", "starved", "unstable"}
