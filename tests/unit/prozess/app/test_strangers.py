"""What a directory that somebody sent may make a command do: docs/untrusted-runs.md has a row for each command, as this has.

A forged directory claims everything that a run could claim. Nothing is ever connected to, killed, deleted, started, or
written outside of what the command is for, until `--trust`.
"""

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prozess import command
from prozess.app.wiring import heal_run
from prozess.harness import inputs, machine_record, run_directory
from prozess.harness.clock import SystemClock
from prozess.harness.errors import BadInput, HistoryUnreadable
from prozess.harness.plan.outside_effects import reaches
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.processes import boot_id, identify, is_running, pid_namespace, process_status
from prozess.harness.run_directory import RunDirectory
from prozess.nemesis.registry import UNDO_ACTIONS
from tests.support.paths import ROOT
from tests.support.stored_runs import verifiable_run
from tests.support.torture.effects import recorded

CLOCK = SystemClock()
SSH = {"nodes": [{"id": n, "host": f"host-{n}", "listener": f"host-{n}:9092"} for n in (1, 2, 3)], "start": "rm -rf /"}
BACKENDS = {
    "attach": {"attach": {"bootstrap_servers": ["127.0.0.1:9"]}},
    "ssh": {"ssh": SSH},
    "compose": {"compose": {"file": "/tmp/theirs.yaml"}},
    "local": {},
}


def plan_on(backend, *, prefix=None):
    document = {
        "name": "t",
        "title": "",
        "base": {"topic.replication_factor": 1},
        "backend": backend,
        **BACKENDS[backend],
    }
    plan = make_plan(parse_trial(document, source="test"), seed=1)
    if prefix is None:
        return plan.model_dump(mode="json")
    return plan.model_dump(mode="json") | {"adopted": {"prefix": prefix, "broker_ids": [1, 2, 3]}}


@cache
def planned(backend, prefix=None):
    return plan_on(backend, prefix=prefix)


@pytest.fixture(scope="module")
def bystander():
    """A process of somebody's, whom a forged run claims."""
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    yield process
    process.kill()
    process.wait(timeout=10)


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def line(**value):
    return json.dumps(value) + "\n"


def journal(actions):
    return "".join(
        line(
            id=number, number=number, step_number=0, step="s", fault="kill", targets=["broker-1"],
            undo={"action": action, "node": "broker-1"}, state="applied",
        )
        for number, action in enumerate(actions)
    )  # fmt: skip


def claim_everything(directory, bystander, *, backend="attach", prefix="", actions=("start",)):
    """A directory that says of itself whatever makes a run's healing act."""
    directory.mkdir(parents=True)
    identity = identify(bystander.pid)
    init = process_status(1)
    (directory / "plan.json").write_text(json.dumps(planned(backend, prefix)))
    (directory / "lasting.json").write_text("{}")
    (directory / "pids.jsonl").write_text(line(node="broker-1", pid=identity.pid, start_time=identity.start_time))
    (directory / "journal.jsonl").write_text(journal(actions))
    note = {
        "pid": identity.pid,
        "start_time": identity.start_time,
        "pid_namespace": pid_namespace(),
        "init_start_time": 1,
    }
    (directory / "alive.lock").write_text(
        json.dumps(note | ({"init_start_time": init.identity.start_time} if init else {}))
    )
    (directory / "compose.yaml").write_text("services: {}")
    (directory / "made.jsonl").write_text(line(kind="topic", name="payments", id=None, gone=False))
    return RunDirectory(directory)


