"""What a terminal shows of a run that goes on is what its files say."""

import io
from contextlib import closing
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from prozess.app.run import progress
from prozess.app.run.progress import LiveLeaders, ProgressView, Pulse, Watcher
from prozess.harness.columns import row_dtype
from prozess.harness.config.existing_clusters import AttachOptions
from prozess.harness.interfaces import Undo
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import load_trial, parse_trial
from prozess.harness.recording.codes import broker_mask
from prozess.harness.recording.rows import Recorder, RowWriter
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import METADATA, MISSING, NONE, SENDING, SENDS, MetadataKind, MetadataSource, Outcome
from prozess.nemesis.journal import Journal
from tests.support.clock import FakeClock
from tests.support.examples import examples

VIEWS = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 2), st.integers(0, 6), st.sets(st.integers(1, 3))), max_size=25
)
"""(who says it, partition, leader epoch, in-sync replicas)"""


def leader_of(partition, epoch):
    """One leader for each epoch, as Kafka has it; none in every fourth."""
    return -1 if (partition + epoch) % 4 == 3 else 1 + (partition + epoch * epoch) % 3


def metadata(views):
    rows = np.zeros(len(views), dtype=row_dtype(METADATA))
    for index, (node, partition, epoch, isr) in enumerate(views):
        row = rows[index]
        row["mark"], row["node"], row["partition"], row["leader_epoch"] = index + 1, node, partition, epoch
        row["leader"], row["isr"], row["replicas"] = (
            leader_of(partition, epoch),
            broker_mask(isr),
            broker_mask({1, 2, 3}),
        )
        row["kind"], row["source"] = int(MetadataKind.PARTITION), int(MetadataSource.SAMPLE)
    return rows


@given(views=VIEWS, cuts=st.lists(st.integers(0, 25), max_size=3))
@settings(max_examples=examples(300), deadline=None)
def test_leaders_are_those_of_the_newest_epoch_whatever_the_order_and_the_looks(views, cuts):
    rows = metadata(views)
    leaders = LiveLeaders(3)
    for cut in [*sorted(cuts), len(rows)]:
        part = rows.copy()
        part["mark"][cut:] = 0  # not written yet
        leaders.take([part])
    newest, whole = {}, {}
    for node, partition, epoch, isr in views:
        newest[partition] = max(epoch, newest.get(partition, -1))
        if leader_of(partition, epoch) in (node, -1) and epoch >= whole.get(partition, (-1, True))[0]:
            whole[partition] = epoch, isr == {1, 2, 3}
    assert leaders.leaderless == sum(leader_of(p, e) == -1 for p, e in newest.items())
    assert leaders.shrunken == sum(not well for _, well in whole.values())


def test_a_move_is_another_leader_even_if_nobody_led_in_between():
    leaders = LiveLeaders(1)
    told = [(1, 0, epoch, {1, 2, 3}) for epoch in range(6)]
    leaders.take([metadata(told)])
    led = [leader for epoch in range(6) if (leader := leader_of(0, epoch)) >= 0]
    assert leaders.moved == sum(a != b for a, b in pairwise(led))
    leaders.take([metadata(told)])
    assert leaders.moved == sum(a != b for a, b in pairwise(led)), "nothing new, nothing moved"


@pytest.fixture
def going_on(tmp_path):
    """A run with a producer that had three acknowledgements and a doubt, and a broker that is killed."""
    plan, run = make_plan(load_trial("smoke"), seed=1), RunDirectory(tmp_path)
    run.create()
    client = next(c.client for c in plan.clients if c.role in SENDING)
    with closing(RowWriter(run.rows, SENDS, client)) as writer:
        for sequence, outcome in enumerate([Outcome.OK] * 3 + [Outcome.INFO]):
            values = {"sequence": sequence, "outcome": int(outcome), "completed_ns": 5, "invoked_ns": 1}
            writer.append(*(values.get(c.name, MISSING if c.unit == "ns" else 0) for c in SENDS.columns))
    with Recorder(run) as recorder:
        for epoch, leader in ((0, 1), (1, 2)):
            recorder.write(
                "metadata",
                time_ns=1,
                kind=int(MetadataKind.PARTITION),
                source=int(MetadataSource.SAMPLE),
                partition=0,
                node=leader,
                leader=leader,
                leader_epoch=epoch,
                isr=broker_mask({2}),
                replicas=broker_mask({1, 2}),
                recovering=NONE,
            )
    Journal(run.journal).plan(
        [Undo(action="start", node="broker-2")],
        number=0,
        step_number=0,
        step="the leader dies",
        fault="kill",
        targets=["broker-2"],
    )
    return plan, run


