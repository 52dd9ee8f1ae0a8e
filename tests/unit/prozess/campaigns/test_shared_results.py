"""One command at a time writes into a place of results, also where the store has no locks."""

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from prozess.campaigns.shared_results import ResultsOwner, SharedResults, owned
from prozess.harness.errors import BadInput, HarnessFailed

LEASE_S = 90.0


def age(path, seconds):
    """Makes all claims but the newest older, as the store's clock sees them."""
    for file in (path / "owners").iterdir():
        stat = file.stat()
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns - int(seconds * 1e9)))


def test_a_second_command_is_refused_with_who_works_there_and_leaves_nothing(tmp_path):
    cluster_kind = SharedResults.at(tmp_path)
    with owned(cluster_kind):
        with (
            pytest.raises(
                BadInput, match=rf"another command works on these results \(process {os.getpid()} on .*--run"
            ),
            owned(cluster_kind),
        ):
            raise AssertionError("two own it")
        assert len(list((tmp_path / "owners").iterdir())) == 1
    assert list((tmp_path / "owners").iterdir()) == []
    with owned(cluster_kind):
        pass


def test_the_claim_of_a_command_that_was_killed_expires_and_one_that_only_slept_notices(tmp_path):
    cluster_kind = SharedResults.at(tmp_path)
    slept = ResultsOwner(cluster_kind, lease_s=LEASE_S)
    slept.claim()
    age(tmp_path, LEASE_S - 5)
    with pytest.raises(BadInput):
        ResultsOwner(cluster_kind, lease_s=LEASE_S).claim()
    age(tmp_path, 10)
    second = ResultsOwner(cluster_kind, lease_s=LEASE_S)
    second.claim()
    for _ in range(2):
        with pytest.raises(HarnessFailed, match="no longer belongs to this command"):
            slept.renew()
    with pytest.raises(HarnessFailed, match="Nothing was removed"):
        slept.ensure()
    second.ensure()


def test_a_torn_claim_counts_as_a_command_that_has_just_begun(tmp_path):
    cluster_kind = SharedResults.at(tmp_path)
    cluster_kind.write("owners/torn.json", b'{"host": ')
    with pytest.raises(BadInput, match="a command that has just begun"):
        ResultsOwner(cluster_kind).claim()


class MemoryStore:
    """A store whose clock the test moves."""

    address = "memory"

    def __init__(self):
        self.files: dict[str, tuple[bytes, float]] = {}
        self.now_s = 0.0

    def read(self, name):
        return self.files[name][0] if name in self.files else None

    def write(self, name, content):
        self.files[name] = content, self.now_s

    def remove(self, name):
        self.files.pop(name, None)

    def times(self, folder):
        return {name.rpartition("/")[2]: at for name, (_, at) in self.files.items() if name.startswith(f"{folder}/")}


class Commands(RuleBasedStateMachine):
    """Commands begin, renew, sleep, end and are killed in any order: never do two own a place that both may write into."""

    def __init__(self):
        super().__init__()
        self.store = MemoryStore()
        self.working: list[ResultsOwner] = []

    @rule()
    def begin(self):
        command = ResultsOwner(self.store, lease_s=LEASE_S)
        try:
            command.claim()
        except BadInput:
            return
        self.working.append(command)

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def renew(self, data):
        command = data.draw(st.sampled_from(self.working))
        try:
            command.renew()
        except HarnessFailed:
            self.working.remove(command)

    @precondition(lambda self: self.working)
    @rule(data=st.data(), killed=st.booleans())
    def end(self, data, killed):
        command = data.draw(st.sampled_from(self.working))
        self.working.remove(command)
        if not killed:
            command.release()

    @rule(seconds=st.sampled_from([1.0, 30.0, 89.0, 91.0]))
    def pass_time(self, seconds):
        self.store.now_s += seconds

    @invariant()
    def at_most_one_may_remove_anything(self):
        sure = []
        for command in self.working:
            try:
                command.ensure()
                sure.append(command)
            except HarnessFailed:
                continue
        assert len(sure) <= 1


TestCommands = Commands.TestCase
TestCommands.settings = settings(max_examples=60, stateful_step_count=30, suppress_health_check=list(HealthCheck))
