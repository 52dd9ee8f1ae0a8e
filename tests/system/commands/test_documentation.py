"""Every command in README and docs is carried out, by what a person has who installed the wheel: nothing of the checkout.
The first of them runs the smoke trial, from the command to the report: the only such run of the suite. It has a few of the
trial's cells; a long test has all of them.

A command that takes long, or asks for a machine of its own, is carried out shortened, or by the test named beside it.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from prozess.harness.verdict import AnomalyOutcome, TrialVerdict, Verdict
from tests.support.paths import ROOT

PACKAGES = ("harness", "clusters", "workloads", "checkers", "nemesis", "spark_checkers")
PROGRAMS = ("prozess", "make", "pip", "pytest", "docker", "python", "bash", "compose/engine.sh")
RECORDED = "prozess run smoke --seed 2 --set traffic.rate_hz=50"
FEWER_CELLS = (
    *("--set", 'axes.producer.acks=["1", "all"]', "--set", 'axes.producer.retries=["max"]'),
    *("--set", "axes.topic.unclean_leader_election_enable=[false]"),
)
"""What is added to it where the number of cells is not what is looked at: a cell is two more clients."""
CAMPAIGN_RUNS = "tests/unit/prozess/campaigns/test_campaign_runner.py"
MACHINES = "tests/unit/prozess/campaigns/test_many_machines.py"
ON_SPARK = "tests/system/spark/test_trials_on_spark.py"
OUT = "tests/unit/harness/history/test_results_elsewhere.py"
WATCH = "tests/system/commands/test_watch.py"
BROWSING = "tests/unit/harness/report/test_browsing.py"
IMPORTS = "tests/unit/prozess/exchange/test_commands.py"
TABLES = "tests/unit/prozess/app/test_run_tables.py"
MUSEUM = "tests/system/trials/test_museum.py"
ELSEWHERE = {
    "prozess museum": MUSEUM,
    "prozess museum KAFKA-20322 --seeds 1": MUSEUM,
    "prozess museum --only-page": "tests/unit/prozess/campaigns/test_museum.py",
    "pip install '.[spark]'": "tests/system/commands/test_documentation.py",  # `installed`
    "pip wheel --no-deps --wheel-dir dist .": "tests/system/commands/test_documentation.py",  # `wheel`
    'pip install "$(echo dist/prozess-*.whl)[spark]"': "tests/system/commands/test_documentation.py",  # `installed`
    RECORDED: "tests/system/commands/test_documentation.py",  # `recorded`
    "prozess replay $second --exact": "tests/system/commands/test_replay.py",
    "prozess shrink runs/mine-1-… --for 2h": "tests/unit/prozess/campaigns/test_shrink.py",
    "prozess run nightly --for 8h": CAMPAIGN_RUNS,
    "pytest docs/examples/orders": "tests/system/commands/test_in_pytest.py",
    "prozess run nightly --for 8h --runs /var/lib/prozess": CAMPAIGN_RUNS,
    "prozess run nightly --resume /var/lib/prozess/nightly-20260101T220000": CAMPAIGN_RUNS,
    "prozess run versions --rounds 1": CAMPAIGN_RUNS,
    "prozess matrix matrix-quick": "tests/unit/prozess/campaigns/test_matrix_layout.py",
    "prozess matrix matrix-quick --run results": "tests/system/commands/test_matrix.py",
    "prozess matrix results": "tests/system/commands/test_matrix.py",
    "prozess matrix matrix-full --run share-3 --shard 3/16": MACHINES,
    "prozess matrix merge all share-1 share-2 share-3 …": MACHINES,
    "prozess matrix matrix-full --run s3a://trials/full --master spark://HOST:7077": ON_SPARK,
    "prozess matrix s3a://trials/full": ON_SPARK,
    (
        "prozess matrix matrix-full --run s3a://trials/full --master spark://HOST:7077 --for 8h "
        "--conf spark.task.maxFailures=8"
    ): "tests/unit/prozess/campaigns/test_on_spark.py",
    "prozess matrix s3a://trials/full --master spark://HOST:7077": "tests/system/spark/test_run_tables.py",
    "prozess runs": BROWSING,
    "prozess runs nightly --verdict violated --last 100": BROWSING,
    "prozess compare RUN RUN": BROWSING,
    "prozess matrix --diff results-old results-new": "tests/system/commands/test_matrix.py",
    "prozess check s3a://trials/smoke-1-20261123T101500": "tests/system/spark/test_object_store.py",
    "prozess check s3a://trials/smoke-1-20261123T101500 --oracle": "tests/system/spark/test_object_store.py",
    (
        "prozess check s3a://trials/smoke-1-20261123T101500 --out s3a://results/smoke-1 "
        "--conf spark.hadoop.fs.s3a.endpoint=https://s3.example.org --conf spark.task.maxFailures=8"
    ): OUT,
    "prozess watch --cluster kafka-1:9092": WATCH,
    "prozess watch --cluster kafka-1.example:9092,kafka-2.example:9092": WATCH,
    "prozess watch --cluster kafka-1.example:9093 --client-config client.properties": WATCH,
    "prozess watch --cluster kafka-1.example:9092 --metrics 9464": WATCH,
    "prozess trends s3a://trials/nightly": "tests/system/spark/test_object_store.py",
    "prozess trends /var/lib/prozess/nightly-*": TABLES,
    "prozess run smoke --tables s3a://trials/tables": "tests/system/spark/test_object_store.py",
    "prozess check RUN --tables s3a://trials/tables": TABLES,
    "prozess tables runs/ --out s3a://trials/tables": "tests/system/spark/test_object_store.py",
    "prozess import verifiable producer.jsonl consumer.jsonl … --out DIR": IMPORTS,
    "prozess images build --version 4.4.0 --version 3.9.2": "tests/contract/test_compose_cluster.py",
    "prozess images list": "tests/contract/test_compose_cluster.py",
}
"""Command → the test that carries it out."""


def commands(text):
    """Every command in a block of code, without what is stated of it; lines that go on are one."""
    lines = iter(text.splitlines())
    fenced = False
    for line in lines:
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            body = line.strip().removeprefix("$ ")
            while body.endswith("\\"):
                body = body[:-1].strip() + " " + next(lines).strip()
            if body.split(" ")[0] in PROGRAMS:
                yield re.sub(r"\s{2,}.*$|\s+# .*$", "", body)


DOCUMENTED = sorted(
    {c for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")] for c in commands(page.read_text("utf-8"))}
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built as releases are: from the sdist, so that what is missing there is missing here."""
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(directory), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    (made,) = directory.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """`bin` of a fresh environment with the wheel; the packages it needs are those of this one."""
    home = tmp_path_factory.mktemp("installed")
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--quiet", str(wheel)]
    subprocess.run(install, check=True, capture_output=True, timeout=300)
    (packages,) = home.glob("lib/python*/site-packages")
    # A path in a .pth file is added as it is: the editable installation there does not come with it.
    (packages / "needed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return home / "bin"


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    """A directory of somebody who has configuration files, a trial, and the examples of the documentation."""
    directory = tmp_path_factory.mktemp("outside")
    for name in ("before", "after", "base/config", "config"):
        (directory / name).mkdir(parents=True)
        for path in (ROOT / "docs" / "examples" / "payments").glob("*.properties"):
            shutil.copy(path, directory / name)
    examples = ROOT / "docs" / "examples"
    shutil.copytree(ROOT / "docs", directory / "docs")
    for name, source in (
        ("app.properties", "payments/producer.properties"),
        ("app-consumer.properties", "payments/consumer.properties"),
        ("topic.properties", "payments/topic.properties"),
        ("server.properties", "cdc/server.properties"),
    ):
        shutil.copy(examples / source, directory / name)
    (trial,) = re.findall(
        r"```toml\n(name = \"mine\".*?)```", (ROOT / "docs" / "first-hour.md").read_text("utf-8"), re.DOTALL
    )
    (directory / "mine.toml").write_text(trial, encoding="utf-8")
    return directory


@pytest.fixture(scope="module")
def carry_out(installed, outside):
    def carry_out(command, *, timeout_s=240):
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment["PATH"] = f"{installed}{os.pathsep}{environment['PATH']}"
        where = ROOT if command.startswith("make") else outside
        return subprocess.run(
            ["bash", "-c", command], cwd=where, env=environment, capture_output=True, text=True, timeout=timeout_s
        )

    return carry_out


@pytest.fixture(scope="module")
def run_smoke(run_trial, installed, need):
    """Runs what the README asks for, with more words, by the installed program."""
    need("java")
    prozess, run, trial, seed, first, *words = RECORDED.split()
    assert (prozess, run, seed) == ("prozess", "run", "--seed")
    return lambda *more: run_trial(trial, *words, *more, seeds=(int(first), 8, 9), program=(installed / prozess,))


@pytest.fixture(scope="module")
def smoke(run_smoke):
    """The finished run of a few cells."""
    return run_smoke(*FEWER_CELLS)


@pytest.fixture(scope="module")
def recorded(smoke):
    """The directory of that run."""
    return smoke.run.path


def shortened(command, run):
    """What is carried out for a documented command: the same, of less, or only planned."""
    command = command.replace("$second", str(run)).replace("RUN", str(run)).replace("DIRECTORY…", str(run))
    if command.startswith("make"):
        return command.replace("make", "make --dry-run", 1)
    if re.match(r"prozess (run|matrix|scenarios) ", command):
        return command.replace("prozess run", "prozess plan", 1).replace(" --client-config client.properties", "")
    if command.startswith("prozess validate"):
        return command if "--old" in command or "--minutes" in command else f"{command} --minutes 0"
    return command


def test_the_wheel_holds_what_runs_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as file:
        names = {name for name in file.namelist() if ".dist-info/" not in name}
    assert {name.split("/")[0] for name in names} == {"prozess"}
    own = (path for path in (ROOT / "prozess").iterdir() if not path.is_symlink())
    expected = {"prozess/py.typed"} | {path.relative_to(ROOT).as_posix() for path in own if path.suffix == ".py"}
    for product in (path.name for path in (ROOT / "prozess").iterdir() if path.is_dir() and not path.is_symlink()):
        expected |= files_below(f"prozess/{product}") if product != "__pycache__" else set()
    for folder in PACKAGES:
        expected |= {f"prozess/{name}" for name in files_below(folder)}
    for folder in ("trials", "compose"):
        expected |= {f"prozess/data/{name}" for name in files_below(folder)}
    assert not expected ^ names, "the wheel and the checkout differ in these"


def files_below(folder):
    paths = (path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in paths}


def test_one_wheel_is_for_every_processor_and_every_python_and_says_what_it_is(wheel):
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as file:
        folder = next(name.split("/")[0] for name in file.namelist() if ".dist-info/" in name)
        metadata = message_from_bytes(file.read(f"{folder}/METADATA"))
        assert file.read(f"{folder}/licenses/LICENSE").decode() == (ROOT / "LICENSE").read_text("utf-8")
    assert (metadata["Name"], metadata["License-Expression"]) == ("prozess", "Apache-2.0")
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata.get_payload(decode=True).decode() == (ROOT / "README.md").read_text("utf-8")
    extras = {"run", "spark", "pandas", "docker", "ssh", "java", "jdk", "connect", "aiokafka", "all"}
    assert extras <= set(metadata.get_all("Provides-Extra"))


def test_a_project_whose_packages_have_our_names_runs_its_own_tests(installed, tmp_path, carry_out):
    for name in PACKAGES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"OWNER = 'the project, {name}'\n", encoding="utf-8")
    (tmp_path / "test_own.py").write_text(
        f"from importlib import import_module\n"
        f"import pytest\n"
        f"@pytest.mark.parametrize('name', {PACKAGES})\n"
        f"def test_own_packages_are_imported(name, pytestconfig):\n"
        f"    assert pytestconfig.pluginmanager.has_plugin('prozess')\n"
        f"    assert import_module(name).OWNER == f'the project, {{name}}'\n"
        f"    assert import_module(f'prozess.{{name}}').__file__.startswith({str(installed.parent)!r})\n",
        encoding="utf-8",
    )
    done = carry_out(f"cd {tmp_path} && python -m pytest -q")
    assert f"{len(PACKAGES)} passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.cluster
