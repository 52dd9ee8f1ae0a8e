"""Which guarantees decide, and that what does not is listed and never passes for held."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.harness.config.existing_clusters import AttachOptions, SshNodeOptions, SshOptions
from prozess.harness.errors import BadInput
from prozess.harness.guarantees.table import TABLE
from prozess.harness.guarantees.verdict.judge import (
    NEEDS_NODES,
    WITHOUT_AUDIT,
    judge,
    parse_decide,
    refuse_idle,
    why_not_judged,
)
from prozess.harness.verdict import SERVER_ERRORS, AnomalyOutcome, Verdict
from tests.support.cells.evidence import (
    ACKS_1,
    ACKS_ALL,
    SMOKE_FAULTS,
    evidence,
    failover,
    findings,
    lost_in,
    of,
    plan,
    result,
    smoke,
    smoke_verdict,
    witnesses,
)

NOTHING = witnesses(0)
UNREAD = {(name, 0): result(NOTHING, judged=0, incomplete="the copies were not read") for name in NEEDS_NODES}


def attached(**options):
    made = plan({})
    return made.model_copy(update={"attach": AttachOptions(bootstrap_servers=("a:9092",), **options)})


def verdict_of(made, found=UNREAD, *, decide=()):
    return judge(made, findings(made, found), evidence(made), decide=decide)


@pytest.mark.parametrize("named", [["lost", "duplicate"], ["duplicate,lost"], ["lost, duplicate", "lost"]])
def test_names_come_in_the_order_of_the_table_each_once(named):
    assert parse_decide(named) == ("lost", "duplicate")


def test_complaints_of_servers_decide_beside_the_guarantees_and_leave_none_out():
    assert parse_decide(["server-errors,lost"]) == ("lost", SERVER_ERRORS)
    refuse_idle(plan({}), [SERVER_ERRORS])
    assert verdict_of(plan({}), {}, decide=(SERVER_ERRORS,)) == verdict_of(plan({}), {})
    chosen = verdict_of(plan({}), {}, decide=("lost", SERVER_ERRORS))
    assert chosen == verdict_of(plan({}), {}, decide=("lost",))


@pytest.mark.parametrize(
    ("named", "said"), [("lots", "did you mean 'lost'?"), ("", "Known: lost, duplicate,"), ("lost,", "'' is not")]
)
def test_a_name_that_is_none_is_refused_with_the_names_there_are(named, said):
    with pytest.raises(BadInput, match=r"--decide .* is not the name of a guarantee") as refused:
        parse_decide([named])
    assert said in str(refused.value)


def test_what_coordinators_keep_is_not_fetched_from_other_machines():
    node = SshNodeOptions(id=1, host="h", listener="h:9092", data_directory="/data")
    made = plan({}).model_copy(update={"ssh": SshOptions(nodes=(node,))})
    assert why_not_judged(made, "unclean") is None
    for anomaly in ("illegal-transaction-state", "illegal-group-state", "illegal-share-state"):
        assert "are not fetched from other machines" in (why_not_judged(made, anomaly) or "")
        assert why_not_judged(plan({}), anomaly) is None


def test_what_no_cell_is_judged_by_cannot_be_chosen():
    refuse_idle(smoke(), ["lost", "unclean"])
    with pytest.raises(
        BadInput,
        match="'torn' cannot decide anything: it applies to cells of transactions, and 'made-by-hand' has none",
    ):
        refuse_idle(smoke(), ["lost", "torn"])


def test_every_name_of_the_lists_is_in_the_table():
    assert set(NEEDS_NODES) | set(WITHOUT_AUDIT) <= TABLE.keys()
    assert not [name for name in WITHOUT_AUDIT if TABLE[name].absence]


# --- somebody else's cluster ------------------------------------------------------------------------------------------


def test_a_clean_run_on_a_cluster_that_is_only_attached_to_is_held_and_names_what_was_not_judged():
    verdict = verdict_of(attached())
    assert verdict.verdict is Verdict.HELD
    assert set(verdict.not_judged) == {name for name in NEEDS_NODES if TABLE[name].applies(("log",))}
    assert of(verdict, 0, "unclean").reason == (
        "Not judged: neither the nodes' files nor the controllers' log can be read on this cluster."
    )
    assert verdict.sentence == (
        "Held: 1 of 1 cell kept every promise that was judged, with no fault of the trial's own. "
        "11 guarantees were not judged: diverged, snapshot-conflict, out-of-sequence, under-acknowledged and 7 more."
    )
    assert "lost" in verdict.decided


def test_the_same_evidence_of_a_cluster_of_ours_is_unknown():
    assert verdict_of(plan({})).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(("directory", "unread"), [(None, True), ("/data", False)])
def test_over_ssh_it_depends_on_whether_the_data_can_be_read(directory, unread):
    node = SshNodeOptions(id=1, host="h", listener="h:9092", data_directory=directory)
    made = plan({}).model_copy(update={"ssh": SshOptions(nodes=(node,))})
    assert made.nodes_unread is unread
    assert (why_not_judged(made, "unclean") is not None) is unread
    assert why_not_judged(made, "lost") is None


@pytest.mark.parametrize(("others", "expected"), [("unstated", Verdict.UNKNOWN), ("none", Verdict.VIOLATED)])
def test_a_loss_there_may_be_excused_by_what_others_did_unless_it_is_stated_that_they_did_nothing(others, expected):
    verdict = verdict_of(attached(others=others), UNREAD | lost_in(0, 3))
    assert verdict.verdict is expected
    if expected is Verdict.UNKNOWN:
        told = (
            "Unknown: lost 3 found, but it is unknown whether that is permitted: the history does not say which "
            "faults struck the cluster"
        )
        assert verdict.sentence.startswith(told)


def test_what_has_no_such_excuse_is_violated_there():
    assert verdict_of(attached(), UNREAD | {("phantom", 0): result(witnesses(2))}).verdict is Verdict.VIOLATED


def test_what_was_found_of_what_cannot_be_held_there_decides():
    verdict = verdict_of(
        attached(), UNREAD | {("under-acknowledged", 0): result(witnesses(2), incomplete="half of it")}
    )
    assert verdict.verdict is not Verdict.HELD
    assert "under-acknowledged" in verdict.decided


def test_an_incomplete_audit_is_unknown_there_too():
    gap = {("lost", 0): result(NOTHING, incomplete="the audit did not reach its sentinel")}
    verdict = verdict_of(attached(), UNREAD | gap)
    assert verdict.verdict is Verdict.UNKNOWN
    assert "lost" not in verdict.not_judged


# --- chosen -----------------------------------------------------------------------------------------------------------


def test_what_was_not_chosen_does_not_decide_and_is_told_with_what_was_found_of_it():
    made = smoke()
    found = lost_in(ACKS_ALL, 7)
    given = {"metadata": failover(3), "faults": SMOKE_FAULTS}
    verdict = judge(made, findings(made, found), evidence(made, **given), decide=("duplicate", "reordered"))
    assert verdict.verdict is Verdict.HELD
    assert verdict.decided == ("duplicate", "reordered")
    assert verdict.not_judged["lost"] == "it was not chosen to decide; 7 found"
    lost = of(verdict, ACKS_ALL)
    assert (lost.outcome, lost.verdict, lost.count) == (AnomalyOutcome.NOT_JUDGED, Verdict.NOT_JUDGED, 7)
    assert lost.reason == "7 found. Not judged: it was not chosen to decide."
    assert (
        "Held: 1 of 1 cell with acks=all kept the guarantees that were chosen to decide (duplicate, reordered)"
        in verdict.sentence
    )
    assert " Found, but not judged: lost 7. " in verdict.sentence
    assert not verdict.by_known_defects


def test_what_was_chosen_is_judged_as_ever():
    made = smoke()
    given = {"metadata": failover(3), "faults": SMOKE_FAULTS}
    silent = judge(made, findings(made), evidence(made, **given), decide=("lost",))
    assert silent.verdict is Verdict.UNKNOWN, "its control showed nothing"
    broken = judge(made, findings(made, lost_in(ACKS_ALL)), evidence(made, **given), decide=("lost",))
    assert broken.verdict is Verdict.VIOLATED
    proven = judge(made, findings(made, lost_in(ACKS_1)), evidence(made, **given), decide=("lost",))
    assert (proven.verdict, of(proven, ACKS_ALL).proven) == (Verdict.HELD, True)
    gone = judge(made, findings(made, lost_in(ACKS_1)), evidence(made, **given, steps_done=1), decide=("lost",))
    assert gone.verdict is Verdict.UNKNOWN, "the run ended early"


def test_a_silent_control_of_what_was_not_chosen_leaves_no_doubt():
    made = smoke()
    given = {"metadata": failover(3), "faults": SMOKE_FAULTS}
    assert judge(made, findings(made), evidence(made, **given), decide=("phantom",)).verdict is Verdict.HELD


def test_what_was_chosen_and_had_nothing_to_judge_is_unknown():
    found = {("resurrected", 0): result(NOTHING, judged=0)}
    verdict = verdict_of(plan({}), found, decide=("phantom", "resurrected"))
    assert verdict.verdict is Verdict.UNKNOWN
    assert (
        "resurrected was chosen to decide, but there was nothing to judge: no send certainly failed" in verdict.sentence
    )


def test_a_plan_may_have_chosen_and_the_one_who_asks_again_has_the_last_word():
    made = plan({}).model_copy(update={"decide": ("phantom",)})
    assert verdict_of(made, {}).decided == ("phantom",)
    assert verdict_of(made, {}, decide=("lost",)).decided == ("lost",)


@settings(deadline=None)
@given(
    decide=st.sets(st.sampled_from([name for name in TABLE if TABLE[name].applies({"log"})]), max_size=4),
    found=st.dictionaries(
        st.sampled_from(["lost", "duplicate", "phantom", "unclean", "reordered"]),
        st.tuples(st.integers(0, 3), st.sampled_from([None, "a gap"])),
    ),
    others=st.sampled_from(["unstated", "none"]),
)
def test_held_never_rests_on_what_is_not_named_and_names_everything_else(decide, found, others):
    made = attached(others=others)
    results = {(name, 0): result(witnesses(count), incomplete=gap) for name, (count, gap) in found.items()}
    verdict = verdict_of(made, UNREAD | results, decide=sorted(decide))
    applicable = {name for name, judged in verdict.cells[0].anomalies.items() if judged.outcome != "not judged"}
    assert set(verdict.decided) == applicable
    assert not set(verdict.decided) & verdict.not_judged.keys()
    if decide:
        assert set(verdict.decided) <= decide
    if verdict.verdict is Verdict.HELD:
        assert verdict.decided
        assert all(verdict.cells[0].anomalies[name].verdict is Verdict.HELD for name in verdict.decided)
        assert not verdict.not_judged or "not judged: " in verdict.sentence
        # By default nothing that was found and not permitted passes.
        assert decide or all(verdict.cells[0].anomalies[name].unknown == 0 for name in found)
        for name in verdict.not_judged:
            assert (
                not verdict.cells[0].anomalies[name].count or f"{name} " in verdict.sentence.partition("Found, but")[2]
            )


def test_a_trial_of_ours_says_what_it_always_said():
    verdict = smoke_verdict(lost_in(ACKS_1, 1600))
    assert (verdict.not_judged, "not judged" in verdict.sentence) == ({}, False)