forgeries = st.fixed_dictionaries(
    {
        "backend": st.sampled_from(sorted(BACKENDS)),
        "prefix": st.sampled_from([None, "", "prozess-"]),
        "lasting": st.sampled_from(["{}", '{"cluster_id": "x"}', "[]", "", "null", None]),
        "actions": st.lists(st.sampled_from(sorted(UNDO_ACTIONS)), max_size=3),
        "token": st.sampled_from(["none", "random", "ours", "garbage", "own"]),
        "missing": st.sets(
            st.sampled_from(["pids.jsonl", "journal.jsonl", "alive.lock", "compose.yaml", "made.jsonl"])
        ),
        "garbled": st.sampled_from(
            [None, "pids.jsonl", "journal.jsonl", "alive.lock", "made.jsonl", "plan.json", "token"]
        ),
    }
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(forged=forgeries)
def test_no_forged_directory_leads_to_an_effect_and_what_it_claims_is_named(forged, tmp_path, bystander):
    folder = tmp_path / secrets.token_hex(4)
    directory = folder / "run"
    claim_everything(
        directory, bystander, backend=forged["backend"], prefix=forged["prefix"], actions=forged["actions"]
    )
    for name in forged["missing"]:
        (directory / name).unlink()
    if forged["lasting"] is None:
        (directory / "lasting.json").unlink()
    else:
        (directory / "lasting.json").write_text(forged["lasting"])
    if forged["garbled"]:
        (directory / forged["garbled"]).write_bytes(b"\0\xff{[" + b"9" * 400)
    run = RunDirectory(directory)
    other = RunDirectory(folder / "ours")
    other.create()
    match forged["token"]:
        case "random":
            (directory / "token").write_text(secrets.token_hex(32))
        case "ours":
            (directory / "token").write_text(machine_record.begin(other).token)
        case "own":
            machine_record.begin(run)  # a run of ours, that somebody changed
    with recorded() as effects:
        report = heal_run(run, clock=CLOCK)
    assert effects.acts == []
    assert effects.outside(directory, tmp_path / "state") == []
    assert is_running(identify(bystander.pid))
    claims = forged["lasting"] is not None or (forged["actions"] and "journal.jsonl" not in forged["missing"])
    if forged["token"] != "own" and claims and forged["garbled"] != "journal.jsonl":
        assert not report.clean
        assert "no record that it made this run" in report.left[-1]
        assert "--trust" in report.left[-1]


def test_what_trust_would_do_is_listed_one_by_one(tmp_path, bystander):
    run = claim_everything(tmp_path / "run", bystander)
    text = str(heal_run(run, clock=CLOCK))
    for claim in (
        f"'broker-1' is process {bystander.pid}, which runs: --trust would kill it",
        "--trust would remove the containers",
        "connect to Kafka at '127.0.0.1:9', and log in there as you",
        "--trust would delete the topic 'payments' (no id) there",
    ):
        assert claim in text, text


def called(capsys, *arguments, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["prozess", *map(str, arguments)])
    with recorded() as effects:
        code = command.run()
    return code, effects, capsys.readouterr()


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    return verifiable_run(tmp_path_factory.mktemp("stored") / "it")


@pytest.fixture
def sent(stored, tmp_path, bystander):
    """A run with a verdict that somebody sent, and that claims whatever can be claimed."""
    path = tmp_path / "inbox" / "sent"
    shutil.copytree(stored.path, path)
    (path / "token").unlink(missing_ok=True)
    claims = claim_everything(tmp_path / "claims", bystander)
    for name in ("lasting.json", "pids.jsonl", "journal.jsonl", "alive.lock", "compose.yaml", "made.jsonl"):
        shutil.copy(claims.path / name, path / name)
    shutil.rmtree(claims.path)
    return path


READS = {
    "compare": lambda sent, out: ["compare", sent, sent],
    "runs": lambda sent, out: ["runs", sent.parent],
    "explain": lambda sent, out: ["explain", sent],
    "measured": lambda sent, out: ["measured", sent.parent],
    "scenarios --only-table": lambda sent, out: ["scenarios", "--only-table", "--runs", sent.parent],
    "check": lambda sent, out: ["check", sent, "--engine", "local"],
    "check --out": lambda sent, out: ["check", sent, "--engine", "local", "--out", out],
    "report": lambda sent, out: ["report", sent],
    "export jepsen": lambda sent, out: ["export", "jepsen", sent, "--out", out / "history.edn"],
    "trends --out": lambda sent, out: ["trends", sent.parent, "--out", out / "trends.html"],
    "effects --out": lambda sent, out: ["effects", sent.parent, "--out", out / "effects.html"],
    "tables --out": lambda sent, out: ["tables", sent.parent, "--out", out / "tables"],
    "matrix": lambda sent, out: ["matrix", sent],
    "matrix merge --out": lambda sent, out: ["matrix", "merge", sent, sent, "--out", out / "merged"],
    "heal": lambda sent, out: ["heal", sent],
    "heal --runs": lambda sent, out: ["heal", "--runs", sent.parent],
}
"""What may be done to a directory that was sent → the command. None acts; the first five change nothing at all."""
CHANGE_NOTHING = tuple(READS)[:5]


@pytest.mark.parametrize("command", READS)
def test_a_command_over_a_directory_that_was_sent_does_what_the_page_says(
    command, sent, tmp_path, capsys, monkeypatch, bystander
):
    out = tmp_path / "out"
    out.mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    code, effects, said = called(capsys, *READS[command](sent, out), monkeypatch=monkeypatch)
    assert code != 255 or command.startswith("heal"), said.err
    assert "bug in prozess" not in said.err
    assert effects.acts == []
    allowed = [] if command in CHANGE_NOTHING else [out] if "--out" in command or "export" in command else [sent]
    assert effects.outside(*allowed, tmp_path / "tmp") == []
    assert is_running(identify(bystander.pid))


@pytest.mark.parametrize("backend", ["attach", "ssh", "compose"])
@pytest.mark.parametrize("words", [("replay",), ("shrink",), ("run",)])
def test_a_plan_that_was_sent_and_reaches_further_is_not_carried_out(backend, words, tmp_path, capsys, monkeypatch):
    run = RunDirectory(tmp_path / "sent")
    run.create()
    run.plan.write_text(json.dumps(planned(backend)))
    (tmp_path / "runs").mkdir()
    code, effects, said = called(capsys, *words, run.path, "--runs", tmp_path / "runs", monkeypatch=monkeypatch)
    assert code == BadInput.exit_code
    assert "no record that it made this run" in said.err
    assert reaches_in(planned(backend)) in said.err
    assert (effects.acts, list((tmp_path / "runs").iterdir())) == ([], [])


@pytest.mark.parametrize("backend", ["attach", "ssh", "compose"])
def test_a_plan_that_was_sent_is_shown_without_asking_anybody(backend, tmp_path, capsys, monkeypatch):
    (tmp_path / "plan.json").write_text(json.dumps(planned(backend)))
    code, effects, said = called(capsys, "plan", tmp_path, monkeypatch=monkeypatch)
    assert (code, effects.acts, effects.changed) == (0, [], set())
    assert reaches_in(planned(backend)) in said.err


def reaches_in(document):
    from prozess.harness.plan.plan import Plan

    return reaches(Plan.model_validate(document))[0]


def test_a_plan_that_stays_on_this_machine_reaches_nothing_and_a_program_does():
    from prozess.harness.plan.plan import Plan

    assert reaches(Plan.model_validate(planned("local"))) == []
    document = {
        "name": "t",
        "title": "",
        "workload": "verifiable",
        "base": {"producer.command": ["sh", "-c", "evil"], "topic.replication_factor": 1},
    }
    (told,) = reaches(make_plan(parse_trial(document, source="test"), seed=1))
    assert told == "run the program 'sh -c evil'"


def test_a_campaign_a_search_and_a_matrix_that_were_sent_are_not_gone_on_with(tmp_path, capsys, monkeypatch, bystander):
    from prozess.campaigns.campaign_plan import BegunCampaign, CampaignDirectory
    from prozess.campaigns.campaign_runner import find_campaign
    from prozess.campaigns.shrink import BegunShrink, ShrinkDirectory, WantedViolation
    from prozess.harness.plan.plan import Plan

    campaign, search = CampaignDirectory(tmp_path / "campaign"), ShrinkDirectory(tmp_path / "search")
    campaign.begin(BegunCampaign(campaign=find_campaign("smoke"), seed=1, duration_s=60))
    wanted = WantedViolation(anomaly="lost", workload="log", axes={})
    search.begin(BegunShrink(run="r", wanted=wanted, duration_s=1), Plan.model_validate(planned("ssh")))
    identity = identify(bystander.pid)
    for directory, words in ((campaign, ["run", "smoke", "--resume"]), (search, ["shrink", "--resume"])):
        running = {
            "job": {"number": 0, "trial": "smoke", "seed": 1}, "boot": boot_id(),
            "owner": [identity.pid, 1], "process": [identity.pid, identity.start_time],
        }  # fmt: skip
        directory.running.write_text(json.dumps(running))
        (directory.path / "token").unlink()
        code, effects, said = called(capsys, *words, directory.path, monkeypatch=monkeypatch)
        assert code == BadInput.exit_code
        assert "no record that it began this" in said.err
        assert effects.acts == []
    assert is_running(identity)


WRITTEN = ("verdict.json", "report.html", "findings", "impact.json", "manifest.json")


@pytest.mark.parametrize(
    ("command", "name"),
    [
        *((command, name) for command in ("check", "report") for name in WRITTEN),
        *(("heal", name) for name in ("alive.lock", "journal.jsonl", "lasting.json", "made.jsonl", "logs")),
    ],
)
def test_nothing_is_written_through_a_link(command, name, sent, tmp_path, capsys, monkeypatch):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("precious")
    victim = sent / name
    if victim.is_dir():
        shutil.rmtree(victim)
        victim.symlink_to(outside)
    else:
        victim.unlink(missing_ok=True)
        victim.symlink_to(outside / "precious")
    more = ["--engine", "local"] if command == "check" else []
    code, effects, said = called(capsys, command, sent, *more, monkeypatch=monkeypatch)
    assert code == BadInput.exit_code
    assert re.search(rf"{name}' is a link, and no run has one", said.err), said.err
    assert effects.changed == set()
    assert [path.read_text() for path in outside.iterdir()] == ["precious"]


def test_a_pipe_in_a_directory_that_was_sent_keeps_nobody_waiting(sent, capsys, monkeypatch):
    (sent / "verdict.json").unlink()
    os.mkfifo(sent / "verdict.json")
    code, _, said = called(capsys, "report", sent, monkeypatch=monkeypatch)
    assert code == BadInput.exit_code
    assert "verdict.json' is a pipe, and the files of a run are files" in said.err


@pytest.mark.parametrize("name", ["plan.json", "manifest.json", "source.json"])
@pytest.mark.parametrize("command", ["check", "explain"])
def test_no_file_that_was_sent_is_read_without_an_end(command, name, sent, capsys, monkeypatch):
    monkeypatch.setattr(run_directory, "DOCUMENT_BYTES_MAX", 2**20)
    os.truncate(sent / name, 2**24) if (sent / name).exists() else (sent / name).write_bytes(bytes(2**24))
    most = [0]
    plain = inputs.read_bytes

    def counted(path, **limits):
        most[0] = max(most[0], limits.get("limit_bytes", inputs.LIMIT_BYTES))
        return plain(path, **limits)

    monkeypatch.setattr(inputs, "read_bytes", counted)
    whole = [Path.read_bytes, Path.read_text]
    for way in whole:
        monkeypatch.setattr(Path, way.__name__, _refuse_long(way))
    words = {"check": [sent, "--engine", "local"], "compare": [sent, sent]}.get(command, [sent])
    code, _, said = called(capsys, command, *words, monkeypatch=monkeypatch)
    assert code in (0, 1, 2, 255), said.err
    assert "bug in prozess" not in said.err
    assert most[0] <= inputs.LIMIT_BYTES


def _refuse_long(way):
    def read(path, *arguments, **named):
        assert path.stat().st_size < 2**24, f"{path.name} is read whole, however long it is"
        return way(path, *arguments, **named)

    return read


def test_the_page_has_a_row_for_each_command():
    page = (ROOT / "docs" / "untrusted-runs.md").read_text(encoding="utf-8")
    rows = {row.split("|")[1].strip() for row in page.splitlines() if row.startswith("| `prozess ")}
    words = " ".join(rows)
    for name in ("heal", "check", "report", "replay", "shrink", "compare", "explain", "plan", "runs", "measured", "trends",
                    "tables", "export", "matrix", "matrix merge", "scenarios", "run … --resume", "import", "watch",
                    "validate"):  # fmt: skip
        assert f"`prozess {name}" in words, name


@pytest.mark.parametrize("name", ["../../outside", "/etc", "a/../../b", ".."])
def test_names_in_files_that_were_sent_never_lead_out_of_their_directory(name, sent):
    from prozess.campaigns.engine import TrialAttempt
    from prozess.harness.history.manifest import read_manifest
    from prozess.harness.plan.plan import Plan, problem_of

    job = {"number": 0, "trial": "smoke", "seed": 1}
    with pytest.raises(ValueError, match="is no name of a directory in runs/"):
        TrialAttempt.model_validate({"job": job, "exit_code": 0, "run": name, "began_s": 0, "took_s": 0})
    manifest = json.loads((sent / "manifest.json").read_text())
    manifest["files"][name] = next(iter(manifest["files"].values()))
    (sent / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(HistoryUnreadable, match="which is not in the run's directory"):
        read_manifest(RunDirectory(sent))
    plan = Plan.model_validate(planned("local"))
    first = plan.clients[0].model_copy(update={"name": name})
    told = problem_of(plan.model_copy(update={"clients": (first, *plan.clients[1:])}))
    assert told is not None
    assert "files are named after it" in told


def test_what_a_sent_run_calls_itself_is_neither_html_nor_an_order_to_the_terminal(sent, tmp_path, capsys, monkeypatch):
    evil = "log\x1b[2J<img src=x onerror=alert(1)>"
    for name in ("plan.json", "verdict.json"):
        document = json.loads((sent / name).read_text())
        document["title"] = evil
        for cell in document["cells"]:
            cell["workload"] = evil
        (sent / name).write_text(json.dumps(document))
    (sent / "manifest.json").unlink()  # who sends it could have made one that fits
    for words in (["report", sent], ["explain", sent], ["check", sent, "--engine", "local"]):
        code, _, said = called(capsys, *words, monkeypatch=monkeypatch)
        assert code in (0, 2), said.err
        assert "\x1b" not in said.out + said.err
        for name in ("report.html", "summary.md", "junit.xml"):
            text = (sent / name).read_text(encoding="utf-8")
            assert "\x1b" not in text, name
            assert "<img" not in text.replace("\\<img", ""), name


def test_results_elsewhere_are_as_private_as_a_run(sent, tmp_path, capsys, monkeypatch):
    out = tmp_path / "results"
    code, _, said = called(capsys, "check", sent, "--engine", "local", "--out", out, monkeypatch=monkeypatch)
    assert code in (0, 1, 2), said.err
    assert {oct(path.stat().st_mode & 0o077) for path in (out, *out.rglob("*"))} == {"0o0"}