def test_the_installed_program_runs_the_smoke_trial_outside_of_the_checkout(smoke, installed, carry_out):
    assert (smoke.run.path / "report.html").stat().st_size > 10_000
    where = carry_out("python -P -c 'import prozess; print(prozess.__file__)'")
    assert Path(where.stdout.strip()).is_relative_to(installed.parent)


def check_smoke(verdict, *, cells, controls):
    assert verdict.verdict is Verdict.HELD
    assert verdict.unknown_reasons == ()
    assert len(verdict.cells) == cells
    (control,) = [control for control in verdict.controls if control.required]
    assert control.anomaly == "lost"
    assert len(control.fired_in) == len(control.cells) == controls
    for cell in verdict.cells:
        lost = cell.anomalies["lost"]
        if cell.axes["producer.acks"] == "1":
            assert (lost.outcome, lost.count >= 200) == (AnomalyOutcome.PERMITTED, True), cell.name
            assert lost.witnesses
        if cell.axes["producer.acks"] == "all":
            assert (lost.outcome, lost.proven) == (AnomalyOutcome.HELD, True), cell.name


@pytest.mark.cluster
def test_smoke_holds_its_control_fires_each_acks_1_cell_loses_what_it_may_and_no_acks_all_cell_loses_anything(smoke):
    check_smoke(smoke.verdict, cells=6, controls=2)


