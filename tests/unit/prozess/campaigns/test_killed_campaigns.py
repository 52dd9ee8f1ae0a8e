"""A campaign that is killed at any of its writes, and continued, has run every trial once: none is lost, or counts twice."""

import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from prozess.campaigns.campaign_index import write_index
from prozess.campaigns.campaign_plan import draw, trials_in_all
from prozess.campaigns.campaign_runner import exit_code
from prozess.harness.verdict import Verdict
from tests.support.campaigns import CODE, OVERLAP, STARTS, Ending, a_campaign, begun_in, campaign_process
from tests.support.examples import ALL

WRITTEN = ("running.json", "last.log", "subprocess.Popen", "entries.jsonl", "rows", "index.html")
"""What a campaign writes for each trial, in this order."""
ENDINGS = st.builds(
    Ending,
    name=st.sampled_from(WRITTEN),
    nth=st.integers(0, 8),
    later=st.integers(0, 2),
    signal=st.sampled_from([signal.SIGKILL, signal.SIGINT]),
    torn=st.booleans(),
)


def assert_whole(directory, attempts):
    """The index shows these attempts, and of each run is there what the rule keeps."""
    page = directory.index.read_text()
    assert page == write_index(directory, directory.begun(), attempts).read_text()
    for attempt in attempts:
        if attempt.run is not None:
            rows = directory.runs / attempt.run / "rows"
            assert rows.exists() == (attempt.verdict is not Verdict.HELD)


class KilledCampaign(RuleBasedStateMachine):
    """A campaign that is killed and continued, beside its model: all attempts in their order, of which a prefix is done."""

    def __init__(self):
        super().__init__()
        self.temporary = tempfile.TemporaryDirectory(prefix="prozess-")
        self.commands, self.over = 0, False

    @initialize(
        trials=st.lists(st.sampled_from(["held", "violated", "unknown", "fails"]), min_size=1, max_size=3),
        seed=st.integers(0, 3),
    )
    def begin(self, trials, seed):
        campaign = a_campaign(*trials, rounds=1, failures_in_a_row_max=100)
        self.directory = begun_in(Path(self.temporary.name) / "campaign", campaign, duration_s=None, seed=seed)
        jobs = [draw(campaign, seed, number) for number in range(trials_in_all(campaign))]
        self.model = [
            (job.number, attempt, None if job.trial == "fails" else job.trial)
            for job in jobs
            for attempt in range(1 + (campaign.retries if job.trial == "fails" else 0))
        ]

    @rule(ending=ENDINGS)
    def run_until_a_write(self, ending):
        self.commands += 1
        note(f"exit code {campaign_process(self.directory.path, ending)}")

    @precondition(lambda self: not self.over)
    @rule()
    def run_to_the_end(self):
        self.commands += 1
        self.over = True
        assert campaign_process(self.directory.path) == 0
        attempts = self.directory.attempts()
        assert self.noted() == self.model, "every job once; a job that gave no verdict as often as it may be tried"
        assert int((self.directory.path / CODE).read_text()) == exit_code(attempts)
        assert_whole(self.directory, attempts)
        assert not self.directory.running.exists()

    def noted(self):
        return [(a.job.number, a.job.attempt, a.verdict) for a in self.directory.attempts()]

    @invariant()
    def nothing_is_lost_or_noted_twice(self):
        noted = self.noted()
        assert noted == self.model[: len(noted)]
        runs = [attempt.run for attempt in self.directory.attempts() if attempt.run is not None]
        assert len(set(runs)) == len(runs), "no two attempts have the same run"

    @invariant()
    def one_trial_runs_at_a_time_and_none_again_unless_its_command_was_ended(self):
        assert not (self.directory.path / OVERLAP).exists()
        starts = self.directory.path / STARTS
        count = len(starts.read_text().splitlines()) if starts.exists() else 0
        assert len(self.noted()) <= count <= len(self.noted()) + self.commands

    def teardown(self):
        self.temporary.cleanup()


TestKilledCampaign = KilledCampaign.TestCase
TestKilledCampaign.settings = settings(
    max_examples=100 if ALL else 8,
    stateful_step_count=4,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # to shrink takes minutes, and a case is short
)


@pytest.mark.parametrize(
    "ending", [Ending("entries.jsonl", 1, 1, signal.SIGKILL), Ending("index.html", 5, 0, signal.SIGKILL)]
)
def test_a_command_that_was_killed_after_the_last_trial_leaves_what_the_next_one_completes(tmp_path, ending):
    directory = begun_in(tmp_path / "campaign", a_campaign("violated", "held", rounds=1), duration_s=None)
    assert campaign_process(directory.path, ending) == -signal.SIGKILL
    before = directory.attempts()
    assert len(before) == 2
    assert campaign_process(directory.path) == 0
    assert directory.attempts() == before
    assert_whole(directory, before)
