"""The undo journal: on disk before the fault, readable after any SIGKILL."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.harness.errors import StorageFull
from prozess.harness.interfaces import Undo
from prozess.nemesis.journal import Journal, UndoState, read_journal
from tests.support.examples import examples

NAMES = st.text(min_size=1, max_size=12)
UNDOS = st.lists(
    st.builds(Undo, action=st.sampled_from(["start", "resume", "unblock"]), node=NAMES, peer=st.none() | NAMES),
    min_size=1,
    max_size=4,
)


def plan(journal, undos, *, number=0, step="a step"):
    return journal.plan(undos, number=number, step_number=3, step=step, fault="kill", targets=[u.node for u in undos])


START = Undo(action="start", node="broker-1")
RESUME = Undo(action="resume", node="broker-2")


def test_a_missing_journal_is_an_empty_one(tmp_path):
    assert read_journal(tmp_path / "journal.jsonl").entries == ()


def test_what_is_planned_is_read_back_with_its_state(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    entries = plan(journal, [START, RESUME])
    journal.mark(entries[:1], UndoState.APPLIED)
    read = read_journal(tmp_path / "journal.jsonl")
    assert [(e.id, e.undo, e.state) for e in read.entries] == [
        (0, START, UndoState.APPLIED),
        (1, RESUME, UndoState.PLANNED),
    ]
    assert read.open == read.entries
    journal.mark(entries, UndoState.UNDONE)
    assert read_journal(tmp_path / "journal.jsonl").open == ()


def test_a_plan_is_synced_to_the_disk_before_it_returns_and_so_is_the_name_of_a_new_journal(tmp_path, monkeypatch):
    synced = []
    real = os.fsync

    def fsync(descriptor):
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    journal = Journal(tmp_path / "journal.jsonl")
    plan(journal, [START])
    assert synced == [tmp_path / "journal.jsonl", tmp_path]
    plan(journal, [RESUME])
    assert synced[2:] == [tmp_path / "journal.jsonl"]


def test_a_torn_last_line_is_ignored_and_the_next_plan_starts_on_a_line_of_its_own(tmp_path):
    path = tmp_path / "journal.jsonl"
    plan(Journal(path), [START])
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"id": 1, "number": 1, "st')
    contents = read_journal(path)
    assert (len(contents.entries), contents.unreadable) == (1, 0)
    journal = Journal(path)
    assert journal.next_number == 1
    plan(journal, [RESUME], number=1)
    contents = read_journal(path)
    assert [e.undo for e in contents.entries] == [START, RESUME]
    assert [e.id for e in contents.entries] == [0, 1]
    assert contents.unreadable == 0


def test_a_broken_line_in_the_middle_is_counted_and_hides_no_other(tmp_path):
    path = tmp_path / "journal.jsonl"
    plan(Journal(path), [START])
    path.write_bytes(b"\x00garbage\xff\n" + path.read_bytes())
    contents = read_journal(path)
    assert [e.undo for e in contents.open] == [START]
    assert contents.unreadable == 1


@settings(max_examples=examples(60), deadline=None)
@given(faults=st.lists(UNDOS, min_size=1, max_size=4), data=st.data())
def test_cut_at_any_byte_a_journal_still_says_every_plan_that_was_written_whole(tmp_path_factory, faults, data):
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    journal, ends = Journal(path), []
    for number, undos in enumerate(faults):
        plan(journal, undos, number=number)
        ends.append(path.stat().st_size)
    cut = data.draw(st.integers(0, ends[-1]))
    with path.open("r+b") as file:
        file.truncate(cut)
    contents = read_journal(path)
    assert contents.unreadable == 0
    written = [undo for undos, end in zip(faults, ends, strict=True) if end <= cut for undo in undos]
    assert [e.undo for e in contents.entries][: len(written)] == written
    assert len(contents.entries) <= sum(map(len, faults))


def test_what_a_process_planned_and_marked_survives_its_sigkill(tmp_path):
    path = tmp_path / "journal.jsonl"
    code = f"""
import os, signal
from pathlib import Path
from prozess.harness.interfaces import Undo
from prozess.nemesis.journal import Journal, UndoState
from tests.support.examples import examples
journal = Journal(Path({str(path)!r}))
entries = journal.plan([Undo(action="start", node="broker-1")], number=0, step_number=0, step="s", fault="kill",
                       targets=["broker-1"])
journal.mark(entries, UndoState.APPLIED)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    (entry,) = read_journal(path).open
    assert entry.state is UndoState.APPLIED


@pytest.mark.parametrize("name", ["leader → broker", "a\nb", '"quoted"'])
def test_any_name_of_a_step_fits_on_one_line(tmp_path, name):
    path = tmp_path / "journal.jsonl"
    plan(Journal(path), [START], step=name)
    assert path.read_bytes().count(b"\n") == 1
    assert read_journal(path).entries[0].step == name.strip()


def test_a_full_disk_is_told_and_leaves_no_half_line(tmp_path, monkeypatch):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    plan(journal, [START])
    real = os.write

    def write(descriptor, content):
        if len(content) > 20:
            return real(descriptor, content[:20])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(StorageFull, match="no fault is made without it"):
        plan(journal, [RESUME], number=1)
    monkeypatch.undo()
    assert [e.undo for e in journal.open] == [START]
    plan(journal, [RESUME], number=1)
    assert [e.undo for e in read_journal(path).open] == [START, RESUME]
    assert read_journal(path).unreadable == 0