@pytest.mark.cluster
@pytest.mark.long  # its cheaper neighbour is the same with fewer cells, above
def test_the_whole_smoke_trial_does_so_too(run_smoke):
    check_smoke(run_smoke().verdict, cells=28, controls=8)


@pytest.mark.cluster
def test_both_faults_took_effect_on_the_nodes_their_roles_meant(smoke):
    run, verdict = smoke.run, smoke.verdict
    assert {(fault.fault, fault.nodes, fault.effective) for fault in verdict.faults} == {
        ("pause", ("broker-2", "broker-3"), True),
        ("kill", ("broker-1",), True),
    }
    resolved = json.loads(run.resolved.read_text())
    assert resolved


@pytest.mark.cluster
def test_the_local_engine_comes_to_the_same_verdict(smoke):
    run, verdict = smoke.run, smoke.verdict
    again = subprocess.run(
        [sys.executable, "-m", "prozess", "check", str(run.path), "--engine", "local", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert again.returncode == 0, again.stderr
    assert TrialVerdict.model_validate_json(again.stdout).cells == verdict.cells


@pytest.mark.cluster
def test_the_report_opens_in_a_browser_and_shows_the_verdict(smoke, need, tmp_path):
    need("chromium")
    run = smoke.run
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    page = tmp_path / "page.png"
    shown = subprocess.run(
        [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}",
            "--enable-logging=stderr", f"--screenshot={page}", "--window-size=1280,2400", "--dump-dom",
            (run.path / "report.html").as_uri(),
        ],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr[-2000:]
    assert "CONSOLE" not in shown.stderr, "the console must be clean"
    assert re.search(r'class="badge held"', shown.stdout)
    assert page.stat().st_size > 20_000


@pytest.mark.cluster
def test_each_stage_can_be_repeated_alone(smoke):
    run = smoke.run
    for name in ("report.html", "junit.xml", "summary.md"):
        (run.path / name).unlink()
    again = subprocess.run(
        [sys.executable, "-m", "prozess", "report", str(run.path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert again.returncode == 0, again.stderr
    assert {Path(line).name for line in again.stdout.split()} == {"report.html", "junit.xml", "summary.md"}


@pytest.mark.parametrize("command", [c for c in DOCUMENTED if c not in ELSEWHERE])
def test_documented(command, carry_out, outside, request):
    wants_run = re.search(r"RUN|\$second|history\.edn|DIRECTORY…", command)
    run = request.getfixturevalue("recorded") if wants_run else None
    text = shortened(command, run)
    if "history.edn --out" in text:
        made = carry_out(f"rm -f history.edn; prozess export jepsen {run} --out history.edn")
        assert made.returncode == 0, made.stderr
    if "--out history.edn" in text:
        text = f"rm -f history.edn; {text}"
    if re.search(r"\bDIR\b", text):
        text = text.replace("DIR", f"made-{abs(hash(command))}")
        if text.startswith("prozess check"):
            carry_out(text.replace(text, f"prozess generate --rows 1000 --out made-{abs(hash(command))}"))
    done = carry_out(text)
    # A generated history has planted losses and no cluster behind it, and of one file much depends on others: what they come
    # to is not what is looked at here.
    codes = {"prozess check": (0, 1, 2), "prozess validate app.properties": (0, 2)}
    allowed = next((these for begin, these in codes.items() if text.startswith(begin)), (0,))
    assert done.returncode in allowed, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.cluster
def test_the_second_part_of_the_first_hour_can_be_pasted(recorded, carry_out, tmp_path):
    page = (ROOT / "docs" / "first-hour.md").read_text("utf-8")
    (block,) = re.findall(r"## 2\. .*?\n\n((?:    [^\n]*\n)+)", page, re.DOTALL)
    # Its two runs are the recorded one's, and test_replay's.
    lines = [line.strip() for line in block.splitlines() if not re.match(r" *prozess (run|replay) ", line)]
    assert len(lines) >= 5, block
    shutil.copytree(recorded, tmp_path / "runs" / "smoke-2-20260101T000000")
    done = carry_out(f"set -e; export COLUMNS=200; cd {tmp_path}; " + "\n".join(lines))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "smoke-2-20260101T000000" in done.stdout
    assert "lost" in done.stdout


@pytest.mark.parametrize("command", ELSEWHERE)
def test_what_another_test_carries_out_is_still_documented_and_still_tested(command):
    assert command in DOCUMENTED, "no longer documented: remove it here"
    assert (ROOT / ELSEWHERE[command]).is_file()


def test_the_site_is_built_from_the_documentation_without_a_broken_link(tmp_path):
    build = [sys.executable, "-m", "mkdocs", "build", "-q", "-f", str(ROOT / ".ci" / "mkdocs.yml"), "-d", str(tmp_path)]
    done = subprocess.run(build, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "guarantees" / "index.html").is_file()
