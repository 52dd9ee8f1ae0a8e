"""A file that a person names is read whole, or refused by one sentence in bounded time and memory, by each command."""

import os
import resource
import subprocess
import sys
import threading
import time

import pytest

from prozess.harness import inputs
from prozess.harness.errors import BadInput
from prozess.harness.exit_codes import ExitCode
from prozess.harness.run_directory import RunDirectory
from prozess.validation.reading import yaml_documents
from tests.support.paths import ROOT

BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdef", "bcdefg", strict=True)
)


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom"])
def test_what_has_no_end_is_refused_at_the_limit(device):
    begun_s = time.monotonic()
    with pytest.raises(OSError, match="it goes on after 32 MiB, and no such file is so long"):
        inputs.read_bytes(device)
    assert time.monotonic() - begun_s < inputs.LIMIT_S


def test_a_pipe_that_nobody_writes_keeps_nobody_waiting_and_one_with_a_writer_is_read(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match=r"nothing came from it within 0\.05 s"):
        inputs.read_bytes(pipe, timeout_s=0.05)

    def write():
        with pipe.open("wb") as file:
            file.write(b"acks=1\r\n")

    writer = threading.Thread(target=write)
    writer.start()
    assert inputs.read_text(pipe) == "acks=1\n"
    writer.join()


def test_a_directory_and_a_name_with_a_nul_are_errors_of_the_system(tmp_path):
    with pytest.raises(OSError, match="Is a directory"):
        inputs.read_bytes(tmp_path)
    with pytest.raises(OSError, match="no file has such a name"):
        inputs.read_bytes("a\0b")


def test_an_alias_bomb_is_refused_before_it_goes_off():
    assert len(BOMB) < 400
    with pytest.raises(ValueError, match=r"line 6: its names for parts \(&, \*\) stand for more than 200,000 values"):
        yaml_documents(BOMB)
    with pytest.raises(ValueError, match="this part is in itself"):
        yaml_documents("a: &a [*a]")


def test_names_for_parts_are_read_where_they_stand_for_little():
    assert yaml_documents("a: &a {x: 1}\nb: *a\nc: {<<: *a, y: 2}") == [
        {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1, "y": 2}}
    ]


COMMANDS = {
    "run": ["run", "{}"], "plan": ["plan", "{}"], "campaign": ["run", "{}", "--rounds", "1"], "matrix": ["matrix", "{}"],
    "producer": ["validate", "--minutes", "0", "--producer", "{}"], "topic": ["validate", "--minutes", "0", "--topic", "{}"],
    "application": ["validate", "--minutes", "0", "--application", "{}"],
    "compose": ["validate", "--minutes", "0", "--compose", "{}"],
    "accept": ["validate", "--minutes", "0", "--producer", "/dev/null", "--accept", "{}"],
    "login": ["heal", "--runs", "nowhere", "--client-config", "{}"],
    "jepsen": ["import", "jepsen", "{}", "--out", "out"], "verifiable": ["import", "verifiable", "{}", "--out", "out"],
    "check": ["check", "{}", "--engine", "local"], "report": ["report", "{}"], "explain": ["explain", "{}"],
    "compare": ["compare", "{}", "{}"], "replay": ["replay", "{}"], "heal": ["heal", "{}"],
    "shrink": ["shrink", "{}"], "export": ["export", "jepsen", "{}", "--out", "out"],
}  # fmt: skip
"""Each command that reads a file or a directory that a person names."""
MEMORY_BYTES = 3 * 1024**3
SEVERAL = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from prozess.harness import inputs
from prozess import command
inputs.read_bytes.__kwdefaults__["timeout_s"] = 0.2
for words in json.loads(sys.argv[1]):
    sys.argv = ["prozess", *words]
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = command.run()
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
"""


def outcomes(words, directory):
    """What each command line ends with, in a process of bounded memory."""
    import json

    def bound():
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))

    done = subprocess.run(
        [sys.executable, "-P", "-c", SEVERAL, json.dumps(words)],
        cwd=directory, capture_output=True, text=True, timeout=120, preexec_fn=bound, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("kind", ["/dev/zero", "pipe", "directory"])
def test_no_command_hangs_or_fails_over_what_is_no_file(kind, tmp_path):
    given = kind
    if kind == "pipe":
        given = str(tmp_path / "pipe.yaml")
        os.mkfifo(given)
    elif kind == "directory":
        given = str(tmp_path / "folder")
        (tmp_path / "folder").mkdir()
    words = [[word.replace("{}", given) for word in each] for each in COMMANDS.values()]
    for name, (code, out, err) in zip(COMMANDS, outcomes(words, tmp_path), strict=True):
        assert code == ExitCode.BAD_INPUT, (name, code, out, err)
        assert "bug in prozess" not in err, (name, err)
        assert len(err.strip().splitlines()) <= 4, (name, err)


def test_numbers_that_are_none_are_refused(tmp_path):
    words = [["validate", "--producer", "/dev/null", "--minutes", value] for value in ("inf", "nan", "-inf", "1e999")]
    words += [["watch", "--cluster", "127.0.0.1:9", option, "nan"] for option in ("--rate", "--outage")]
    for asked, (code, _, err) in zip(words, outcomes(words, tmp_path), strict=True):
        assert code == ExitCode.BAD_INPUT, (asked, err)


def test_a_directory_whose_files_are_no_files_is_not_read(tmp_path):
    (tmp_path / "plan.json").write_text("{}")
    (tmp_path / "verdict.json").symlink_to("/dev/zero")
    with pytest.raises(BadInput, match=r"verdict.json' is a device or socket, and the files of a run are files"):
        RunDirectory.existing(tmp_path)