def test_a_look_tells_rates_doubts_faults_and_leaders(going_on):
    clock = FakeClock()
    watcher = Watcher(*going_on, clock)
    clock.sleep(2)
    pulse = watcher.look()
    watcher.close()
    assert pulse == Pulse(1.5, 1, ("kill broker-2",), leaders_moved=1, leaderless=0, shrunken=1)
    assert (
        str(pulse)
        == "2 acknowledged/s · 1 in doubt · active faults: kill broker-2 · 1 leader change · 1 with a shrunken ISR"
    )


def test_a_terminal_is_shown_it_and_a_pipe_is_not(going_on, monkeypatch):
    monkeypatch.setattr(progress, "LOOK_S", 0.01)
    for terminal in (True, False):
        seen = io.StringIO()
        view = ProgressView(quiet=False)
        view._console = Console(file=seen, force_terminal=terminal, width=250)
        view._status = view._console.status("preparing")
        with view:
            view.begin(going_on[0], going_on[1].path)
            view.phase("schedule")
            for _ in range(500):
                if not terminal or "active faults: kill broker-2" in seen.getvalue():
                    break
                view._enough.wait(0.02)
        assert ("active faults: kill broker-2" in seen.getvalue()) == terminal


# ----------------------------------------------------------------------------------------------------------------------
# What a run says it does to a cluster: nobody's own is started or taken down.


@pytest.mark.parametrize(
    ("backend", "said", "unsaid"),
    [
        ("local", ("starting the cluster", "taking the cluster down", "no log of a controller"), ()),
        (
            "attach",
            ("reaching the cluster", "leaving the cluster as it was found", "what only it shows is not judged"),
            ("starting", "down", "no log of a controller"),
        ),
    ],
)
def test_a_cluster_of_somebody_elses_is_reached_and_left(tmp_path, capsys, backend, said, unsaid):
    plan = make_plan(parse_trial({"name": "t", "title": "T"}, source="test"), seed=1)
    attach = AttachOptions(bootstrap_servers=("a:9092",)) if backend == "attach" else None
    plan = plan.model_copy(update={"backend": backend, "attach": attach})
    with ProgressView(quiet=False) as view:
        view.begin(plan, RunDirectory(tmp_path).path)
        for name in ("cluster", "teardown"):
            view.on_event({"event": "phase", "name": name})
            view.on_event({"event": "phase-done", "name": name, "took_s": 1.0})
        view.on_event({"event": "no-ground-truth", "error": "no log of a controller"})
    shown = capsys.readouterr().err
    assert all(words in shown for words in said), shown
    assert not any(words in shown for words in unsaid), shown


def test_steps_are_told_by_the_trials_clock_as_in_the_report(capsys):
    with ProgressView(quiet=False) as view:
        view.on_event({"event": "phase-done", "name": "warm-up", "at_s": 41.4, "took_s": 21.4})
        view.on_event({"event": "clock", "at_s": 41.34, "start_monotonic_ns": 7})
        view.on_event({"event": "step", "at_s": 44.66, "number": 0, "name": "steady traffic", "what": "done"})
    shown = capsys.readouterr().err.splitlines()
    assert [line.strip() for line in shown] == [
        "warming up until every partition acknowledges records: took 21.4 s",
        "at   0.00 s  the trial's clock begins",
        "at   3.32 s  steady traffic",
    ]
